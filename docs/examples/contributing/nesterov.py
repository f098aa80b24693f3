"""Nesterov's update: steps along the velocity that the next gradient will meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsweep.accounting.codec import below_one
from dpsweep.trainers.methods.updates import Update, Velocity

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Nesterov(Update[Velocity]):
    """Steps along gradient + momentum * v, where v <- momentum * v + gradient.

    Source: Sutskever, Martens, Dahl, Hinton 2013, Section 2.
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        below_one("momentum", self.momentum)

    def start(self, weights: Tensor) -> Velocity:
        """At rest."""
        return Velocity(velocity=weights.new_zeros(weights.shape))

    def direction(self, state: Velocity, gradient: Tensor, noise_std: Tensor) -> tuple[Velocity, Tensor]:
        """The velocity's next value, looked ahead."""
        velocity = self.momentum * state.velocity + gradient
        return Velocity(velocity=velocity), gradient + self.momentum * velocity
