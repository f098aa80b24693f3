"""The plan of a sweep: its points, proposed runs, selection rule, budget and event, priced before anything runs.

A plan is frozen, serializable, and identified by the hash of its content; a sweep executes exactly the plan that was
charged, and a job trains only trials of its plan. Rules for changing this file:

* Every setting that changes an access to the data belongs into a trial's config, since a trial's identity is its hash.
  Devices, paths and Hydra's keys do not.
* The JSON form has a format number; another one is refused.
* No identity has a module's path, a field at its default, or the place of a file whose checksum it has
  (`accounting/stored_names/stored_classes.py`), so that moving a class or a file, or giving a class another field,
  changes none. The stored plan has the place that the last command named: who repeats it may name another.
* Prices are not part of the identity: a better accountant may lower a price, but the plan stays the same.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any

from dpsweep.accounting.codec import (
    OMITTED,
    Count,
    Read,
    Stored,
    from_json,
    require_json_object,
    require_list,
    to_json,
)
from dpsweep.accounting.durable_files import short_digest_of_json, write_json
from dpsweep.accounting.errors import BadInput, turn_read_errors_into_refusal
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent, PlanEvent, runs_on_shared_batches
from dpsweep.accounting.files import FORMAT, require_and_remove_format_number
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger.sealed_parts import SealedCharge
from dpsweep.accounting.records.card import Card, sealed_charge_of_config
from dpsweep.accounting.selection.interface import FinalRun
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.accounting.stored_names.format_defaults import (
    defaults_of,
    with_defaults,
    without_defaults,
)
from dpsweep.accounting.stored_names.stored_classes import (
    class_name_without_module,
    find_user_classes_and_scripts,
    identity_form_of_config_part,
    identity_form_of_trial_config,
    is_place,
    stored_form_of_config_part,
    stored_form_of_rule_with_defaults,
    stored_form_of_trial_config,
)


def is_integer_at_least(value: object, least: int) -> bool:
    """Whether a value is an integer of at least `least`, for messages that say more than a check's."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def priced_events_of_runs(
    points: Sequence[PlanEvent],
    *,
    spares: int = 0,
    turns: Sequence[Sequence[int]] | None = None,
    shared: bool = False,
) -> tuple[PlanEvent, ...]:
    """The priced events: one per point, or one per proposed run in `turns`, and one per spare attempt.

    A turn lists the points (by index) that the run may have. With `shared`, all points are trained on the same
    subsamples and are one mechanism.

    *Guarantee*: a turn costs at least as much as each of its points, and a spare attempt at least as much as each point
    of the plan, so it may be used for any of them, even if earlier scores decide. *Source*: adaptive composition of a
    number of mechanisms fixed beforehand, each within one Renyi curve (Mironov 2017, Proposition 1) or one privacy
    profile (Zhu, Dong, Wang 2022, Theorem 10) for all earlier outputs.
    """
    scored = [point.validation for point in points if point.validation is not None]
    if shared and points:
        if spares or turns is not None:
            raise BadInput("Expected shared subsamples without spare attempts and proposals: all points run at once.")
        try:
            training = runs_on_shared_batches(point.training for point in points)
        except ValueError as cause:
            one = "sampler=poisson's, with one noise multiplier throughout a run"
            raise BadInput(f"Expected shared subsamples to be {one}: no others have a price.") from cause
        worst, validation = events.worst_plan_event_per_population(points), events.compose(scored) if scored else None
        return (replace(worst, training=training, validation=validation),)
    runs = [*points]
    if turns is not None:
        costliest = events.worst_plan_event_per_population  # one event for consecutive turns with the same choice
        chosen = ((costliest([points[place] for place in choice]), alike) for choice, alike in itertools.groupby(turns))
        runs = [event for event, alike in chosen for _ in alike]
    return (*runs, *([events.worst_plan_event_per_population(points)] * spares if spares else ()))


MOST = 10**6
"""Largest number of runs that a sampler may propose."""


@dataclass(frozen=True, kw_only=True)
class Phase(Stored):
    """A number of consecutive proposed runs with one noise multiplier, which is None until it is calibrated."""

    trials: Count
    noise_multiplier: float | None


