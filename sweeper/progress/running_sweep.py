"""What is known of a running sweep: one value, which the terminal, the live page and `dpsweep watch` show.

The rule of a search decides what enters the value (`words_for_rule`), and the places that show it add nothing: what a
rule hides is in no terminal, no page and no file of theirs. Under a rule that hides its losers there are no cells, no
counts, no scores and no estimate, since all of these follow from the draw (`HiddenTries`): terminals are recorded, and
notebooks are passed on with their output. Under the other rules the scores are those of the results, noised and
charged, which the sweep's page shows too (`CountedTrials`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from statistics import fmean
from typing import Annotated, Protocol

from dpsweep.accounting.codec import OMITTED, Count, Stored
from dpsweep.accounting.ledger.book import Statement
from dpsweep.accounting.ledger.statement import remaining_amounts, reserved_amounts
from dpsweep.accounting.notation import epsilon_text_rounded_down, epsilon_text_rounded_up
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.reports.content.formatting import axis_label, method_label, setting_text
from dpsweep.reports.content.map_axes import across_down_and_facets, distinct_values
from dpsweep.reports.content.score_scale import PERCENT, ScoreScale
from dpsweep.sweeper.timing.time_estimate import rough_duration_text


class SweepPhase(StrEnum):
    """What a sweep does at the moment."""

    FEATURES = "preparing features"
    TRAINING = "training"
    SCORING = "scoring"
    SEARCHING = "searching"
    CARD = "reading the card"
    CHECKING = "checking the data's files again"
    DRAWING = "writing the results and drawing the page"
    STOPPED = "not finished, and no process works on it"
    ENDED = "over"


RUNS = frozenset({SweepPhase.FEATURES, SweepPhase.TRAINING, SweepPhase.SCORING, SweepPhase.SEARCHING})
"""The phases in which jobs are at work."""

LAST = frozenset({SweepPhase.STOPPED, SweepPhase.ENDED})
"""The phases after which the coordinator does nothing more."""


@dataclass(frozen=True, kw_only=True)
class DoneOfAll(Stored):
    """How many of something are done, and how many there are."""

    done: Count
    total: Count


class CellState(StrEnum):
    """The state of a point on a map, by the most that is known of its runs; ABSENT where the grid has no point."""

    ABSENT = "absent"
    WAITING = "waiting"
    KILLED = "killed"
    FAILED = "failed"
    DIVERGED = "diverged"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class LiveCell(Stored):
    """A point on a map: its state, its score so far as text, and where it lies between the worst and the best one."""

    state: CellState
    text: str = ""
    shade: float | None = None


@dataclass(frozen=True, kw_only=True)
class LivePanel(Stored):
    """A map that fills: `cells` has a row for each of `rows`, with a cell for each of `columns`."""

    name: str
    across: str
    columns: tuple[str, ...]
    down: str
    rows: tuple[str, ...]
    cells: tuple[tuple[LiveCell, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The runs of a sweep at one moment.

    `ended` are the results since the last snapshot, `done` the trials that are over, `failed` those of them that
    failed meanwhile; `share` is the share of all `steps`, done and in all, that is done. `running` has the steps of
    each running trial, done and in all; `features` the records whose features are computed, and all. `stopped` trials
    wait at a checkpoint, `killed` ones can no longer end: neither is over in the sense of `done`. `lost` are those
    killed since the last one. Of the `trials` that are known, `results` are those so far, and `states` those of trials
    that run or were killed.
    """

    ended: tuple[TrialResult, ...]
    done: int
    failed: int
    total: int
    share: float
    steps: tuple[int, int]
    running: tuple[tuple[int, int], ...]
    features: tuple[int, int] | None
    stopped: int = 0
    killed: int = 0
    lost: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    results: Mapping[str, TrialResult] = field(default_factory=dict)
    states: Mapping[str, CellState] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """The estimated seconds to the end of all runs, and to their first step while features are computed before it."""

    seconds: float | None = None
    to_first_step: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunningSweep(Stored):
    """All that may be shown of a sweep at one moment; None and empty for what is unknown or hidden.

    `runs`, `steps` and `features` are counts, `share` is the filled part of a bar, None for a bar without an end.
    `seconds` are the estimated ones to the end of all runs, `to_first_step` those to the first step. `activity` says
    what goes on, `remarks` what else there is to say, `scores` what the numbers on the maps are, `latest` how the last
    trials ended, and `ended` which ended since the last moment.
    """

    phase: SweepPhase
    activity: str
    remarks: tuple[str, ...]
    runs: DoneOfAll | None = None
    steps: DoneOfAll | None = None
    features: DoneOfAll | None = None
    share: float | None = None
    seconds: float | None = None
    to_first_step: float | None = None
    panels: tuple[LivePanel, ...] = ()
    scores: str = ""
    latest: tuple[str, ...] = ()
    ended: Annotated[tuple[str, ...], OMITTED] = ()

    @property
    def counts(self) -> str:
        """How many trials are over."""
        return "" if self.runs is None else f"{self.runs.done}/{self.runs.total}"

    @property
    def time_left(self) -> str:
        """How long it still takes."""
        if self.phase not in RUNS:
            return ""
        if self.runs is not None and self.runs.done == self.runs.total:
            return "all runs ended"
        if self.seconds is not None:
            return f"{rough_duration_text(self.seconds)} to go"
        return "" if self.to_first_step is None else f"{rough_duration_text(self.to_first_step)} to the first step"

    @property
    def state(self) -> str:
        """All but the counts in one line: a narrow terminal cuts off the last parts."""
        return " | ".join(filter(None, (self.time_left, self.activity, *self.remarks)))


