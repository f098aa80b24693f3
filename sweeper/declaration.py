"""A resolved configuration made into declarations: everything a trial says about itself before it runs.

Instantiating is validating: a wrong type, a negative value or an unknown field is refused here, before any charge.
Declarations import no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate

from accounting import events
from accounting.errors import BadInput, DpsweepError
from accounting.events import DpEvent, PlanEvent
from accounting.guarantee import Adjacency
from trainers.bound_schedules import noise_factors
from trainers.data.dataset import nominal_units, unit_column

if TYPE_CHECKING:
    from trainers.bound_schedules import BoundSchedule
    from trainers.data.dataset import DataSet
    from trainers.losses import Loss
    from trainers.method import Trainer
    from trainers.sampling import Sampler
    from trainers.schedules import LearningRate
    from trainers.scores import Score

SAME_BOUND = {"_target_": "trainers.bound_schedules.Constant"}
"""The bounds of a configuration that names none: what never changes is no part of a trial's identity."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """How many steps lie between the checkpoints of a trial, and how often it may lose so many and go on."""

    every: int | None
    resumes: int

    def __post_init__(self) -> None:
        if self.every is not None and (not _is_integer(self.every) or self.every < 1):
            raise BadInput(f"Expected checkpoint.every={self.every!r} to be null or an integer >= 1.")
        if not _is_integer(self.resumes) or self.resumes < 0:
            raise BadInput(f"Expected checkpoint.resumes={self.resumes!r} to be an integer >= 0.")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What one trial declares, without its noise, which a plan may still have to calibrate."""

    dataset: DataSet
    loss: Loss
    trainer: Trainer
    sampler: Sampler
    schedule: LearningRate
    bounds: BoundSchedule
    score: Score
    steps: int
    checkpoints: Checkpoints
    adjacency: Adjacency

    def __post_init__(self) -> None:
        if not _is_integer(self.steps):
            raise BadInput(f"Expected steps={self.steps!r} to be an integer.")
        if self.steps < 1:
            raise BadInput(f"Expected steps={self.steps} >= 1.")
        if unit_column(self.dataset) is not None and self.adjacency is Adjacency.REPLACE_ONE:
            raise BadInput(
                f"Expected privacy.adjacency={self.adjacency} to be {Adjacency.ADD_OR_REMOVE_ONE} with a "
                f"dataset.unit_column: a {self.dataset.unit} put in another's place may be split otherwise."
            )
        if self.stretch is not None and len(noise_factors(self.bounds, self.steps)) > 1:
            raise BadInput(
                f"Expected checkpoint.every={self.checkpoints.every} to be null with bounds.noise={self.bounds.noise}: "
                "what it costs to run lost steps again depends on which steps they are."
            )

    @property
    def train_records(self) -> int:
        """The declared nominal number of training units: the public constant in the sample rate."""
        return self.score.train_records(nominal_units(self.dataset), self.adjacency)

    @property
    def stretch(self) -> int | None:
        """The steps between two checkpoints, None where there are none before the end."""
        every = self.checkpoints.every
        return None if every is None or every >= self.steps else every

    @property
    def priced_steps(self) -> int:
        """All steps of the run, and the stretch that is lost and run again where a killed trial goes on."""
        return self.steps + self.checkpoints.resumes * (self.stretch or 0)

    def training(self, noise_multiplier: float) -> DpEvent:
        """What training may do to the training records at most."""
        return _training(self.sampler, self.train_records, self.bounds, self.steps, self.priced_steps, noise_multiplier)

    def event(self, noise_multiplier: float) -> PlanEvent:
        """Training and scoring, each for its own records."""
        return PlanEvent(training=self.training(noise_multiplier), validation=self.score.event())


def declare(config: Mapping[str, Any]) -> Declaration:
    """The declarations of a resolved configuration; every mistake in it is one sentence."""
    privacy = config["privacy"]
    if privacy["adjacency"] not in list(Adjacency):
        raise BadInput(f"Expected privacy.adjacency={privacy['adjacency']!r} to be one of {', '.join(Adjacency)}.")
    seed = config["seed"]
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise BadInput(f"Expected seed={seed!r} to be null or an integer.")
    names = ("dataset", "loss", "trainer", "sampler", "schedule", "bounds", "score")
    whole = {"bounds": SAME_BOUND, **config}
    parts = {name: _declared(json.dumps(whole[name], sort_keys=True), name) for name in names}
    declaration = Declaration(
        steps=config["steps"],
        checkpoints=_checkpoints(config["checkpoint"]),
        adjacency=Adjacency(privacy["adjacency"]),
        **parts,
    )
    try:
        declaration.loss.check(declaration.dataset.classes)
        declaration.score.check(declaration.dataset.test_records)
        if config.get("bounds", SAME_BOUND) != SAME_BOUND:
            declaration.trainer.transform.shrunk(0.5)
        accesses = events.flatten(declaration.sampler.event(records=declaration.train_records, noise_multiplier=1.0))
    except ValueError as cause:
        raise BadInput(str(cause)) from cause
    if sum(count for _, count in accesses) != 1:
        raise BadInput(f"Expected sampler={config['sampler']['_target_']} to access the records once a step.")
    return declaration


def _checkpoints(config: Any) -> Checkpoints:
    try:
        return Checkpoints(**config)
    except TypeError:
        raise BadInput(f"Expected checkpoint={config!r} to have every and resumes, and nothing else.") from None


@lru_cache(maxsize=256)
def _training(
    sampler: Sampler, records: int, bounds: BoundSchedule, steps: int, priced: int, noise_multiplier: float
) -> DpEvent:
    """All steps, each at its own noise; steps beyond them are lost ones, which are all alike."""

    def step(factor: float) -> DpEvent:
        return sampler.event(records=records, noise_multiplier=noise_multiplier * factor)

    factors = noise_factors(bounds, steps)
    if len(factors) == 1:
        return events.repeat(step(*factors), priced)
    return events.compose(events.repeat(step(factor), count) for factor, count in factors.items())


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@lru_cache(maxsize=4096)
def _declared(config: str, name: str) -> Any:
    """One part of a declaration; the points of a grid share most of theirs, and all of them are frozen."""
    return build(json.loads(config), name)


def build(config: Mapping[str, Any], name: str) -> Any:
    """The object that `_target_` names with its parameters, or one sentence that says what is wrong."""
    try:
        target = get_class(config["_target_"])
        if is_dataclass(target):
            _check_fields(config, name, target.__name__, {field.name for field in fields(target)})
        return instantiate(dict(config), _convert_="all")
    except DpsweepError:
        raise
    except InstantiationException as cause:
        reason = cause.__cause__
        raise BadInput(f"{name}: {reason}" if isinstance(reason, (ValueError, TypeError)) else str(cause)) from cause
    except (ImportError, ValueError, TypeError, KeyError) as cause:
        raise BadInput(f"{name}: {cause}") from cause


def _check_fields(config: Mapping[str, Any], name: str, target: str, known: set[str]) -> None:
    for key in config:
        if key not in known and not key.startswith("_"):
            wanted = f"one of {', '.join(sorted(known))}" if known else f"left out: {target} has no such field"
            raise BadInput(f"Expected {name}.{key} to be {wanted}.")
