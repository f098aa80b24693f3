"""Live display of a running sweep: a bar on a terminal and in a notebook, plain lines elsewhere, and its live page.

How far the runs are, in steps, their jobs write into the sweep's folder while they train. Jobs in this process, in
others and on other machines write the same small files, which serve the display alone: what they say is bounded by the
plan's own numbers, and nothing that is charged, resumed or reported reads them. The time that a sweep still takes is
first as planned, then more and more by its own pace. Whether a run goes on is asked of its lock, which the system
releases when a process dies: a killed run is seen at the next look, whatever its launcher waits for.

What of it is shown, `running_sweep` decides by the rule of the search.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType

from dpsweep.accounting.errors import NoReceipt
from dpsweep.accounting.ledger.permit import RECEIPT_FILE, Receipt
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.taken_steps import is_claimed
from dpsweep.accounting.records.trial_result import RESULT_FILE, Status, TrialResult
from dpsweep.accounting.searches.interface import declared_search_class
from dpsweep.reports.content.score_scale import score_scale_of_config
from dpsweep.reports.pages.page_memory import FILE
from dpsweep.sweeper.job.attempt_state import AttemptState, state_of_started_attempt
from dpsweep.sweeper.job.locks import is_being_trained
from dpsweep.sweeper.progress.live_page import LivePage
from dpsweep.sweeper.progress.running_sweep import (
    LAST,
    RUNS,
    CellState,
    DisplayWords,
    RunningSweep,
    Snapshot,
    SweepPhase,
    TimeLeft,
    words_for_rule,
)
from dpsweep.sweeper.terminal import Terminal, can_draw_progress_bar, progress_bar_on_terminal
from dpsweep.sweeper.trial.session import PROGRESS

AHEAD = 512
"""Number of waiting trials to check each time: trials begin in order, so the running ones are among the first."""

_STEP, _FEATURES = re.compile(r"step (\d{1,15})/\d{1,15}"), re.compile(r"features (\d{1,15})/(\d{1,15})")


@dataclass(kw_only=True)
class _WatchedTrial:
    """A trial that may run: the times of the files that were there before, and the steps that are done.

    `state` is that of its attempt when its receipt was of the time `receipt`; FRESH before anybody took it.
    """

    trial: Trial
    steps: int
    result: int | None
    progress: int | None
    done: int = 0
    state: AttemptState = AttemptState.FRESH
    receipt: int | None = None


@dataclass(kw_only=True)
class StepProgress:
    """The runs of a sweep, read from its folder; of the `total` trials of the plan, `done` were over beforehand.

    `results` are those that are known, beforehand those of trials that are over.
    """

    folder: SweepFolder
    total: int
    done: int
    results: dict[str, TrialResult] = field(default_factory=dict)
    _trials: dict[str, Trial] = field(default_factory=dict)
    _waiting: dict[str, _WatchedTrial] = field(default_factory=dict)
    _steps_ended: int = 0
    _ended: int = 0
    _failed: int = 0

    def add_watched_trials(self, trials: Sequence[Trial]) -> None:
        """Also watches these trials, which are about to be run."""
        for trial in trials:
            place = self.folder.trial_folder(trial.id)
            self._trials[trial.id] = trial
            self._waiting[trial.id] = _WatchedTrial(
                trial=trial,
                steps=max(1, int(trial.config["steps"])),
                result=_modification_time_ns(place / RESULT_FILE),
                progress=_modification_time_ns(place / PROGRESS),
                receipt=_modification_time_ns(place / RECEIPT_FILE),
            )

    @property
    def number_of_unfinished_watched_trials(self) -> int:
        """The number of watched trials that are not over."""
        return len(self._waiting)

    def take_snapshot(self, ahead: int = AHEAD) -> Snapshot:
        """The runs now; at most so many of the waiting ones are looked at."""
        first = list(islice(self._waiting.items(), ahead))
        ended = tuple(self._newly_ended_results(first))
        lines = [
            line
            for trial, watched in first
            if trial in self._waiting
            for line in self._progress_line_if_newly_written(trial, watched)
        ]
        lost = tuple(self._newly_killed_trials(first))
        states = Counter(watched.state for watched in self._waiting.values())
        features = next((parts for line in lines if (parts := _FEATURES.match(line))), None)
        steps = self._finished_and_all_steps()
        return Snapshot(
            ended=ended,
            done=self.done,
            failed=self._failed,
            total=self.total,
            share=steps[0] / steps[1] if steps[1] else 0.0,
            steps=steps,
            running=tuple(
                (watched.done, watched.steps)
                for watched in self._waiting.values()
                if watched.state is AttemptState.WORKING
            ),
            features=None if features is None else (int(features[1]), int(features[2])),
            stopped=states[AttemptState.INTERRUPTED],
            killed=states[AttemptState.KILLED],
            lost=lost,
            trials=tuple(self._trials.values()),
            results=self.results,
            states={
                trial: _CELL_STATES[watched.state]
                for trial, watched in self._waiting.items()
                if watched.state in _CELL_STATES
            },
        )

    def _newly_ended_results(self, first: Iterable[tuple[str, _WatchedTrial]]) -> Iterator[TrialResult]:
        """The trials that ended since the last look, each once."""
        for trial, watched in first:
            place = self.folder.trial_folder(trial)
            if _modification_time_ns(place / RESULT_FILE) in (None, watched.result):
                continue
            if (result := TrialResult.read(place)) is not None:
                del self._waiting[trial]
                self.results[trial] = result
                self._steps_ended += watched.steps
                self.done, self._ended = self.done + 1, self._ended + 1
                self._failed += result.status is Status.FAILED
                yield result

    def _newly_killed_trials(self, first: Iterable[tuple[str, _WatchedTrial]]) -> Iterator[str]:
        """Sets the states of these trials; those that were killed since the last look go behind all that wait.

        They stay among them: without locks between machines a run elsewhere looks killed, and may end all the same.
        """
        for trial, watched in first:
            if trial in self._waiting:
                before, watched.state = watched.state, self._state_of_trial(watched)
                if watched.state is AttemptState.KILLED is not before:
                    self._waiting[trial] = self._waiting.pop(trial)
                    yield trial

    def _state_of_trial(self, watched: _WatchedTrial) -> AttemptState:
        """The state of a watched trial's attempt, read anew if somebody had its lock or issued a receipt since."""
        place = self.folder.trial_folder(watched.trial.id)
        if is_being_trained(place):
            watched.receipt = None
            return AttemptState.WORKING
        if (written := _modification_time_ns(place / RECEIPT_FILE)) in (None, watched.receipt):
            return watched.state
        try:
            receipt = Receipt.read(place)
        except NoReceipt:
            return watched.state
        watched.receipt = written
        if receipt is None or not is_claimed(receipt, store := self.folder.trial_folder_and_private_record(place.name)):
            watched.receipt = None
            return AttemptState.FRESH
        return state_of_started_attempt(store, watched.trial, receipt.attempt)

    def _progress_line_if_newly_written(self, trial: str, watched: _WatchedTrial) -> Iterator[str]:
        """What a running trial's job wrote, if it wrote since it was expected; its steps are kept."""
        path = self.folder.trial_folder(trial) / PROGRESS
        if _modification_time_ns(path) in (None, watched.progress):
            return
        try:
            line = path.read_text()
        except (OSError, ValueError):
            return
        if parts := _STEP.match(line):
            watched.done = min(int(parts[1]), watched.steps)
        yield line

    def _finished_and_all_steps(self) -> tuple[int, int]:
        """The steps that are done, and all; trials that are not known yet have the mean number of steps."""
        known = self._steps_ended + sum(watched.steps for watched in self._waiting.values())
        trials, before = self._ended + len(self._waiting), self.done - self._ended
        mean = known / trials if trials else 1.0
        here = self._steps_ended + sum(
            watched.steps if watched.state is AttemptState.KILLED else watched.done
            for watched in self._waiting.values()
        )
        whole = round(known + mean * max(0, self.total - trials))
        return min(whole, round(here + mean * before)), whole


