"""The training loop of every method: draw, bound, add noise, step.

What it returns as `Outcome.event` is what it did, tallied step by step where the batch is drawn and the noise
is added; the caller compares it with `Run.event`, which was declared and charged beforehand. Sums are divided
by the sampler's declared batch size, never by the number of units drawn, and an empty batch is a step like
any other. Drawn and bounded are units: single records, or patients with all of their records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from accounting.events import DpEvent, compose, repeat
from trainers.data.records import Records
from trainers.engines.engine import Engine
from trainers.engines.gradients import trainable
from trainers.engines.isolation import refuse_mixing
from trainers.entropy import Streams
from trainers.validation import non_negative, positive_int

if TYPE_CHECKING:
    from trainers.method import Trainer
    from trainers.sampling import Sampler
    from trainers.schedules import LearningRate


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run as it is declared; `train_records` is the nominal number of training units."""

    trainer: Trainer
    sampler: Sampler
    schedule: LearningRate
    noise_multiplier: float
    steps: int
    train_records: int

    def __post_init__(self) -> None:
        non_negative("noise_multiplier", self.noise_multiplier)
        positive_int("steps", self.steps)
        positive_int("train_records", self.train_records)

    @property
    def step_event(self) -> DpEvent:
        """What one step is declared to do to the training records."""
        return self.sampler.event(records=self.train_records, noise_multiplier=self.noise_multiplier)

    @property
    def event(self) -> DpEvent:
        """What the run is declared to do to the training records."""
        return repeat(self.step_event, self.steps)


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """How many units the steps drew: private, for the curator's eyes only."""

    smallest: int
    mean: float
    largest: int


@dataclass(kw_only=True, eq=False)
class Progress:
    """How far a run has come: all that its other steps depend on, and what it did so far.

    `weights` is the model itself as one vector and has `step` steps behind it, `fixed` are the tensors that training
    leaves alone, `state` is the update rule's. `ran` counts every step that touched the records, lost ones too;
    `drawn`, how often a batch of each size was drawn, and `seconds` are those of the steps that are not lost.
    """

    weights: Tensor
    fixed: tuple[Tensor, ...]
    state: Any
    step: int = 0
    ran: Counter[DpEvent] = field(default_factory=Counter)
    drawn: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def batch_sizes(self) -> BatchSizes:
        """The sizes drawn, in three numbers."""
        units = sum(size * times for size, times in self.drawn.items())
        return BatchSizes(smallest=min(self.drawn), mean=units / self.drawn.total(), largest=max(self.drawn))


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
    """What a run did in all of its sessions: the event it realised, and how it ended; `stopped` is before its end."""

    event: DpEvent
    steps: int
    diverged: bool
    stopped: bool
    seconds: float
    batch_sizes: BatchSizes


def train(
    run: Run,
    model: nn.Module,
    engine: Engine,
    records: Records,
    streams: Streams,
    *,
    device: torch.device | str,
    chunk: int | None = None,
    on_step: Callable[[int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    journal: Journal = Unrecorded(),
    since: Progress | None = None,
) -> Outcome:
    """Trains `model` in place on `device`, calling `on_step` with the number of steps done after each.

    A step is x <- x - lr * factor * direction((sum_i h_i g_i + z) / batch_size), z ~ N(0, (noise_multiplier *
    bound)^2). A run whose parameters cease to be finite stops there and is flagged, not raised. `should_stop` is asked
    after each step; what was reached is kept then. `since` is where an earlier session left off: `streams` must be new.
    """
    refuse_mixing(model, tuple(records.features.shape[1:]))
    trainer, sampler, records = run.trainer, run.sampler, records.to(device)
    here = _begin(run, model.to(device)) if since is None else _go_on(since, model.to(device))
    started = perf_counter() - here.seconds
    diverged = stopping = False
    while here.step < run.steps and not (diverged or stopping):
        for _ in range(journal.begin(run.steps - here.step)):
            units = sampler.draw(records.available, run.train_records, streams.subsampling)
            index, sizes = records.members(units)
            inputs, targets = records.inputs(index, device), records.targets(index, device)
            total, _ = engine.weighted_sum(model, inputs, targets, trainer.transform, chunk, sizes)
            noise = _standard_normal(here.weights, streams.noise) * (run.noise_multiplier * trainer.transform.bound)
            here.ran[run.step_event] += 1
            here.state, direction = trainer.update.direction(here.state, (total + noise) / sampler.batch_size)
            here.weights -= trainer.lr * run.schedule.factor(here.step, run.steps) * direction
            here.drawn[len(units)] += 1
            here.step += 1
            diverged = not bool(here.weights.isfinite().all())
            if on_step is not None:
                on_step(here.step)
            stopping = should_stop is not None and should_stop()
            if diverged or stopping:
                break
        here.seconds = perf_counter() - started
        if here.step < run.steps and not diverged:
            journal.keep(here)
    return Outcome(
        event=compose(repeat(event, count) for event, count in here.ran.items()),
        steps=here.step,
        diverged=diverged,
        stopped=here.step < run.steps and not diverged,
        seconds=here.seconds,
        batch_sizes=here.batch_sizes,
    )


def _begin(run: Run, model: nn.Module) -> Progress:
    weights = _as_one_vector(model)
    return Progress(weights=weights, fixed=_fixed(model), state=run.trainer.update.start(weights))


def _go_on(since: Progress, model: nn.Module) -> Progress:
    """The earlier session's progress with this model for its own, whose initial weights it overwrites."""
    weights, fixed = _as_one_vector(model), _fixed(model)
    for mine, kept in zip((weights, *fixed), (since.weights, *since.fixed), strict=True):
        mine.copy_(kept)
    return replace(since, weights=weights, fixed=fixed, ran=since.ran.copy(), drawn=since.drawn.copy())


def _fixed(model: nn.Module) -> tuple[Tensor, ...]:
    """The tensors that training leaves alone: they too may have been drawn where the model was made."""
    frozen = (parameter.detach() for parameter in model.parameters() if not parameter.requires_grad)
    return *frozen, *model.buffers()


def _as_one_vector(model: nn.Module) -> Tensor:
    """The trainable parameters as one vector [P], of which they become views that it moves."""
    parameters = trainable(model)
    vector = parameters_to_vector(parameters).detach()
    vector_to_parameters(vector, parameters)
    return vector


def _standard_normal(like: Tensor, rng: np.random.Generator) -> Tensor:
    """Independent standard normal noise, drawn in float32 on the CPU."""
    return torch.from_numpy(rng.standard_normal(like.numel(), dtype=np.float32)).to(like)
