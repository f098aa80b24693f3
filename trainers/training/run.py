"""What a training run is declared to be, how far it has come, and how it ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from dpsweep.accounting.events.build import DpEvent, compose, repeat
from dpsweep.accounting.numbers import fraction, non_negative, positive_int
from dpsweep.trainers.declarations.batch_sampling import Sampler, check_epochs, step_events
from dpsweep.trainers.declarations.clip_schedules import CONSTANT, noise_factors
from dpsweep.trainers.methods.interface import Trainer, check_run
from dpsweep.trainers.training.learning_curves import CurvePoint

if TYPE_CHECKING:
    from dpsweep.trainers.declarations.clip_schedules import BoundSchedule
    from dpsweep.trainers.declarations.lr_schedules import LearningRate


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run as it is declared; `train_records` is the nominal number of training units.

    `public` says that these were declared to be nobody's secret.
    `ema` is the most that the past weighs in the average of the weights that the run ends with, None for no average.
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

    def __post_init__(self) -> None:
        non_negative("noise_multiplier", self.noise_multiplier)
        positive_int("steps", self.steps)
        positive_int("train_records", self.train_records)
        if not math.isfinite(self.noise_std):
            raise ValueError(
                f"Expected noise_multiplier={self.noise_multiplier} to be 0 with gradients that nothing bounds."
            )
        if self.ema is not None:
            fraction("ema", self.ema)
        check_epochs(self.sampler, self.train_records, steps=self.steps)
        check_run(self.trainer, self.steps, self.schedule)

    @property
    def period(self) -> int:
        """How many steps are drawn, charged and ended together."""
        return self.sampler.period(self.train_records)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise in each number of a sum: 0 without noise, also where no bound is."""
        return self.noise_multiplier * self.trainer.transform.bound if self.noise_multiplier else 0.0

    @property
    def step_event(self) -> DpEvent:
        """What a period's steps at the whole bound are declared to do to the training records."""
        (event,) = self.ran({1.0: self.period})
        return event

    @property
    def event(self) -> DpEvent:
        """What the run is declared to do to the training records."""
        ran = self.ran(noise_factors(self.bounds, self.steps))
        return compose(repeat(event, count) for event, count in ran.items())

    def ran(self, noise_factors: Mapping[float, int]) -> Counter[DpEvent]:
        """What steps do to the training records, so many of each factor on the noise multiplier."""
        return step_events(
            self.sampler,
            noise_factors,
            records=self.train_records,
            noise_multiplier=self.noise_multiplier,
            public=self.public,
        )


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """How many units the steps drew: private, for the curator's eyes only."""

    smallest: int
    mean: float
    largest: int


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The sizes of the batches of so many steps, summed up."""

    steps: int = 0
    units: int = 0
    smallest: int | None = None
    largest: int = 0

    def __add__(self, more: Drawn) -> Drawn:
        known = [one.smallest for one in (self, more) if one.smallest is not None]
        return Drawn(
            steps=self.steps + more.steps,
            units=self.units + more.units,
            smallest=min(known, default=None),
            largest=max(self.largest, more.largest),
        )

    @property
    def batch_sizes(self) -> BatchSizes:
        """The sizes in three numbers; there must have been a step."""
        return BatchSizes(smallest=self.smallest or 0, mean=self.units / self.steps, largest=self.largest)


@dataclass(kw_only=True, eq=False)
class Progress:
    """How far a run has come: all that its other steps depend on, and what it did so far.

    `weights` is the model itself as one vector and has `step` steps behind it, `average` that of the weights so far
    where the run wants one, `fixed` are the tensors that training leaves alone, `state` is the update rule's. `ran`
    counts every step or epoch that touched the records, lost ones too; `drawn`, the batches, `seconds` and
    `curve`, the looks by public records, are those of the steps that are not lost. `rounded` says whether all noise
    was that of `dpsweep.trainers.noise`: False where an earlier version began the run.
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
    rounded: bool = True

    @property
    def diverged(self) -> bool:
        """Whether the weights, or their average, have ceased to be finite, after which nothing is to be learned."""
        found = [self.weights] if self.average is None else [self.weights, self.average]
        return not all(bool(tensor.isfinite().all()) for tensor in found)


class Journal(Protocol):
    """What is written down about a run that another session may have to go on with.

    *Guarantee*: how long a stretch is stands on record before its first step, whatever dies afterwards.
    """

    def begin(self, missing: int) -> int:
        """How many of the missing steps the next stretch has, at least one; raises where none may run."""
        ...

    def keep(self, progress: Progress) -> None:
        """Keeps what was reached, also in the middle of a stretch; the run itself goes on changing it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Unrecorded:
    """The journal of a run that nobody will go on with: one stretch, and nothing kept."""

    def begin(self, missing: int) -> int:
        """All of them."""
        return missing

    def keep(self, progress: Progress) -> None:
        """Keeps nothing."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run did in all of its sessions: the event it realised, and how it ended; `stopped` is before its end.

    `company` is how many runs, itself included, had the same batches: they are one mechanism together, and `event` is
    this run's part in it. `curve` are the looks by public records, each with its `step`; `rounded` is as in `Progress`.
    """

    event: DpEvent
    steps: int
    diverged: bool
    stopped: bool
    seconds: float
    batch_sizes: BatchSizes
    company: int = 1
    curve: tuple[CurvePoint, ...] = ()
    rounded: bool = True