class DisplayWords(Protocol):
    """What may be shown of one kind of search."""

    def shown(self, snapshot: Snapshot, left: TimeLeft, phase: SweepPhase) -> RunningSweep:
        """The sweep at this moment; while jobs are at work, the snapshot says more than the phase."""


LATEST = 5
"""The number of trials whose ends are still shown."""


@dataclass(frozen=True, kw_only=True)
class CountedTrials:
    """What is shown of a search that may show all of its trials; `scale` says their scores.

    `points` are the trials of the maps; without them, as where a sampler proposes them, they are those known so far.
    """

    budget: str
    scale: ScoreScale = PERCENT
    points: tuple[Trial, ...] = ()
    _latest: list[str] = field(default_factory=list)

    @cached_property
    def _layouts(self) -> tuple[PanelLayout, ...]:
        """The maps, laid out once where all points are known."""
        return panel_layouts(self.points)

    def shown(self, snapshot: Snapshot, left: TimeLeft, phase: SweepPhase) -> RunningSweep:
        """Remaining time, steps, failures, budget, and the maps."""
        before, total = snapshot.done - len(snapshot.ended), snapshot.total
        ended = (
            *(
                f"{before + place}/{total} {_ended_trial_text(one, self.scale)}"
                for place, one in enumerate(snapshot.ended, start=1)
            ),
            *(f"{snapshot.done}/{total} trial {trial} was killed" for trial in snapshot.lost),
        )
        self._latest[:] = [*self._latest, *ended][-LATEST:]
        phase = _phase_of_runs(snapshot) if phase in RUNS else phase
        activity = {
            SweepPhase.FEATURES: _features_progress_text(snapshot),
            SweepPhase.TRAINING: _running_steps_text(snapshot),
        }
        remarks = (
            f"{snapshot.stopped} stopped" if snapshot.stopped else "",
            f"{snapshot.killed} killed" if snapshot.killed else "",
            f"{snapshot.failed} failed",
            self.budget,
        )
        return RunningSweep(
            phase=phase,
            activity=activity.get(phase, phase.value),
            remarks=tuple(filter(None, remarks)),
            runs=DoneOfAll(done=snapshot.done, total=total),
            steps=DoneOfAll(done=snapshot.steps[0], total=snapshot.steps[1]) if snapshot.trials else None,
            features=_features_progress(snapshot),
            share=snapshot.share,
            seconds=left.seconds,
            to_first_step=left.to_first_step,
            panels=filled_panels(self._layouts or panel_layouts(snapshot.trials), snapshot, self.scale),
            scores=f"Scores {self.scale.in_words}, with the noise that was charged.",
            latest=tuple(self._latest),
            ended=ended,
        )