_CELL_STATES = {AttemptState.WORKING: CellState.RUNNING, AttemptState.KILLED: CellState.KILLED}
"""The states of trials without a result that a map shows."""


def _modification_time_ns(path: Path) -> int | None:
    """When a file was written last, in nanoseconds; None if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


TRUSTED = 0.03
"""The share of all steps after which the pace that was seen counts as much as the plan."""


@dataclass(kw_only=True)
class RemainingTime:
    """Estimates the rest from the planned seconds of the whole sweep, if known, and the share of steps that is done.

    The pace is that since the first new step was seen: imports and reading data before it are not taken for slow steps.

    >>> rest = RemainingTime(planned=100.0)
    >>> rest.seconds(0.0, now=0.0), rest.seconds(0.1, now=10.0), round(rest.seconds(0.5, now=30.0))
    (100.0, 90.0, 27)
    """

    planned: float | None
    _start: tuple[float, float] | None = None
    _first: tuple[float, float] | None = None

    def seconds(self, share: float, now: float) -> float | None:
        """The remaining seconds after this share of all steps; None while nothing is known."""
        self._start = self._start or (share, now)
        if self._first is None and share > self._start[0]:
            self._first = (share, now)
        pace = self._total_seconds_at_pace(self._first, share, now)
        if self.planned is None:
            pace = pace or self._total_seconds_at_pace(self._start, share, now)
            return None if pace is None else pace * (1 - share)
        planned = self.planned * (1 - share)
        if pace is None or self._first is None:
            return planned
        since = share - self._first[0]
        weight = since / (since + TRUSTED)
        return weight * pace * (1 - share) + (1 - weight) * planned

    @property
    def has_moved(self) -> bool:
        """Whether a new step was seen."""
        return self._first is not None

    @staticmethod
    def _total_seconds_at_pace(since: tuple[float, float] | None, share: float, now: float) -> float | None:
        """The seconds of all steps at the pace since then; None if there was no step since."""
        if since is None or share <= since[0] or now <= since[1]:
            return None
        return (now - since[1]) / (share - since[0])


@dataclass(kw_only=True)
class EstimatedTimeLeft:
    """Estimates the rest of a sweep from both of what it counts: the records with features, then the steps.

    `features` and `steps` have the planned seconds of each, if known. Features are over once a step was counted.

    >>> left = EstimatedTimeLeft(features=RemainingTime(planned=100.0), steps=RemainingTime(planned=60.0))
    >>> [left.after((done, 1000), 0.0, now=done / 5).seconds for done in (0, 500)]
    [160.0, 110.0]
    >>> left.after(None, 0.5, now=101.0).seconds
    30.0
    """

    features: RemainingTime
    steps: RemainingTime
    _begun: bool = False

    def after(self, features: tuple[int, int] | None, share: float, now: float) -> TimeLeft:
        """What is left after these features, done and in all, and this share of all steps."""
        steps = self.steps.seconds(share, now)
        if features is not None:
            self._begun = True
            before = self.features.seconds(features[0] / max(1, features[1]), now)
        else:
            before = 0.0 if self._begun or self.steps.has_moved else self.features.planned or 0.0
        if steps is not None and before is not None:
            return TimeLeft(seconds=before + steps)
        return TimeLeft(to_first_step=before or None)


SECONDS = 0.5
LINE_SECONDS = 30.0
"""The longest silence where no bar is drawn."""

PHASE_SECONDS = 3.0
"""A phase after the last run that takes longer is named where no bar is drawn."""

NARROW = 16
"""Characters of the bar."""

MANY, SELDOM = 128, 4
"""With more waiting trials than `MANY` the folder is looked at in every fourth turn only: it is as much work then."""


class TerminalView:
    """A running sweep on the terminal: a bar where one can be drawn, lines elsewhere."""

    def __init__(self) -> None:
        self._printed, self._tenth = time.monotonic(), -1
        self._phase, self._since = SweepPhase.TRAINING, self._printed
        self._terminal = Terminal(soft_wrap=True)
        self._bar = progress_bar_on_terminal(
            self._terminal, NARROW, disable=not can_draw_progress_bar(self._terminal.console)
        )
        self._task = self._bar.add_task("trials", total=None, counts="", state="")

    def __enter__(self) -> TerminalView:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, sweep: RunningSweep, now: float) -> None:
        """Shows the sweep at this moment."""
        if self._bar.disable:
            self._print_lines(sweep, now)
        else:
            total, state = None if sweep.share is None else 1.0, escape_invisible_characters(sweep.state)
            self._bar.update(self._task, total=total, completed=sweep.share, counts=sweep.counts, state=state)

    def _print_lines(self, sweep: RunningSweep, now: float) -> None:
        """A line for each ended trial, each tenth of the features, each long phase after the runs, and after a long
        silence; the last has the state.
        """
        lines = [*sweep.ended]
        tenth = -1 if sweep.features is None else 10 * sweep.features.done // max(1, sweep.features.total)
        if sweep.phase is not self._phase:
            self._phase, self._since = sweep.phase, now
        late = sweep.phase not in RUNS and self._printed < self._since < now - PHASE_SECONDS
        silent = tenth > self._tenth or late or now - self._printed > LINE_SECONDS
        if not lines and silent and sweep.phase not in LAST:
            lines = [sweep.counts]
        if lines:
            self._printed, self._tenth = now, tenth
            lines[-1] = f"{lines[-1]} | {sweep.state}".removeprefix(" | ")
        for line in lines:
            self._terminal.print_line(line)


class Display:
    """Shows a sweep on the terminal and on its live page, from a separate thread, so that it works with any launcher.

    `runs` knows the trials, and `add_watched_trials` adds those that are about to be run; `left` estimates the rest.
    After the runs the coordinator names each phase that it enters. A display that is left without a last phase leaves
    the page as that of a sweep that stopped.
    """

    def __init__(
        self, runs: StepProgress, words: DisplayWords, left: EstimatedTimeLeft, page: LivePage | None = None
    ) -> None:
        self._runs, self._words, self._left, self._page = runs, words, left, page
        self._phase = SweepPhase.TRAINING
        self._stop, self._looking = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch_folder, daemon=True)
        self._view = TerminalView()

    def __enter__(self) -> Display:
        self._view.__enter__()
        self._refresh_display()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._phase not in LAST:
            self.enter_phase(SweepPhase.STOPPED)

    def add_watched_trials(self, trials: Sequence[Trial]) -> None:
        """Also watches these trials, which are about to be run."""
        with self._looking:
            self._runs.add_watched_trials(trials)

    def enter_phase(self, phase: SweepPhase) -> None:
        """Names what the coordinator does from now on; at the last phase the display ends, before what is printed."""
        if self._phase in RUNS:
            self._refresh_display(self._runs.number_of_unfinished_watched_trials)
        if phase in LAST:
            self._stop.set()
            self._thread.join()
        with self._looking:
            self._phase = phase
        self._refresh_display(0)
        if phase in LAST:
            self._view.__exit__(None, None, None)

    def _watch_folder(self) -> None:
        turn = 0
        while not self._stop.wait(SECONDS):
            turn += 1
            if self._runs.number_of_unfinished_watched_trials <= MANY or turn % SELDOM == 0:
                self._refresh_display()

    def _refresh_display(self, *ahead: int) -> None:
        with self._looking:
            snapshot = self._runs.take_snapshot(*ahead)
            now = time.monotonic()
            left = self._left.after(snapshot.features, snapshot.share, now)
            sweep = self._words.shown(snapshot, left, self._phase)
            self._view.show(sweep, now)
            if self._page is not None:
                self._page.write_if_due(sweep, now)


def display_of_sweep(
    priced: PricedPlan,
    folder: SweepFolder,
    *,
    total: int,
    known: Sequence[Trial],
    due: Sequence[Trial],
    budget: str,
    seconds: float | None,
    of_runs: float | None,
    command: str,
    draws_page: bool,
) -> Display:
    """The display of a plan's sweep, of whose `total` runs these are `known` and due.

    `seconds` are the planned ones, `of_runs` those without features. `command` repeats the sweep, whose curator's page
    is drawn in the end if it `draws_page`.
    """
    plan, waiting = priced.plan, {trial.id for trial in due}
    stored = (TrialResult.read(folder.trial_folder(trial.id)) for trial in known if trial.id not in waiting)
    results = {result.trial: result for result in stored if result is not None}
    scale = score_scale_of_config(plan.trials[0].config)
    points = declared_search_class(plan).trials_known_beforehand(plan)
    before = None if seconds is None or of_runs is None else seconds - of_runs
    return Display(
        StepProgress(folder=folder, total=total, done=len(known) - len(due), results=results),
        words_for_rule(priced.rule, budget, seconds, scale, points),
        EstimatedTimeLeft(features=RemainingTime(planned=before), steps=RemainingTime(planned=of_runs)),
        LivePage(
            folder=folder.root,
            account=plan.account,
            plan=plan.id,
            hides=priced.rule.hides_losers,
            command=command,
            page=f"{folder.curator_folder.name}/{FILE}" if draws_page else "",
        ),
    )