@dataclass(frozen=True, kw_only=True)
class Proposed(Stored):
    """A fixed number of runs whose points a sampler proposes, each from the scores of earlier runs.

    `sampler` is its configuration, `{"kind": tag, **fields}`, or `{"_target_": "module.Class", **fields}` for a class
    of Optuna or of the user. Without `phases`, every run may have any point.
    """

    trials: int
    sampler: Mapping[str, Any]
    phases: Annotated[tuple[Phase, ...], OMITTED] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampler", stored_form_of_config_part(self.sampler, "search"))
        if not is_integer_at_least(self.trials, 1) or self.trials > MOST:
            raise BadInput(f"Expected search.trials={self.trials!r} to be an integer from 1 to {MOST}.")
        if self.phases and sum(phase.trials for phase in self.phases) != self.trials:
            raise BadInput(f"Expected search.trials={self.trials} to be those of its phases together.")

    def allowed_point_indices_per_turn(self, noises: Sequence[float | None]) -> tuple[Sequence[int], ...]:
        """The points (by index) that each turn may have; `noises` are the points' noise multipliers."""
        if not self.phases:
            return (range(len(noises)),) * self.trials
        places = {
            phase: tuple(place for place, noise in enumerate(noises) if noise == phase.noise_multiplier)
            for phase in self.phases
        }
        return tuple(places[phase] for phase in self.phases for _ in range(phase.trials))

    def with_missing_noise_filled(self, noise: float) -> Proposed:
        """A copy with this noise multiplier in every phase that has none."""
        phases = (replace(phase, noise_multiplier=phase.noise_multiplier or noise) for phase in self.phases)
        return replace(self, phases=tuple(phases))

    def fields_for_identity(self) -> dict[str, Any]:
        """The part of a plan's identity."""
        form = self.to_json() | {"sampler": identity_form_of_config_part(self.sampler, "search")}
        return without_defaults(form, defaults_of("proposed", "parts"))

    @property
    def sampler_name(self) -> str:
        """The name of the sampler's class."""
        return class_name_without_module(self.sampler)


NO_IDENTITY = frozenset({"format", "budget", "notes", "target_epsilon"})
"""The keys of a plan's form that its identity, the hash of all others that are not at their default, leaves out."""

FINAL = "final"
"""The key of a trial that marks a final run in its configuration."""


class Use(StrEnum):
    """The use of a part of the records."""

    SEARCH = "search"
    FINAL = "final"


def part_of_records(run: FinalRun | None, use: Use) -> Mapping[str, float | str | bool] | None:
    """The part of the records that runs of this use read, as their configuration states it; None for all records."""
    if run is None or run.share is None or (run.reads_all and use is Use.FINAL):
        return None
    return {"share": run.share, "use": use.value} | ({"secret": True} if run.is_secret else {})


REPEAT = "repeat"
"""The key of the number of a repeat, in the configuration of a point that is run several times."""
Value = float | int | str | bool | None


@dataclass(frozen=True, kw_only=True)
class Trial(Stored):
    """One point: a method with its hyperparameters on a data set, and the event of its run.

    `config` is the resolved configuration without devices and Hydra's keys, with classes as tags; `id` is the hash of
    its identity form. `axes` holds the swept keys with this point's values. `final` is the run that follows the search
    if this point wins, under a rule with a final run.
    """

    method: str
    axes: Annotated[Mapping[str, Value], Read(read=require_json_object)]
    config: Mapping[str, Any]
    event: PlanEvent
    final: Annotated[Trial | None, OMITTED] = None

    def __post_init__(self) -> None:
        config = with_defaults(self.config, defaults_of("trial", "parts"))
        object.__setattr__(self, "config", stored_form_of_trial_config(config))

    @cached_property
    def id(self) -> str:
        """Identity of the point: the hash of its configuration."""
        return short_digest_of_json({"config": self.config_for_identity})

    @cached_property
    def config_for_identity(self) -> Mapping[str, Any]:
        """The part of the configuration that the identity is the hash of."""
        return identity_form_of_trial_config(self.config)

    @property
    def priced_steps(self) -> int:
        """The number of training steps that the charge covers."""
        return events.number_of_steps(self.event.training)

    @property
    def swept_values_and_repeat(self) -> dict[str, Value]:
        """The swept values, and the number of the repeat if the point is repeated."""
        return dict(self.axes) | ({REPEAT: self.config[REPEAT]} if REPEAT in self.config else {})

    @property
    def is_reproducible_from_seed(self) -> bool:
        """Whether all randomness follows from a declared seed, so that whoever knows it can subtract the noise."""
        return self.config.get("seed") is not None

    @property
    def event_with_final_run(self) -> PlanEvent:
        """The event that a rule is priced over: that of the run, and that of the final run if there may be one."""
        return self.event if self.final is None else replace(self.event, final=self.final.event_with_final_run)

    def fields_for_identity(self) -> dict[str, Any]:
        """The part of a plan's identity."""
        final = {} if self.final is None else {"final": self.final.fields_for_identity()}
        axes = {key: value for key, value in self.axes.items() if not is_place(self.config, key)}
        return self.to_json() | {"axes": axes, "config": self.config_for_identity} | final

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal trial."""
        return {"id": self.id} | to_json(self)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Trial:
        """Reads `to_json`'s form; refuses an edited trial, whose id is not the hash of its config."""
        trial = from_json(cls, {key: value for key, value in form.items() if key != "id"})
        if trial.id != form["id"]:
            raise BadInput(f"Expected trial id={form['id']} to be {trial.id}: it was edited after planning.")
        return trial


