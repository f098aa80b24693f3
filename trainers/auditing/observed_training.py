"""Training whose noisy steps an attacker observes: the loop, sampler, sums, noise and update are those of every run.

The attacker is the reader whom the price assumes: it knows the weights before each step and sees each noisy mean of
gradients. It is put between the loop and the method's update, which is post-processing, so no other code differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.methods.interface import Trainer
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.methods.updates import Update
from dpsweep.trainers.randomness import Streams
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import Sum, Sums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Outcome, Run

Observer = Callable[[Tensor, Tensor, float], None]
"""Called at each step with the weights [P] before it, its noisy mean gradient [P], and the std of the noise in it."""


def train_observed(
    runs: Sequence[Run],
    models: Sequence[nn.Module],
    sums: Sums,
    records: Records,
    streams: Sequence[Streams],
    observers: Sequence[Observer],
    *,
    device: torch.device | str,
    share: bool = False,
) -> tuple[Outcome, ...]:
    """`train_together`, with an observer for each run; the models are trained in place."""
    seen = _ObservedSums(inner=sums)
    observed = [
        replace(run, trainer=_ObservedTrainer(run.trainer, _ObservedUpdate(run.trainer.update, place, seen, observer)))
        for place, (run, observer) in enumerate(zip(runs, observers, strict=True))
    ]
    return train_together(observed, models, seen, records, streams, device=device, share=share)


@dataclass(frozen=True, kw_only=True, eq=False)
class _ObservedSums:
    """The sums of `inner`; keeps a copy of the weights at which each run's last sum was computed."""

    inner: Sums
    weights: dict[int, Tensor] = field(default_factory=dict)

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The inner sums over these models."""
        inner = self.inner.over(rows, transforms)

        def total(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            self.weights.update({row: vector.clone() for row, vector in zip(rows, weights, strict=True)})
            return inner(weights, batch, shrink)

        return total


@dataclass(frozen=True, eq=False)
class _ObservedUpdate:
    """The update of one run, whose observer sees each gradient first."""

    inner: Update[Any]
    place: int
    sums: _ObservedSums
    observer: Observer

    def start(self, weights: Tensor) -> Any:
        """The inner update's state."""
        return self.inner.start(weights)

    def direction(self, state: Any, gradient: Tensor, noise_std: Tensor) -> tuple[Any, Tensor]:
        """The inner update's direction."""
        self.observer(self.sums.weights[self.place], gradient.flatten(), float(noise_std.flatten()[0]))
        return self.inner.direction(state, gradient, noise_std)


@dataclass(frozen=True, eq=False)
class _ObservedTrainer:
    """A method with an observed update; everything else is the method's own."""

    inner: Trainer
    update: Update[Any]

    @property
    def label(self) -> str:
        """The method's label."""
        return self.inner.label

    @property
    def lr(self) -> float:
        """The method's learning rate."""
        return self.inner.lr

    @property
    def transform(self) -> GradientTransform:
        """The method's transform."""
        return self.inner.transform

    def __getattr__(self, name: str) -> Any:
        """Further attributes of the method, such as a radius."""
        return getattr(object.__getattribute__(self, "inner"), name)
