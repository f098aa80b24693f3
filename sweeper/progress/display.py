"""Live display of a running sweep: a bar on a terminal and in a notebook, plain lines elsewhere.

How far the runs are, in steps, their jobs write into the sweep's folder while they train. Jobs in this process, in
others and on other machines write the same small files, which serve the display alone: what they say is bounded by the
plan's own numbers, and nothing that is charged, resumed or reported reads them. The time that a sweep still takes is
first as planned, then more and more by its own pace. Whether a run goes on is asked of its lock, which the system
releases when a process dies: a killed run is seen at the next look, whatever its launcher waits for.

What is shown is for the curator. Under a rule that hides its losers, nothing that follows from the draw is shown all
the same (`HiddenTries`): terminals are recorded, and notebooks are passed on with their output.
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
from typing import Protocol

from dpsweep.accounting.errors import NoReceipt
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.ledger.receipt import RECEIPT_FILE, Receipt
from dpsweep.accounting.notation import epsilon_text_rounded_down, epsilon_text_rounded_up
from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import RESULT_FILE, Status, TrialResult
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.reports.content.score_scale import PERCENT, ScoreScale
from dpsweep.sweeper.job.attempt_state import AttemptState, state_of_started_attempt
from dpsweep.sweeper.job.locks import is_being_trained
from dpsweep.sweeper.terminal import Terminal, can_draw_progress_bar, progress_bar_on_terminal
from dpsweep.sweeper.timing.time_estimate import rough_duration_text
from dpsweep.sweeper.trial.session import PROGRESS

AHEAD = 512
"""Number of waiting trials to check each time: trials begin in order, so the running ones are among the first."""

_STEP, _FEATURES = re.compile(r"step (\d{1,15})/\d{1,15}"), re.compile(r"features (\d{1,15})/(\d{1,15})")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The runs of a sweep at one moment.

    `ended` are the results since the last snapshot, `done` the trials that are over, `failed` those of them that
    failed meanwhile; `share` is the share of all steps that is done. `running` has the steps of each running trial,
    done and in all; `features` the records whose features are computed, and all. `stopped` trials wait at a checkpoint,
    `killed` ones can no longer end: neither is over in the sense of `done`. `lost` are those killed since the last one.
    """

    ended: tuple[TrialResult, ...]
    done: int
    failed: int
    total: int
    share: float
    running: tuple[tuple[int, int], ...]
    features: tuple[int, int] | None
    stopped: int = 0
    killed: int = 0
    lost: tuple[str, ...] = ()


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
    """The runs of a sweep, read from its folder; of the `total` trials of the plan, `done` were over beforehand."""

    folder: SweepFolder
    total: int
    done: int
    _waiting: dict[str, _WatchedTrial] = field(default_factory=dict)
    _steps_ended: int = 0
    _ended: int = 0
    _failed: int = 0

    def add_watched_trials(self, trials: Sequence[Trial]) -> None:
        """Also watches these trials, which are about to be run."""
        for trial in trials:
            place = self.folder.trial_folder(trial.id)
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
        return Snapshot(
            ended=ended,
            done=self.done,
            failed=self._failed,
            total=self.total,
            share=self._finished_steps_share(),
            running=tuple(
                (watched.done, watched.steps)
                for watched in self._waiting.values()
                if watched.state is AttemptState.WORKING
            ),
            features=None if features is None else (int(features[1]), int(features[2])),
            stopped=states[AttemptState.INTERRUPTED],
            killed=states[AttemptState.KILLED],
            lost=lost,
        )

    def _newly_ended_results(self, first: Iterable[tuple[str, _WatchedTrial]]) -> Iterator[TrialResult]:
        """The trials that ended since the last look, each once."""
        for trial, watched in first:
            place = self.folder.trial_folder(trial)
            if _modification_time_ns(place / RESULT_FILE) in (None, watched.result):
                continue
            if (result := TrialResult.read(place)) is not None:
                del self._waiting[trial]
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
        if receipt is None or not receipt.is_claimed(store := self.folder.trial_folder_and_private_record(place.name)):
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

    def _finished_steps_share(self) -> float:
        """The steps that are done, over all; trials that are not known yet have the mean number of steps."""
        known = self._steps_ended + sum(watched.steps for watched in self._waiting.values())
        trials, before = self._ended + len(self._waiting), self.done - self._ended
        mean = known / trials if trials else 1.0
        here = self._steps_ended + sum(
            watched.steps if watched.state is AttemptState.KILLED else watched.done
            for watched in self._waiting.values()
        )
        whole = known + mean * max(0, self.total - trials)
        return min(1.0, (here + mean * before) / whole) if whole else 0.0


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

    @staticmethod
    def _total_seconds_at_pace(since: tuple[float, float] | None, share: float, now: float) -> float | None:
        """The seconds of all steps at the pace since then; None if there was no step since."""
        if since is None or share <= since[0] or now <= since[1]:
            return None
        return (now - since[1]) / (share - since[0])


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a display shows of a search at one moment; an empty text is left out.

    `counts` says how many trials are over, `state` what goes on and how long it takes, `ended` is a line for each trial
    that ended since the last moment. `share` is the filled part of the bar; None for a bar without an end.
    """

    counts: str
    state: str
    ended: tuple[str, ...]
    share: float | None


class DisplayWords(Protocol):
    """What a display may say about one kind of search."""

    def shown(self, snapshot: Snapshot, seconds: float | None) -> Shown:
        """The words at this moment, with the estimated seconds of the rest."""
        ...


@dataclass(frozen=True, kw_only=True)
class CountedTrials:
    """The words for a search that may show all of its trials; `scale` says their scores."""

    budget: str
    scale: ScoreScale = PERCENT

    def shown(self, snapshot: Snapshot, seconds: float | None) -> Shown:
        """Remaining time, steps, failures and budget: a narrow terminal cuts off the last ones."""
        before, total = snapshot.done - len(snapshot.ended), snapshot.total
        to_go = "" if seconds is None else f"{rough_duration_text(seconds)} to go"
        to_go = "done" if snapshot.done == total else to_go
        parts = (
            to_go,
            _features_progress_text(snapshot) or _running_steps_text(snapshot.running),
            f"{snapshot.stopped} stopped" if snapshot.stopped else "",
            f"{snapshot.killed} killed" if snapshot.killed else "",
            f"{snapshot.failed} failed",
            self.budget,
        )
        return Shown(
            counts=f"{snapshot.done}/{total}",
            state=" | ".join(filter(None, parts)),
            ended=tuple(
                f"{before + place}/{total} {_ended_trial_text(one, self.scale)}"
                for place, one in enumerate(snapshot.ended, start=1)
            )
            + tuple(f"{snapshot.done}/{total} trial {trial} was killed" for trial in snapshot.lost),
            share=snapshot.share,
        )


@dataclass(frozen=True, kw_only=True)
class HiddenTries:
    """The words for a search that hides its losers; nothing in them follows from its draw.

    `planned` are the mean seconds of the search over all draws, by the plan.
    """

    budget: str
    planned: float | None

    def shown(self, snapshot: Snapshot, seconds: float | None) -> Shown:
        """That the search is at work, and the planned time: the number of tries is as secret as the noise."""
        planned = "" if self.planned is None else f"{rough_duration_text(self.planned)} in the mean over all draws"
        state = " | ".join(filter(None, (_features_progress_text(snapshot) or "searching", self.budget, planned)))
        return Shown(counts="", state=state, ended=(), share=None)


def budget_in_words(statement: Statement) -> str:
    """The account's reserved and remaining epsilon; data declared public have neither."""
    if statement.budget.promises_nothing:
        return "data declared public: nobody is protected"
    return (
        f"epsilon reserved {epsilon_text_rounded_up(statement.reserved_epsilon_and_delta[0])}, left "
        f"{epsilon_text_rounded_down(statement.remaining_epsilon_and_delta[0])}"
    )