@dataclass(frozen=True, kw_only=True)
class Block(Stored):
    """Points that may be trained together: they have the same data, model and shapes and differ in numbers.

    With `shared` they must be trained together, with one subsample for all at every step.
    """

    trials: tuple[Trial, ...]
    shared: bool = False

    @cached_property
    def id(self) -> str:
        """Identity of the block; a block with one point has the identity of the point."""
        ids = [trial.id for trial in self.trials]
        return ids[0] if len(ids) == 1 else short_digest_of_json(ids)


@dataclass(frozen=True, kw_only=True)
class Plan(Stored):
    """Points x rule x budget, and the event of the whole search.

    `account` is the name of the ledger's account, `budget` its budget by the data set's declaration. `rule` is the
    selection rule's configuration. `delta` is this plan's share. `target_epsilon` is the user's target, None if the
    user set the noise. `proposed` declares the proposed runs, None if every point runs or the rule draws them.
    `spares` is the number of attempts that are charged beforehand to replace killed ones. `card` is the query about the
    model that is handed over, None without one. `about` says whose data these are, in the user's words.
    """

    account: str
    budget: Guarantee
    delta: float
    rule: Mapping[str, Any]
    blocks: tuple[Block, ...]
    proposed: Proposed | None = None
    event: PlanEvent
    spares: Count = 0
    card: Annotated[Card | None, OMITTED] = None
    about: Annotated[str, OMITTED] = ""
    target_epsilon: float | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", stored_form_of_rule_with_defaults(self.rule))

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """All points, in the order of the blocks."""
        return tuple(trial for block in self.blocks for trial in block.trials)

    @cached_property
    def point_index_of_each_trial(self) -> Sequence[int]:
        """The point of each trial, as the place of its first repeat: a repeat is another run of the same point."""
        if not any(REPEAT in trial.config for trial in self.trials):
            return range(len(self.trials))
        first: dict[str, int] = {}
        points = ({**trial.config_for_identity, REPEAT: None} for trial in self.trials)
        return tuple(first.setdefault(short_digest_of_json(point), place) for place, point in enumerate(points))

    @property
    def least_runs_per_point(self) -> int:
        """The least number of runs of a point."""
        return min(Counter(self.point_index_of_each_trial).values(), default=1)

    @property
    def final_runs(self) -> tuple[Trial, ...]:
        """The final run of each point, of which one is made after the search; empty if the rule has no final run."""
        return tuple(trial.final for trial in self.trials if trial.final is not None)

    @property
    def runs_that_may_be_handed_over(self) -> tuple[Trial, ...]:
        """The runs of which the winner is one: the final runs if the rule has them, else the points."""
        return self.final_runs or self.trials

    @property
    def all_runs(self) -> tuple[Trial, ...]:
        """All points, then their final runs."""
        return self.trials + self.final_runs

    @property
    def has_reproducible_run(self) -> bool:
        """Whether a run has a declared seed."""
        return any(trial.is_reproducible_from_seed for trial in self.trials)

    @cached_property
    def names_of_user_classes_and_scripts(self) -> frozenset[str]:
        """The user's classes and scripts that the points name; none is run unless the command line names it."""
        return frozenset(name for trial in self.all_runs for name in find_user_classes_and_scripts(trial.config))

    @property
    def has_shared_subsamples(self) -> bool:
        """Whether all points are trained on the same subsamples; then they are one block."""
        return any(block.shared for block in self.blocks)

    @cached_property
    def priced_events(self) -> tuple[PlanEvent, ...]:
        """The events that the rule is priced over (`priced_events_of_runs`)."""
        events = [trial.event_with_final_run for trial in self.trials]
        turns = self.allowed_point_indices_per_turn or None
        return priced_events_of_runs(events, spares=self.spares, turns=turns, shared=self.has_shared_subsamples)

    @property
    def required_proposals(self) -> Proposed:
        """The proposed runs of a plan that has some."""
        if self.proposed is None:
            raise BadInput(f"Expected plan {self.id} to say how many runs are proposed.")
        return self.proposed

    @cached_property
    def allowed_point_indices_per_turn(self) -> tuple[Sequence[int], ...]:
        """The points (by index) that each turn may have; empty if no runs are proposed."""
        if self.proposed is None:
            return ()
        noises = [trial.config.get("privacy", {}).get("noise_multiplier") for trial in self.trials]
        return self.proposed.allowed_point_indices_per_turn(noises)

    @property
    def event_without_card(self) -> PlanEvent:
        """The event of the search alone, as its rule composes it."""
        return replace(self.event, sealed=None)

    @property
    def query_of_card(self) -> DpEvent | None:
        """The event of the card's query; None without a card, and for one on public records."""
        return None if self.card is None else self.card.query(self.adjacency)

    @cached_property
    def sealed_charge(self) -> SealedCharge | None:
        """What a charge of the plan says of sealed parts; None if its runs leave no unit out."""
        return sealed_charge_of_config(self.trials[0].config, with_card=self.card is not None)

    @property
    def has_public_data(self) -> bool:
        """Whether the data were declared public: then any price is allowed, and no record is protected."""
        return self.budget.promises_nothing

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of data sets."""
        return self.budget.adjacency

    @property
    def unit(self) -> str:
        """The unit that the guarantee protects."""
        return self.budget.unit

    @cached_property
    def id(self) -> str:
        """Identity of the plan: the hash of all that is run and charged, without prices and notes."""
        form = self.to_json() | {
            "rule": identity_form_of_config_part(self.rule, "rule"),
            "blocks": [[trial.fields_for_identity() for trial in block.trials] for block in self.blocks],
            "proposed": None if self.proposed is None else self.proposed.fields_for_identity(),
        }
        identity = {key: value for key, value in form.items() if key not in NO_IDENTITY}
        return short_digest_of_json(without_defaults(identity, defaults_of("plan", "parts")))

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal plan."""
        form = to_json(self)
        neighbours = {key: form["budget"].pop(key) for key in ("adjacency", "unit")}
        blocks = {"blocks": [block["trials"] for block in form["blocks"]], "shared": self.has_shared_subsamples}
        return {"format": FORMAT} | form | neighbours | blocks

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Plan:
        """Reads `to_json`'s form, also with an id, which is not compared; refuses another format."""
        fields = dict(require_and_remove_format_number("the plan", form))
        fields.pop("id", None)
        shared, limits = fields.pop("shared"), require_json_object("budget", fields["budget"])
        if limits.keys() != {"epsilon", "delta"}:
            raise ValueError(f"Expected budget={limits!r} to be an epsilon and a delta.")
        fields["budget"] = {**limits, "adjacency": fields.pop("adjacency"), "unit": fields.pop("unit")}
        fields["blocks"] = [{"trials": block, "shared": shared} for block in require_list("blocks", fields["blocks"])]
        return from_json(cls, fields)

    def write(self, path: Path) -> None:
        """Stores the plan with its id, atomically."""
        write_json(path, self._stored_form_with_id, indent=None)

    def require_no_other_plan_in_file(self, path: Path) -> None:
        """Raises `BadInput` if the file at `path` holds another plan; one as `write` wrote it is not parsed."""
        written = json.dumps(self._stored_form_with_id, allow_nan=False).encode()
        if path.exists() and path.read_bytes() != written and (earlier := Plan.read(path).id) != self.id:
            raise BadInput(f"Expected {path.parent} to be empty or hold plan {self.id}; it holds plan {earlier}.")

    @cached_property
    def _stored_form_with_id(self) -> dict[str, Any]:
        return {"id": self.id} | self.to_json()

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Reads a stored plan; refuses an edited one, whose id is not the hash of its content.

        Raises `OSError` if the file cannot be read, for example because its disk is not mounted.
        """
        return _parse_plan(path.read_bytes(), path)


@lru_cache(maxsize=1)
def _parse_plan(content: bytes, path: Path) -> Plan:
    """The plan in a file with this content: a process that runs several jobs of one plan parses it once."""
    with turn_read_errors_into_refusal(f"plan={path}"):
        form = json.loads(content)
        plan = Plan.from_json(form)
        rule_from_config(plan.rule).require_priced_populations(trial.event_with_final_run for trial in plan.trials)
        if plan.id != form["id"]:
            raise BadInput(f"Expected plan id={form['id']} to be {plan.id}: {path} was edited after it was charged.")
    return plan
