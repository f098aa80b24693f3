"""Live display of a running sweep: trials, budget, remaining time; plain lines if the output is not a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import islice
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.notation import epsilon_down, epsilon_up
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import RESULT_FILE, Status, TrialResult
from dpsweep.sweeper.commands.price_table import duration

SECONDS = 0.5
FEATURES = "features "
"""How a job's progress begins while it computes frozen features."""

AHEAD = 128
"""Number of waiting trials to check each time: trials begin in order, so the running ones are among the first."""


class Display:
    """Watches the sweep's folder from a separate thread, so that it works with any launcher.

    `trials` are about to be run, and `expect` adds more; of the `total` trials of the whole plan, `done` are over.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        total: int,
        done: int,
        folder: SweepFolder,
        statement: Statement,
        seconds: float | None,
    ) -> None:
        self._folder = folder
        self._budget = _budget(statement)
        self._seconds = seconds
        self._waiting = {trial.id: self._stamp(trial.id) for trial in trials}
        self._total, self._done, self._failed = total, done, 0
        self._tenth: int | None = None
        self._started, self._here = time.monotonic(), 0
        self._stop, self._looking = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("trials", total=total, completed=self._done, state=self._budget)

    def __enter__(self) -> Display:
        self._progress.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look(len(self._waiting))
        self._progress.stop()

    def expect(self, trials: Sequence[Trial]) -> None:
        """Also watches these trials, which are about to be run."""
        with self._looking:
            self._waiting |= {trial.id: self._stamp(trial.id) for trial in trials}

    def _watch(self) -> None:
        while not self._stop.wait(SECONDS):
            self._look()

    def _look(self, ahead: int = AHEAD) -> None:
        with self._looking:
            self._count_and_show(ahead)

    def _count_and_show(self, ahead: int) -> None:
        first = list(islice(self._waiting.items(), ahead))
        for trial in [trial for trial, before in first if self._stamp(trial) not in (None, before)]:
            result = TrialResult.read(self._folder.trial(trial))
            if result is not None:
                del self._waiting[trial]
                self._count(result)
        running = self._running()
        state = f"{len(running)} running, {self._failed} failed | {self._budget} | {self._to_go()}"
        extracting = next((state for state in running if state.startswith(FEATURES)), "")
        self._say_features(extracting)
        detail = f" | {extracting or running[0]}" if extracting or len(running) == 1 else ""
        self._progress.update(self._task, completed=self._done, state=state + detail)

    def _say_features(self, state: str) -> None:
        """A plain line for each further tenth of the records whose features are computed."""
        if not state or self._console.is_terminal:
            return
        done, _, total = state.removeprefix(FEATURES).strip().partition("/")
        if total.isdecimal() and (tenth := 10 * int(done) // max(1, int(total))) != self._tenth:
            self._tenth = tenth
            self._console.print(f"features of {done} of {total} records", soft_wrap=True)

    def _count(self, result: TrialResult) -> None:
        self._done, self._here = self._done + 1, self._here + 1
        self._failed += result.status is Status.FAILED
        if not self._console.is_terminal:
            score = "" if result.score is None else f", score {result.score['value']:.3f}"
            self._console.print(
                f"{self._done}/{self._total} trial {result.trial} {result.status.value}{score} in "
                f"{result.seconds:.1f} s | {self._failed} failed | {self._budget} | {self._to_go()}",
                soft_wrap=True,
            )

    def _stamp(self, trial: str) -> int | None:
        """The time at which the trial's result was written: it tells a new result from an earlier attempt's."""
        try:
            return (self._folder.trial(trial) / RESULT_FILE).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _running(self) -> list[str]:
        """What the running trials do: the steps that they completed, or the features."""
        steps = []
        for trial in islice(self._waiting, AHEAD):
            try:
                steps.append((self._folder.trial(trial) / "progress").read_text())
            except FileNotFoundError:
                continue
        return steps

    def _to_go(self) -> str:
        left = self._total - self._done
        if not left:
            return "done"
        if self._here:
            return f"about {duration((time.monotonic() - self._started) / self._here * left)} to go"
        return "" if self._seconds is None else f"about {duration(self._seconds)} to go"


def _budget(statement: Statement) -> str:
    """The account's reserved and remaining epsilon; data declared public have neither."""
    if statement.budget.vacuous:
        return "data declared public: nobody is protected"
    return f"epsilon reserved {epsilon_up(statement.reserved[0])}, left {epsilon_down(statement.left[0])}"
