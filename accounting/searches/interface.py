"""The search of a plan: its runs and their results, what its charge pays for, who won, how its folder is verified.

A kind of search is a class in a module of its own here, `EveryPoint` in `every_point`, and one in the module of that
name in `sweeper/searches`, `AdmittedEveryPoint`, which charges and starts its runs. A selection rule names its kind
(`SelectionRule.search_kind`). Nobody else asks which kind a search is, so a further kind is two files and a rule that
names them. Invariants of every kind:

* The price of a plan is the price of its event, so a plan has a search only if its event is its rule's over its points.
* What a search runs is derived from its plan, and from choices that were stored before the run that they led to.
* A winner is chosen once, by the rule: `records` reports what was chosen, and a final run is one of `Plan.final_runs`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean, median
from typing import Any, ClassVar, Self, cast

from dpsweep.accounting.codec import Stored, parse_json_file_or_none
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent, no_access
from dpsweep.accounting.ledger.book import Attempts, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.card import require_priced_card
from dpsweep.accounting.records.plan import FINAL, Block, Plan, Trial, Use, part_of_records
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.taken_steps import took_declared_steps
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.rule_words import expected_tries
from dpsweep.accounting.selection.interface import Proposals, Search, SelectionRule
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.accounting.stored_names.stored_classes import KIND


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
        return self.result.score_value if self.result is not None and self.finished else None


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
    def search_and_final_run_records(self) -> tuple[RunRecord, ...]:
        """The runs of the search, then the final run."""
        return self.rows if self.final is None else (*self.rows, self.final)


@dataclass(frozen=True, kw_only=True)
class StoredChoice(Stored):
    """What was chosen for a plan, in a file of its sweep's folder; a choice is never replaced."""

    plan: str

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The stored choice, None if there is none; refuses a damaged file."""
        return parse_json_file_or_none(path, cls.from_json)

    @classmethod
    def read_for_plan(cls, path: Path, plan: str) -> Self | None:
        """The stored choice; raises `BadInput` if it belongs to another plan than the one with this id."""
        stored = cls.read(path)
        if stored is not None and stored.plan != plan:
            raise BadInput(f"Expected {path} to be of plan {plan}; it is one of plan {stored.plan}.")
        return stored


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
    def names_of_attempts_to_charge(self) -> tuple[str, ...]:
        """The names of the attempts that the plan's charge pays for, one attempt each."""

    @property
    def number_of_unnamed_attempts_to_charge(self) -> int:
        """The further attempts, at any run, that the plan's charge pays for."""
        return self.plan.spares + bool(self.plan.final_runs)

    def declared_events(self, trials: Sequence[Trial]) -> dict[str, tuple[PlanEvent, ...]]:
        """The events of the runs by the names of their attempts: those that the charge names, and these trials."""
        finals = {final.id for final in self.plan.final_runs}
        return {
            trial.id: (PlanEvent(training=no_access(), final=trial.event) if trial.id in finals else trial.event,)
            for trial in (*self.plan.all_runs, *trials)
        }

    def number_of_unnamed_attempts_needed(self, attempts: Attempts) -> int:
        """The attempts without a name that runs to come need."""
        return 0

    @property
    @abstractmethod
    def number_of_search_runs(self) -> int:
        """The number of runs that the plan pays for, without the final run."""

    @property
    def number_of_runs(self) -> int:
        """The number of runs that the plan pays for, the final run included."""
        return self.number_of_search_runs + bool(self.plan.final_runs)

    @classmethod
    def expected_number_of_runs(cls, plan: Plan) -> float:
        """The number of runs of the search that the plan pays for, or its mean if it is drawn."""
        return expected_tries(rule_from_config(plan.rule), len(plan.trials))

    @classmethod
    @abstractmethod
    def number_of_runs_that_may_win(cls, plan: Plan) -> float:
        """An upper bound on the expected number of runs of the search that may win, without final runs.

        It follows from the plan, never from what ran.
        """

    @classmethod
    def trials_known_beforehand(cls, plan: Plan) -> tuple[Trial, ...]:
        """The runs that are known before the first one begins; empty if nothing but the search itself tells them."""
        return ()

    @classmethod
    def size_text(cls, plan: Plan) -> str:
        """The number of points that are searched, or of runs, if a sampler proposes their points."""
        points = len(set(plan.point_index_of_each_trial))
        return f"{points} point{'s' if points > 1 else ''}"

    @classmethod
    def number_of_runs_text(cls, plan: Plan) -> str:
        """How many runs the points have; empty if each has one, or if their number is secret."""
        runs, points = len(plan.trials), len(set(plan.point_index_of_each_trial))
        return f"{runs}, {runs // points} of each point" if runs > points else ""

    def killed_runs_to_repeat(self, killed: tuple[Trial, ...]) -> tuple[Trial, ...]:
        """Those of the killed runs that another attempt may replace."""
        return killed

    @abstractmethod
    def search_trials_so_far(self) -> tuple[Trial, ...]:
        """The runs of the search that are known so far."""

    @abstractmethod
    def point_index_of_each_search_run(self) -> Sequence[int]:
        """The point of each of `search_trials_so_far`, by its index in the plan."""

    @abstractmethod
    def chosen_final_run(self) -> Trial | None:
        """The final run of the winning point; None if the rule has none, or if the point is not chosen yet."""

    def search_and_final_runs(self) -> tuple[Trial, ...]:
        """The runs that may be made now: those of the search, and the final run once it is chosen."""
        final = self.chosen_final_run()
        return self.search_trials_so_far() + (() if final is None else (final,))

    def trainable_blocks(self) -> tuple[Block, ...]:
        """The blocks that jobs may train: one for each run."""
        return tuple(Block(trials=(trial,)) for trial in self.search_and_final_runs())

    def block_with_id(self, block_id: str) -> Block:
        """The block with this id; raises `BadInput` if there is none."""
        for block in self.trainable_blocks():
            if block.id == block_id:
                return block
        raise BadInput(f"Expected block={block_id} to be among what plan {self.plan.id} runs in {self.folder.root}.")

    @abstractmethod
    def read_runs_and_winner(self, account: Statement) -> Runs:
        """The runs with their results and attempts, and the winner; raises `BadInput` for a contradictory folder."""

    @abstractmethod
    def verify_runs_and_describe(self, account: Statement) -> str:
        """What the folder holds, as a sentence; raises `ContractBroken` for a run that was not paid for or declared."""

    @abstractmethod
    def verify_results_match_attempt_ends(self, ledger: Ledger) -> None:
        """Raises `ContractBroken` if a result is not the one that its attempt ended with."""

    @abstractmethod
    def charge_digest_and_folder_secret(self, account: Statement, winner: str | None) -> tuple[str, str]:
        """The digest of the charge that a release belongs to, and random bits that every copy of the folder has."""