def _ended_trial_text(result: TrialResult, scale: ScoreScale) -> str:
    """A trial that ended, its state and its score."""
    score = ""
    if result.score is not None:
        value = float(result.score["value"])
        score = f", score {value:.3f}" if scale is PERCENT else f", {scale.name} {scale.exact_text(value)}"
    return f"trial {result.trial} {result.status.value}{score} in {result.seconds:.1f} s"


def _running_steps_text(running: Sequence[tuple[int, int]]) -> str:
    """The steps of the running trials."""
    if not running:
        return ""
    (done, steps), (most, _) = min(running), max(running)
    return f"{len(running)} running, step {done}{f' to {most}' if most > done else ''} of {steps}"


def _features_progress_text(snapshot: Snapshot) -> str:
    """The features that are computed before the first step."""
    return "" if snapshot.features is None else "features of {} of {} records".format(*snapshot.features)


def display_words_for_rule(
    rule: SelectionRule, budget: str, seconds: float | None, scale: ScoreScale = PERCENT
) -> DisplayWords:
    """What the display of a search under this rule may say; `seconds` is the planned time, and `scale` says scores."""
    if rule.draws_in_secret:
        return HiddenTries(budget=budget, planned=seconds)
    return CountedTrials(budget=budget, scale=scale)


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
        self._thread = threading.Thread(target=self._watch_folder, daemon=True)
        self._terminal = Terminal(soft_wrap=True)
        self._bar = progress_bar_on_terminal(
            self._terminal, NARROW, disable=not can_draw_progress_bar(self._terminal.console)
        )
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
        self._refresh_display(self._runs.number_of_unfinished_watched_trials)
        self._bar.stop()

    def add_watched_trials(self, trials: Sequence[Trial]) -> None:
        """Also watches these trials, which are about to be run."""
        with self._looking:
            self._runs.add_watched_trials(trials)

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
            words = self._words.shown(snapshot, self._rest.seconds(snapshot.share, now))
            if self._bar.disable:
                self._print_progress_lines(snapshot.features, words, now)
            else:
                total, state = None if words.share is None else 1.0, escape_invisible_characters(words.state)
                self._bar.update(self._task, total=total, completed=words.share, counts=words.counts, state=state)

    def _print_progress_lines(self, features: tuple[int, int] | None, words: Shown, now: float) -> None:
        """A line for each ended trial, each tenth of the features, and after a long silence; the last has the state."""
        lines = [*words.ended]
        tenth = -1 if features is None else 10 * features[0] // max(1, features[1])
        if not lines and (tenth > self._tenth or now - self._printed > LINE_SECONDS):
            lines = [words.counts]
        if lines:
            self._printed, self._tenth = now, tenth
            lines[-1] = f"{lines[-1]} | {words.state}".removeprefix(" | ")
        for line in lines:
            self._terminal.print_line(line)