@dataclass(frozen=True, kw_only=True)
class HiddenTries:
    """What is shown of a search that hides its losers; nothing in it follows from its draw.

    `planned` are the mean seconds of the search over all draws, by the plan.
    """

    budget: str
    planned: float | None

    def shown(self, snapshot: Snapshot, left: TimeLeft, phase: SweepPhase) -> RunningSweep:
        """That the search is at work, and the planned time: the number of tries is as secret as the noise."""
        secret = "(the number of tries is secret and random)"
        planned = "" if self.planned is None else f"{rough_duration_text(self.planned)} {secret}"
        features = _features_progress(snapshot) if phase in RUNS else None
        if phase in RUNS:
            phase = SweepPhase.SEARCHING if features is None else SweepPhase.FEATURES
        return RunningSweep(
            phase=phase,
            activity=phase.value if features is None else _features_progress_text(snapshot),
            remarks=tuple(filter(None, (self.budget, planned))),
            features=features,
        )


def words_for_rule(
    rule: SelectionRule,
    budget: str,
    seconds: float | None,
    scale: ScoreScale = PERCENT,
    points: tuple[Trial, ...] = (),
) -> DisplayWords:
    """What may be shown of a search under this rule; `seconds` is the planned time, and `scale` says scores.

    *Guarantee*: under a rule whose price leaves out the scores of losers, or whose draw is secret, no score and no
    count of tries, and nothing that follows from them.
    """
    if rule.draws_in_secret or rule.hides_losers:
        return HiddenTries(budget=budget, planned=seconds)
    return CountedTrials(budget=budget, scale=scale, points=points)


def budget_in_words(statement: Statement) -> str:
    """The account's reserved and remaining epsilon; data declared public have neither."""
    if statement.budget.promises_nothing:
        return "data declared public: nobody is protected"
    return (
        f"epsilon reserved {epsilon_text_rounded_up(reserved_amounts(statement)[0])}, left "
        f"{epsilon_text_rounded_down(remaining_amounts(statement)[0])}"
    )


def _phase_of_runs(snapshot: Snapshot) -> SweepPhase:
    """Features come before the first step, scores after the last one."""
    if snapshot.features is not None:
        return SweepPhase.FEATURES
    scores = bool(snapshot.running) and all(done >= steps for done, steps in snapshot.running)
    return SweepPhase.SCORING if scores else SweepPhase.TRAINING


def _ended_trial_text(result: TrialResult, scale: ScoreScale) -> str:
    """A trial that ended, its state and its score."""
    score = ""
    if result.score is not None:
        value = float(result.score["value"])
        score = f", score {value:.3f}" if scale is PERCENT else f", {scale.name} {scale.with_unit(scale.text(value))}"
    return f"trial {result.trial} {result.status.value}{score} in {result.seconds:.1f} s"


def _running_steps_text(snapshot: Snapshot) -> str:
    """The steps of the running trials."""
    if not snapshot.running:
        return ""
    (done, steps), (most, _) = min(snapshot.running), max(snapshot.running)
    return f"{len(snapshot.running)} running, step {done}{f' to {most}' if most > done else ''} of {steps}"


def _features_progress(snapshot: Snapshot) -> DoneOfAll | None:
    """The features that are computed before the first step."""
    return None if snapshot.features is None else DoneOfAll(done=snapshot.features[0], total=snapshot.features[1])


def _features_progress_text(snapshot: Snapshot) -> str:
    return "" if snapshot.features is None else "features of {} of {} records".format(*snapshot.features)


SPARSE = 4
"""Points that fill less than one in so many cells of a map are listed instead, as a sampler's are."""


@dataclass(frozen=True, kw_only=True)
class PanelLayout:
    """A panel without its cells, and the trials of each cell, by row and column."""

    panel: LivePanel
    trials: Mapping[tuple[int, int], tuple[str, ...]]