def search_for_plan(plan: Plan, folder: SweepFolder) -> PlannedSearch:
    """The search of this plan; raises `BadInput` if the plan does not pay for what its rule runs."""
    return search_class_for_plan(plan)(plan=plan, folder=folder)


def search_class_for_plan(plan: Plan) -> type[PlannedSearch]:
    """The kind of search that this plan's price covers; raises `BadInput` if it does not pay for what its rule runs."""
    if plan.id not in _KINDS:  # a sweep asks many times, and the plan's event is composed anew
        _KINDS[plan.id] = _check_search_class(plan)
    return _KINDS[plan.id]


def declared_search_class(plan: Plan) -> type[PlannedSearch]:
    """The kind of search that the plan's rule names, whether its price covers it or not."""
    return class_of_search_kind(__package__, plan)


def class_of_search_kind(package: str, plan: Plan, prefix: str = "") -> type:
    """The class in this package of the kind of search that the plan's rule names.

    Its name is that of its module without underscores and in capitals: `EveryPoint` in `every_point`.
    """
    kind = rule_from_config(plan.rule).search_kind(_search_properties(plan))
    return cast(type, getattr(import_module(f"{package}.{kind}"), prefix + "".join(map(str.title, kind.split("_")))))


POINT_SCORES: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median}
"""What points are compared by, given the scores of a point's finished runs, by `SelectionRule.name_of_point_score`."""


def index_of_winning_run(
    rule: SelectionRule, scores: Mapping[int, float], points: Sequence[int], repeats: int = 1
) -> int | None:
    """The run that is handed over, by its place, given the scores of all finished runs; None if none has finished.

    `points` names the point of each run. The winner is a point, the first among equals, and its first finished run
    stands for it. Points with fewer scores than `repeats` win, those with the most, only if no point has all. With a
    draw, `Draw.index_of_winning_try` is asked.
    """
    finished: dict[int, list[int]] = {}
    for place, point in enumerate(points):
        if place in scores:
            finished.setdefault(point, []).append(place)
    enough, score = min(repeats, max(map(len, finished.values()), default=0)), POINT_SCORES[rule.name_of_point_score]
    able = [places for places in finished.values() if len(places) >= enough]
    best = max(able, key=lambda places: score([scores[place] for place in places]), default=None)
    return None if best is None else best[0]


_KINDS: dict[str, type[PlannedSearch]] = {}
"""By the plan's identity, which is the hash of all that the kind follows from."""


