"""The words of a sweep's display: for a search that shows its trials, and for one that hides its losers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.notation import epsilon_down, epsilon_up
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.sweeper.progress.step_progress import Snapshot
from dpsweep.sweeper.timing.duration import duration


class DisplayWords(Protocol):
    """What a display may say about one kind of search; an empty text is left out."""

    def counts(self, done: int, total: int) -> str:
        """How many trials are over."""
        ...

    def state(self, snapshot: Snapshot, seconds: float | None) -> str:
        """The state of the sweep, with the estimated seconds of the rest."""
        ...

    def ended(self, result: TrialResult) -> str:
        """A trial that ended."""
        ...

    def share(self, snapshot: Snapshot) -> float | None:
        """The filled part of the bar; None for a bar without an end."""
        ...


@dataclass(frozen=True, kw_only=True)
class CountedTrials:
    """The words for a search that may show all of its trials."""

    budget: str

    def counts(self, done: int, total: int) -> str:
        """Trials that are over, of all."""
        return f"{done}/{total}"

    def state(self, snapshot: Snapshot, seconds: float | None) -> str:
        """Remaining time, steps, failures and budget: a narrow terminal cuts off the last ones."""
        parts = (_to_go(snapshot, seconds), _at_work(snapshot), f"{snapshot.failed} failed", self.budget)
        return " | ".join(filter(None, parts))

    def ended(self, result: TrialResult) -> str:
        """The trial, its state and its score."""
        score = "" if result.score is None else f", score {result.score['value']:.3f}"
        return f"trial {result.trial} {result.status.value}{score} in {result.seconds:.1f} s"

    def share(self, snapshot: Snapshot) -> float | None:
        """The share of all steps."""
        return snapshot.share


@dataclass(frozen=True, kw_only=True)
class HiddenTries:
    """The words for a search that hides its losers; nothing in them follows from its draw.

    `planned` are the mean seconds of the search over all draws, by the plan.
    """

    budget: str
    planned: float | None

    def counts(self, done: int, total: int) -> str:
        """Nothing: the number of tries is as secret as the noise."""
        return ""

    def state(self, snapshot: Snapshot, seconds: float | None) -> str:
        """That the search is at work, and the planned time."""
        planned = "" if self.planned is None else f"about {duration(self.planned)} in the mean over all draws"
        return " | ".join(filter(None, (_features(snapshot) or "searching", self.budget, planned)))

    def ended(self, result: TrialResult) -> str:
        """Nothing."""
        return ""

    def share(self, snapshot: Snapshot) -> float | None:
        """None: how much is left follows from the draw."""
        return None


def budget_in_words(statement: Statement) -> str:
    """The account's reserved and remaining epsilon; data declared public have neither."""
    if statement.budget.vacuous:
        return "data declared public: nobody is protected"
    return f"epsilon reserved {epsilon_up(statement.reserved[0])}, left {epsilon_down(statement.left[0])}"


def _at_work(snapshot: Snapshot) -> str:
    """The steps of the running trials, or the features that are computed first."""
    if features := _features(snapshot):
        return features
    if not snapshot.running:
        return ""
    (done, steps), (most, _) = min(snapshot.running), max(snapshot.running)
    return f"{len(snapshot.running)} running, step {done}{f' to {most}' if most > done else ''} of {steps}"


def _features(snapshot: Snapshot) -> str:
    return "" if snapshot.features is None else "features of {} of {} records".format(*snapshot.features)


def _to_go(snapshot: Snapshot, seconds: float | None) -> str:
    if snapshot.done == snapshot.total:
        return "done"
    return "" if seconds is None else f"about {duration(seconds)} to go"


def words_of(rule: SelectionRule, budget: str, seconds: float | None) -> DisplayWords:
    """What the display of a search under this rule may say; `seconds` is the planned time."""
    return HiddenTries(budget=budget, planned=seconds) if rule.draws_in_secret else CountedTrials(budget=budget)
