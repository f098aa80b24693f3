"""The search of a plan: its runs and their results, what its charge pays for, who won, how its folder is verified.

A kind of search is a class in a module of its own here, `EveryPoint` in `every_point`, and one in the module of that
name in `sweeper/searches`, `AdmittedEveryPoint`, which charges and starts its runs. A selection rule names its kind
(`SelectionRule.kind`). Nobody else asks which kind a search is, so a further kind is two files and a rule that names
them. Invariants of every kind:

* The price of a plan is the price of its event, so a plan has a search only if its event is its rule's over its points.
* What a search runs is derived from its plan, and from choices that were stored before the run that they led to.
* A winner is chosen once, by the rule: `records` reports what was chosen, and a final run is one of `Plan.finals`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import ClassVar, cast

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.types import Recent
from dpsweep.accounting.ledger.account import Attempts, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import FINAL, Block, Plan, Trial
from dpsweep.accounting.records.step_log import is_charged
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.selection.interface import Draw, Proposals, Search, SelectionRule, Use, rule_from_config


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run of a search with its result, and the numbers of attempts charged and started.

    A try of a secret draw is charged once, with its search.
    """

    trial: Trial
    result: TrialResult | None
    charged: int
    started: int

    @property
    def finished(self) -> bool:
        """Whether the latest attempt finished."""
        result = self.result
        return result is not None and result.status is Status.FINISHED and result.attempt >= self.started

    @property
    def score(self) -> float | None:
        """The score of the latest attempt; None unless it finished with one."""
        return self.result.value if self.result is not None and self.finished else None


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs of a search in order, with the nouns for one and for several of them.

    `points` are the points of the runs, by their index in the plan, and `untried` those that no run has. `winner` is
    the run whose model is handed over, None if there is none or if it has not finished. `over` says whether the search
    has ended, its final run included. `final` is the final run, if the rule has one and its point is chosen.
    """

    rows: tuple[RunRecord, ...]
    points: Sequence[int]
    noun: str
    nouns: str
    final: RunRecord | None = None
    untried: tuple[Trial, ...] = ()
    winner: str | None = None
    over: bool = True

    @property
    def all(self) -> tuple[RunRecord, ...]:
        """The runs of the search, then the final run."""
        return self.rows if self.final is None else (*self.rows, self.final)


def charged_rows(folder: SweepFolder, plan: Plan, trials: Sequence[Trial], account: Statement) -> tuple[RunRecord, ...]:
    """The records of runs whose every attempt has a line in the ledger."""
    attempts = account.attempts(plan.id)
    paid = attempts.spares >= 0
    return tuple(
        RunRecord(
            trial=trial,
            result=TrialResult.read(folder.trial(trial.id)),
            charged=max(attempts.covered[trial.id], attempts.started[trial.id] if paid else 0),
            started=attempts.started[trial.id],
        )
        for trial in trials
    )


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The trials that one search would run, in their order, and the rule's draw; None if every run is released.

    With `shared` they have the same subsamples.
    """

    trials: tuple[Trial, ...]
    draw: Draw | None = None
    shared: bool = False

    @property
    def compares_counts(self) -> bool:
        """Whether the rule adds noise in units of right predictions to the scores."""
        return self.draw is not None and bool(self.draw.handicaps)

    def released(self, scores: Sequence[float | None]) -> tuple[int, ...]:
        """The places of the runs that the rule releases, for these scores of all runs."""
        if self.draw is None:
            return tuple(range(len(self.trials)))
        winner = self.draw.winner(dict(enumerate(scores)))
        return () if winner is None else (winner,)