def _check_search_class(plan: Plan) -> type[PlannedSearch]:
    rule = rule_from_config(plan.rule)
    if not plan.trials:
        raise BadInput(f"Expected plan {plan.id} to have a point, got none.")
    _require_same_records(plan)
    _require_declared_final_runs(plan, rule)
    rule.check_search(_search_properties(plan))
    require_priced_card(plan)
    if not rule.runs(plan.event_without_card, plan.priced_events):
        raise BadInput(
            f"A sweep under {rule.name} can be planned and priced, but not run: `sweep` runs every point once, or "
            "the tries of a draw that shows the winner alone. Choose tuning=composition, tuning=disjoint or "
            "tuning=private_selection."
        )
    return declared_search_class(plan)


def _require_same_records(plan: Plan) -> None:
    """Raises `BadInput` unless all runs read the account's data set, cut in one way: the price takes it for granted.

    A record that one run trained on and another one scored would be in two populations. A final run on a part of its
    own may hold out others.
    """
    cuts = {json.dumps(_settings_of_records(trial.config), sort_keys=True) for trial in plan.all_runs}
    parts = {json.dumps(trial.config.get("part")) for trial in plan.all_runs}
    sets = {json.dumps(trial.config.get("dataset"), sort_keys=True) for trial in plan.all_runs}
    dataset, privacy = (plan.trials[0].config.get(name, {}) for name in ("dataset", "privacy"))
    units = dataset.get("unit", plan.unit), privacy.get("unit", plan.unit)
    named = dataset.get("name", plan.account), *units, privacy.get("adjacency", plan.adjacency)
    if len(cuts) > len(parts) or len(sets) > 1 or named != (plan.account, plan.unit, plan.unit, plan.adjacency):
        raise BadInput(
            f"Expected all runs of a plan to read the records of {plan.account} by one declaration: dataset, "
            "privacy.adjacency and the records that a score holds out are no axes. Run a sweep for each."
        )


def _settings_of_records(config: Mapping[str, Any]) -> list[Any]:
    """What determines which records there are, and which of them are held out."""
    score, privacy = config.get("score", {}), config.get("privacy", {})
    held_out = {key: value for key, value in score.items() if key in (KIND, "_target_", "fraction")}
    return [held_out, config.get("part"), privacy.get("adjacency"), privacy.get("unit")]


def _search_properties(plan: Plan) -> Search:
    """The properties of the plan's search that its rule has to cover."""
    return Search(
        proposals=Proposals.FIXED if plan.proposed is None else Proposals.ADAPTIVE,
        shared=plan.has_shared_subsamples,
        repeats=plan.least_runs_per_point,
        spares=plan.spares,
    )


def _require_declared_final_runs(plan: Plan, rule: SelectionRule) -> None:
    """Raises `BadInput` unless the plan has the final runs that its rule pays for, on the records that it says."""
    final, final_runs = rule.final_run, plan.final_runs
    if len(final_runs) != (0 if final is None else len(plan.trials)):
        raise BadInput(f"Expected each point of plan {plan.id} to have a final run if {rule.name} pays for one.")
    if any(one.final is not None for one in final_runs):
        raise BadInput(f"Expected no final run of plan {plan.id} to be followed by another one.")
    for use, trials in ((Use.SEARCH, plan.trials), (Use.FINAL, final_runs)):
        part = part_of_records(final, use)
        for trial in trials:
            if trial.config.get("part") != part or trial.config.get(FINAL, False) is not (use is Use.FINAL):
                raise BadInput(f"Expected trial {trial.id} to be a run of the {use} as {rule.name} pays for it.")


SURE = 0.05
"""The probability that the intervals of all runs that may win do not hold together."""


def is_scored_apart_from_search(plan: Plan, trial: Trial) -> bool:
    """Whether the trial is a final run on records that the search has not read: its score is the best of none."""
    return trial.config.get(FINAL, False) and rule_from_config(plan.rule).is_search_on_part_of_records


def level_of_told_interval(plan: Plan, trial: Trial) -> float:
    """The level of the interval that is told of this run if it wins, so that it holds whichever run wins.

    The runs that may win are fixed beforehand, and so is the chance of each of them to run, independently of its score:
    the chance that some run which may win misses its interval is at most the sum over all of them. A final run on the
    search's own records may win after each of them.
    """
    if is_scored_apart_from_search(plan, trial):
        return SURE
    final = plan.runs_that_may_be_handed_over[0]
    alike = final.config.get(FINAL, False) and not is_scored_apart_from_search(plan, final)
    return SURE / search_class_for_plan(plan).number_of_runs_that_may_win(plan) / (2 if alike else 1)


def verify_result_ran_as_declared(trial: Trial, result: TrialResult) -> None:
    """Raises `ContractBroken` if a finished run was not the one that its trial declares."""
    if result.status is not Status.FINISHED:
        return
    if result.event is None:
        raise BadInput(f"Expected the result of trial {trial.id} to say what ran.")
    realised = events.from_json(dict(result.event))
    if not took_declared_steps(realised, trial.event.training, least=trial.config["steps"]):
        raise ContractBroken(f"Trial {trial.id} ran something else than was charged.")