def filled_panels(layouts: Sequence[PanelLayout], snapshot: Snapshot, scale: ScoreScale) -> tuple[LivePanel, ...]:
    """The maps with what is known of each point."""
    means = {ids: _mean_score(ids, snapshot) for one in layouts for ids in one.trials.values()}
    known = [mean for mean in means.values() if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)

    def cell(ids: tuple[str, ...]) -> LiveCell:
        if (mean := means.get(ids)) is None:
            return LiveCell(state=_state_of_unscored_point(ids, snapshot))
        scored = sum(_has_score(one, snapshot) for one in ids)
        return LiveCell(
            state=CellState.FINISHED,
            text=scale.text(mean) + (f" ({scored} of {len(ids)})" if len(ids) > 1 else ""),
            shade=(mean - low) / (high - low) if high > low else 0.5,
        )

    return tuple(
        replace(
            one.panel,
            cells=tuple(
                tuple(cell(one.trials.get((row, column), ())) for column in range(len(one.panel.columns)))
                for row in range(len(one.panel.rows))
            ),
        )
        for one in layouts
    )


def _has_score(trial: str, snapshot: Snapshot) -> bool:
    result = snapshot.results.get(trial)
    return result is not None and result.status is Status.FINISHED and result.score is not None


def _mean_score(trials: Sequence[str], snapshot: Snapshot) -> float | None:
    """The mean score of a point's finished runs so far; None without one."""
    scores = [snapshot.results[one].score_value for one in trials if _has_score(one, snapshot)]
    return fmean(score for score in scores if score is not None) if scores else None


def _state_of_unscored_point(trials: Sequence[str], snapshot: Snapshot) -> CellState:
    """The most that is known of a point none of whose runs has a score."""
    if not trials:
        return CellState.ABSENT
    states = {snapshot.states.get(one, CellState.WAITING) for one in trials}
    states |= {CellState(snapshot.results[one].status.value) for one in trials if one in snapshot.results}
    return max(states, key=list(CellState).index)


def panel_layouts(trials: Sequence[Trial]) -> tuple[PanelLayout, ...]:
    """The maps of these trials: a panel for each method and value of further keys, lr across wherever it varies."""
    methods: dict[str, list[Trial]] = {}
    for one in trials:
        methods.setdefault(one.method, []).append(one)
    return tuple(panel for method, own in methods.items() for panel in _panels_of_method(method_label(method), own))


def _panels_of_method(method: str, trials: Sequence[Trial]) -> tuple[PanelLayout, ...]:
    settings = [dict(trial.axes) for trial in trials]
    keys = list(dict.fromkeys(key for one in settings for key in one))
    values = {key: distinct_values(one[key] for one in settings if key in one) for key in keys}
    noise = tuple(key for key in keys if key.startswith("privacy.") and len(values[key]) > 1)
    across, down, facets = across_down_and_facets({key: values[key] for key in keys if key not in noise})
    ticks = {key: [setting_text(value) for value in values[key]] for key in keys}
    groups: dict[str, dict[tuple[int, int], tuple[str, ...]]] = {}
    for trial, own in zip(trials, settings, strict=True):
        named = [f"{axis_label(key)} {setting_text(own[key])}" for key in (*noise, *facets) if key in own]
        row, column = (
            ticks[key].index(setting_text(own[key])) if key is not None and key in own else 0 for key in (down, across)
        )
        cells = groups.setdefault(", ".join((method, *named)), {})
        cells[row, column] = (*cells.get((row, column), ()), trial.id)
    columns = ("",) if across is None else tuple(ticks[across])
    rows = ("",) if down is None else tuple(ticks[down])
    if len(groups) * len(rows) * len(columns) > SPARSE * sum(map(len, groups.values())):
        points: dict[str, tuple[str, ...]] = {}
        for trial, own in zip(trials, settings, strict=True):
            name = ", ".join(f"{axis_label(key)} {setting_text(value)}" for key, value in own.items())
            points[name] = (*points.get(name, ()), trial.id)
        groups = {method: {(row, 0): ids for row, ids in enumerate(points.values())}}
        across, columns, down, rows = None, ("",), "point", tuple(points)
    return tuple(
        PanelLayout(
            panel=LivePanel(
                name=name, across=axis_label(across or ""), columns=columns, down=axis_label(down or ""), rows=rows
            ),
            trials=cells,
        )
        for name, cells in groups.items()
    )