@dataclass(frozen=True, kw_only=True)
class PlannedSearch(ABC):
    """The search of a plan in the folder of its sweep."""

    noun: ClassVar[str]
    """The noun for one run."""

    nouns: ClassVar[str]
    """The noun for several runs."""

    plan: Plan
    folder: SweepFolder

    @property
    def rule(self) -> SelectionRule:
        """The plan's selection rule."""
        return rule_from_config(self.plan.rule)

    @property
    @abstractmethod
    def paid_by_name(self) -> tuple[str, ...]:
        """The names of the attempts that the plan's charge pays for, one attempt each."""

    @property
    def paid_without_name(self) -> int:
        """The further attempts, at any run, that the plan's charge pays for."""
        return self.plan.spares + bool(self.plan.finals)

    @abstractmethod
    def reserved(self, attempts: Attempts) -> int:
        """The attempts without a name that runs to come need."""

    @property
    @abstractmethod
    def total(self) -> int:
        """The number of runs that the plan pays for, without the final run."""

    @abstractmethod
    def search_runs(self) -> tuple[Trial, ...]:
        """The runs of the search that are known so far."""

    @abstractmethod
    def points(self) -> Sequence[int]:
        """The point of each of `search_runs`, by its index in the plan."""

    @abstractmethod
    def final_run(self) -> Trial | None:
        """The final run of the winning point; None if the rule has none, or if the point is not chosen yet."""

    def runs(self) -> tuple[Trial, ...]:
        """The runs that may be made now: those of the search, and the final run once it is chosen."""
        final = self.final_run()
        return self.search_runs() + (() if final is None else (final,))

    def blocks(self) -> tuple[Block, ...]:
        """The blocks that jobs may train: one for each run."""
        return tuple(Block(trials=(trial,)) for trial in self.runs())

    def block(self, block_id: str) -> Block:
        """The block with this id; raises `BadInput` if there is none."""
        for block in self.blocks():
            if block.id == block_id:
                return block
        raise BadInput(f"Expected block={block_id} to be among what plan {self.plan.id} runs in {self.folder.root}.")

    @abstractmethod
    def records(self, account: Statement) -> Runs:
        """The runs with their results and attempts, and the winner; raises `BadInput` for a contradictory folder."""

    @abstractmethod
    def verify(self, account: Statement) -> str:
        """What the folder holds, as a sentence; raises `ContractBroken` for a run that was not paid for or declared."""

    @abstractmethod
    def verify_ends(self, ledger: Ledger) -> None:
        """Raises `ContractBroken` if a result is not the one that its attempt ended with."""

    @abstractmethod
    def charge_and_secret(self, account: Statement, winner: str | None) -> tuple[str, str]:
        """The digest of the charge that a release belongs to, and random bits that every copy of the folder has."""

    @classmethod
    @abstractmethod
    def sample(cls, plan: Plan, rng: Random) -> Sample:
        """One search under the plan's rule, as a sweep would make it, for an attack."""

    @classmethod
    @abstractmethod
    def released_runs(cls, plan: Plan, alone: Trial) -> tuple[Trial, ...]:
        """The runs that an attacker sees, where `alone` is the point that costs most."""


def search_of(plan: Plan, folder: SweepFolder) -> PlannedSearch:
    """The search of this plan; raises `BadInput` if the plan does not pay for what its rule runs."""
    return kind_of(plan)(plan=plan, folder=folder)


def kind_of(plan: Plan) -> type[PlannedSearch]:
    """The kind of search that this plan's price covers; raises `BadInput` if it does not pay for what its rule runs."""
    kind = _KINDS.of(plan)
    return _KINDS.keep(plan, _kind_of(plan)) if kind is None else kind


def class_of_kind(package: str, kind: str, prefix: str = "") -> type:
    """The class of a kind of search in this package: the module's name without underscores, in capitals.

    >>> class_of_kind("dpsweep.accounting.searches", "every_point").__name__
    'EveryPoint'
    """
    return cast(type, getattr(import_module(f"{package}.{kind}"), prefix + "".join(map(str.title, kind.split("_")))))


_KINDS: Recent[type[PlannedSearch]] = Recent(most=4)


def _kind_of(plan: Plan) -> type[PlannedSearch]:
    """The kind of a plan's search, for which its event is composed anew: a sweep asks for it many times."""
    rule = rule_from_config(plan.rule)
    if not plan.trials:
        raise BadInput(f"Expected plan {plan.id} to have a point, got none.")
    _require_declared_finals(plan, rule)
    search = Search(
        proposals=Proposals.FIXED if plan.proposed is None else Proposals.ADAPTIVE,
        shared=plan.shared,
        repeats=plan.repeats,
        spares=plan.spares,
    )
    rule.check(search)
    kind = rule.kind(search)
    if kind is None or not rule.pays(plan.event, plan.paid):
        raise BadInput(
            f"A sweep under {rule.name} can be planned and priced, but not run: `sweep` runs every point once, or "
            "the tries of a draw that shows the winner alone. Choose tuning=composition, tuning=disjoint or "
            "tuning=private_selection."
        )
    return class_of_kind(__package__, kind)


def _require_declared_finals(plan: Plan, rule: SelectionRule) -> None:
    """Raises `BadInput` unless the plan has the final runs that its rule pays for, on the records that it says."""
    final = rule.final_run
    if len(plan.finals) != (0 if final is None else len(plan.trials)):
        raise BadInput(f"Expected each point of plan {plan.id} to have a final run if {rule.name} pays for one.")
    if any(one.final is not None for one in plan.finals):
        raise BadInput(f"Expected no final run of plan {plan.id} to be followed by another one.")
    for use, trials in ((Use.SEARCH, plan.trials), (Use.FINAL, plan.finals)):
        part = None if final is None else final.parts[use]
        for trial in trials:
            if trial.config.get("part") != part or trial.config.get(FINAL, False) is not (use is Use.FINAL):
                raise BadInput(f"Expected trial {trial.id} to be a run of the {use} as {rule.name} pays for it.")


def verify_result(trial: Trial, result: TrialResult) -> None:
    """Raises `ContractBroken` if a finished run was not the one that its trial declares."""
    if result.status is not Status.FINISHED:
        return
    if result.event is None:
        raise BadInput(f"Expected the result of trial {trial.id} to say what ran.")
    realised = events.from_json(dict(result.event))
    if not is_charged(realised, trial.event.training, least=trial.config["steps"]):
        raise ContractBroken(f"Trial {trial.id} ran something else than was charged.")
