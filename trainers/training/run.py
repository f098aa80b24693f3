"""A training run: its declaration, its progress, its journal and its outcome."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from dpsweep.accounting.codec import fraction, non_negative, positive_int
from dpsweep.accounting.events.build import DpEvent, compose, repeat, with_rounded_noise
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.places import most_units
from dpsweep.trainers.declarations.batch_sampling import (
    Sampler,
    check_steps_are_whole_periods,
    number_of_parts,
    privacy_event_counts_of_run,
)
from dpsweep.trainers.declarations.clip_schedules import CONSTANT, step_counts_by_noise_factor
from dpsweep.trainers.declarations.correlated_noise import CorrelatedNoise, check_noise_suits_sampler
from dpsweep.trainers.methods.method import Trainer
from dpsweep.trainers.training.learning_curves import CurvePoint

if TYPE_CHECKING:
    from dpsweep.trainers.declarations.clip_schedules import BoundSchedule
    from dpsweep.trainers.declarations.lr_schedules import LearningRate


@dataclass(frozen=True, kw_only=True)
class Run:
    """The declaration of one training run; `train_records` is the nominal number of training units.

    `most_records` is the most that a part which the sampler takes in turn may have, None for that of `most_units`.
    `public` is true if the training records were declared public. `ema` is the largest weight of the past in the final
    exponential moving average of the weights, None for no average. `noise` is None if the noise of steps is
    independent. By `adjacency`, contents or positions decide the parts that a sampler takes in turn.
    """

    trainer: Trainer
    sampler: Sampler
    schedule: LearningRate
    noise_multiplier: float
    steps: int
    train_records: int
    public: bool = False
    ema: float | None = None
    bounds: BoundSchedule = CONSTANT
    noise: CorrelatedNoise | None = None
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
    most_records: int | None = None

    def __post_init__(self) -> None:
        non_negative("noise_multiplier", self.noise_multiplier)
        positive_int("steps", self.steps)
        positive_int("train_records", self.train_records)
        if not math.isfinite(self.noise_std):
            raise ValueError(f"Expected noise_multiplier={self.noise_multiplier} to be 0 with unbounded gradients.")
        if self.ema is not None:
            fraction("ema", self.ema)
        check_steps_are_whole_periods(self.sampler, self.train_records, steps=self.steps)
        self.trainer.check(self.steps, self.schedule)
        if self.noise is not None:
            check_noise_suits_sampler(self.noise, self.sampler, self.bounds)

    @property
    def noise_coefficients(self) -> tuple[float, ...]:
        """The first column of the matrix that correlates the noise of the steps; 1 alone for independent noise."""
        return (1.0,) if self.noise is None else tuple(self.noise.coefficients or ())

    @property
    def most_train_units(self) -> int:
        """The most units that each part which the sampler takes in turn may have: its slots."""
        nominal = -(-self.train_records // number_of_parts(self.sampler))
        return most_units(nominal) if self.most_records is None else self.most_records

    @property
    def steps_per_period(self) -> int:
        """The number of steps that are drawn, charged and ended together."""
        return self.sampler.steps_per_period(self.train_records)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise in each coordinate of a sum: 0 without noise, even without a bound."""
        return self.noise_multiplier * self.trainer.transform.norm_bound if self.noise_multiplier else 0.0

    @property
    def event_of_one_period(self) -> DpEvent:
        """The declared event of one period's steps on the training records, at the full bound."""
        (event,) = self.event_counts_for_noise_factors({1.0: self.steps_per_period})
        return event

    @property
    def event(self) -> DpEvent:
        """The declared event of the whole run on the training records."""
        ran = self.event_counts_for_noise_factors(step_counts_by_noise_factor(self.bounds, self.steps))
        return compose(repeat(event, count) for event, count in ran.items())

    def event_counts_for_noise_factors(self, noise_factors: Mapping[float, int]) -> Counter[DpEvent]:
        """The number of times that each event occurs, for steps by their factor on the noise multiplier."""
        return privacy_event_counts_of_run(
            self.sampler,
            noise_factors,
            records=self.train_records,
            noise_multiplier=self.noise_multiplier,
            public=self.public,
        )


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """The numbers of units that the steps drew: private, for the curator only."""

    smallest: int
    mean: float
    largest: int


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Statistics of the batch sizes of `steps` steps."""

    steps: int = 0
    units: int = 0
    smallest: int | None = None
    largest: int = 0

    def __add__(self, more: Drawn) -> Drawn:
        smallest = [part.smallest for part in (self, more) if part.smallest is not None]
        return Drawn(
            steps=self.steps + more.steps,
            units=self.units + more.units,
            smallest=min(smallest, default=None),
            largest=max(self.largest, more.largest),
        )

    @property
    def batch_size_statistics(self) -> BatchSizes:
        """The smallest, mean and largest size; at least one step is required."""
        return BatchSizes(smallest=self.smallest or 0, mean=self.units / self.steps, largest=self.largest)


@dataclass(kw_only=True, eq=False)
class Progress:
    """The state of a run after some steps: everything that later steps depend on, and a record of the past steps.

    `weights` is the model as one vector after `step` steps, `average` the running average of the weights if the run
    declares one, `fixed` the tensors that training does not change, and `state` the state of the update rule. `ran`
    counts every step or epoch that touched the records, including lost ones. `drawn` (batch sizes), `seconds` and
    `curve` (scores on public records) cover only the steps that are not lost. `moved` says which weights an update
    like the last one changes at the method's full learning rate, None before the first step of this job.
    """

    weights: Tensor
    fixed: tuple[Tensor, ...]
    state: Any
    average: Tensor | None = None
    step: int = 0
    ran: Counter[DpEvent] = field(default_factory=Counter)
    drawn: Drawn = Drawn()
    seconds: float = 0.0
    curve: tuple[CurvePoint, ...] = ()
    moved: Tensor | None = None

    @property
    def diverged(self) -> bool:
        """Whether the weights or their average are no longer finite; then training cannot continue."""
        tensors = [self.weights] if self.average is None else [self.weights, self.average]
        return not all(bool(tensor.isfinite().all()) for tensor in tensors)


class Journal(Protocol):
    """The record of a run that another job may have to continue.

    *Guarantee*: the length of an interval of steps is recorded before its first step, even if the process dies later.
    """

    def mark_next_interval(self, missing: int) -> int:
        """The number of steps in the next interval, from 1 to `missing`; raises if no step may run.

        Journals of many runs may be called in threads.
        """

    def save_progress(self, progress: Progress) -> None:
        """Saves the progress, also within an interval; the run continues to change the object."""


@dataclass(frozen=True, kw_only=True)
class Unrecorded:
    """The journal of a run that no other job continues: one interval, and nothing is saved."""

    def mark_next_interval(self, missing: int) -> int:
        """All missing steps."""
        return missing

    def save_progress(self, progress: Progress) -> None:
        """Saves nothing."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a run over all of its jobs: the event that it realised, and how it ended.

    `event` is that of exact noise, and `numbers` is how many noisy numbers each step released.
    `stopped` is true if it ended before its last step. `company` is the number of runs, itself included, with the same
    batches: together they are one mechanism, and `event` is this run's part. `curve` holds the scores on public
    records, each with its `step`; `moved` says for each trainable parameter whether its updates were large enough to
    change one of its numbers; empty if it was not looked at.
    """

    event: DpEvent
    numbers: int
    steps: int
    diverged: bool
    stopped: bool
    seconds: float
    batch_sizes: BatchSizes
    company: int = 1
    curve: tuple[CurvePoint, ...] = ()
    moved: tuple[bool, ...] = ()

    @property
    def realised_event(self) -> DpEvent:
        """The event with its rounded noise and its batches' places, as it is charged."""
        return with_rounded_noise(self.event, self.numbers)
