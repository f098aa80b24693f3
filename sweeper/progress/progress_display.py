"""Live display of a running sweep: a bar on a terminal and in a notebook, plain lines elsewhere.

What is shown is for the curator. Under a rule that hides its losers, nothing that follows from the draw is shown all
the same (`progress_words.py`): terminals are recorded, and notebooks are passed on with their output.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from dpsweep.accounting.printing import visible
from dpsweep.accounting.records.plan import Trial
from dpsweep.sweeper.progress.progress_words import DisplayWords
from dpsweep.sweeper.progress.remaining_time import RemainingTime
from dpsweep.sweeper.progress.step_progress import Snapshot, StepProgress
from dpsweep.sweeper.terminal import Terminal, bar_of, draws_bars

SECONDS = 0.5
LINE_SECONDS = 30.0
"""The longest silence where no bar is drawn."""

NARROW = 16
"""Characters of the bar."""

MANY, SELDOM = 128, 4
"""With more waiting trials than `MANY` the folder is looked at in every fourth turn only: it is as much work then."""


class Display:
    """Watches the sweep's folder from a separate thread, so that it works with any launcher.

    `runs` knows the trials, and `expect` adds those that are about to be run; `seconds` is the planned time of all.
    """

    def __init__(self, runs: StepProgress, words: DisplayWords, seconds: float | None) -> None:
        self._runs, self._words = runs, words
        self._rest = RemainingTime(planned=seconds)
        self._printed, self._tenth = time.monotonic(), -1
        self._stop, self._looking = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._terminal = Terminal(soft_wrap=True)
        self._bar = bar_of(self._terminal, NARROW, disable=not draws_bars(self._terminal.console))
        self._task = self._bar.add_task("trials", total=None, counts="", state="")

    def __enter__(self) -> Display:
        self._bar.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look(self._runs.waiting)
        self._bar.stop()

    def expect(self, trials: Sequence[Trial]) -> None:
        """Also watches these trials, which are about to be run."""
        with self._looking:
            self._runs.expect(trials)

    def _watch(self) -> None:
        turn = 0
        while not self._stop.wait(SECONDS):
            turn += 1
            if self._runs.waiting <= MANY or turn % SELDOM == 0:
                self._look()

    def _look(self, *ahead: int) -> None:
        with self._looking:
            snapshot = self._runs.look(*ahead)
            now = time.monotonic()
            state = self._words.state(snapshot, self._rest.seconds(snapshot.share, now))
            if self._bar.disable:
                self._say(snapshot, state, now)
            else:
                self._draw(snapshot, visible(state))

    def _draw(self, snapshot: Snapshot, state: str) -> None:
        share = self._words.share(snapshot)
        counts = self._words.counts(snapshot.done, snapshot.total)
        self._bar.update(self._task, total=None if share is None else 1.0, completed=share, counts=counts, state=state)

    def _say(self, snapshot: Snapshot, state: str, now: float) -> None:
        """A line for each ended trial, each tenth of the features, and after a long silence; the last has the state."""
        before = snapshot.done - len(snapshot.ended)
        lines = [
            f"{self._words.counts(before + place, snapshot.total)} {line}"
            for place, result in enumerate(snapshot.ended, start=1)
            if (line := self._words.ended(result))
        ]
        tenth = -1 if snapshot.features is None else 10 * snapshot.features[0] // max(1, snapshot.features[1])
        if not lines and (tenth > self._tenth or now - self._printed > LINE_SECONDS):
            lines = [self._words.counts(snapshot.done, snapshot.total)]
        if lines:
            self._printed, self._tenth = now, tenth
            lines[-1] = f"{lines[-1]} | {state}".removeprefix(" | ")
        for line in lines:
            self._terminal.print_line(line)
