"""The training loop of every method: draw, bound, add noise, step.

What it returns as `Outcome.event` is what it did, tallied step by step where the batch is drawn and the noise
is added; the caller compares it with `Run.event`, which was declared and charged beforehand. Sums are divided
by the sampler's declared batch size, never by the number of units drawn, and an empty batch is a step like
any other. Drawn and bounded are units: single records, or patients with all of their records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

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
    def event(self) -> DpEvent:
        """What the run is declared to do to the training records."""
        step = self.sampler.event(records=self.train_records, noise_multiplier=self.noise_multiplier)
        return repeat(step, self.steps)


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """How many units the steps drew: private, for the curator's eyes only."""

    smallest: int
    mean: float
    largest: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run did: the event it realised, and how it ended."""

    event: DpEvent
    steps: int
    diverged: bool
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
) -> Outcome:
    """Trains `model` in place on `device`, calling `on_step` with the number of steps done after each.

    A step is x <- x - lr * factor * direction((sum_i h_i g_i + z) / batch_size), z ~ N(0, (noise_multiplier *
    bound)^2). A run whose parameters cease to be finite stops there and is flagged, not raised.
    """
    refuse_mixing(model, tuple(records.features.shape[1:]))
    started = perf_counter()
    trainer, sampler, records = run.trainer, run.sampler, records.to(device)
    weights = _as_one_vector(model.to(device))
    state = trainer.update.start(weights)
    ran: Counter[DpEvent] = Counter()
    drawn: list[int] = []
    diverged = False
    while len(drawn) < run.steps and not diverged:
        units = sampler.draw(records.available, run.train_records, streams.subsampling)
        index, sizes = records.members(units)
        inputs, targets = records.inputs(index, device), records.targets(index, device)
        total, _ = engine.weighted_sum(model, inputs, targets, trainer.transform, chunk, sizes)
        noise = _standard_normal(weights, streams.noise) * (run.noise_multiplier * trainer.transform.bound)
        ran[sampler.event(records=run.train_records, noise_multiplier=run.noise_multiplier)] += 1
        state, direction = trainer.update.direction(state, (total + noise) / sampler.batch_size)
        weights -= trainer.lr * run.schedule.factor(len(drawn), run.steps) * direction
        drawn.append(len(units))
        diverged = not bool(weights.isfinite().all())
        if on_step is not None:
            on_step(len(drawn))
    return Outcome(
        event=compose(repeat(event, count) for event, count in ran.items()),
        steps=len(drawn),
        diverged=diverged,
        seconds=perf_counter() - started,
        batch_sizes=BatchSizes(smallest=min(drawn), mean=sum(drawn) / len(drawn), largest=max(drawn)),
    )


def _as_one_vector(model: nn.Module) -> Tensor:
    """The trainable parameters as one vector [P], of which they become views that it moves."""
    parameters = trainable(model)
    vector = parameters_to_vector(parameters).detach()
    vector_to_parameters(vector, parameters)
    return vector


def _standard_normal(like: Tensor, rng: np.random.Generator) -> Tensor:
    """Independent standard normal noise, drawn in float32 on the CPU."""
    return torch.from_numpy(rng.standard_normal(like.numel(), dtype=np.float32)).to(like)
