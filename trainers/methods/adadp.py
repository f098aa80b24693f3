"""ADADP's update: a learning rate that adapts to the difference between one full step and two half steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.declarations.lr_schedules import Constant, LearningRate

if TYPE_CHECKING:
    from torch import Tensor

LEAST, MOST = 0.9, 1.1
"""The smallest and the largest factor by which one iteration may change the learning rate."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Iteration:
    """The start of an iteration [..., P], its first gradient, and the current factor [..., 1] on the learning rate."""

    begin: Tensor
    gradient: Tensor
    factor: Tensor
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class HalfSteps:
    """Two half steps per iteration; their difference from one full step adapts the learning rate.

    With g the gradient at x, and h the gradient at the middle y = x - lr g / 2, an iteration ends at
    x - lr (g + h) / 2. Its error is the norm of its difference from the full step z = x - lr g, each coordinate divided
    by max(1, |z_i|); the next learning rate is lr times sqrt(tolerance / error), a factor clamped to [0.9, 1.1].
    Iterations are never rejected, whatever their error.
    Source: Koskela & Honkela 2020, Algorithm 1. The square root, which suits an error of second order in lr, and the
    tolerance of 1 are from the authors' program.
    """

    lr: float
    tolerance: float = 1.0

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("tolerance", self.tolerance)

    def start(self, weights: Tensor) -> Iteration:
        """The start of the first iteration, at the method's learning rate."""
        ones = weights.new_ones(*weights.shape[:-1], 1)
        return Iteration(begin=weights.clone(), gradient=weights.new_zeros(weights.shape), factor=ones)

    def direction(self, state: Iteration, gradient: Tensor, noise_std: Tensor) -> tuple[Iteration, Tensor]:
        """Half of the gradient, times the factor on the learning rate."""
        import torch

        direction = state.factor / 2 * gradient
        if state.steps % 2 == 0:
            return replace(state, gradient=gradient, steps=state.steps + 1), direction
        full = state.begin - self.lr * state.factor * state.gradient
        end = state.begin - self.lr * state.factor * (state.gradient + gradient) / 2
        error = torch.linalg.vector_norm((full - end) / full.abs().clamp(min=1), dim=-1, keepdim=True)
        factor = state.factor * (self.tolerance / error).sqrt().clamp(LEAST, MOST)
        return Iteration(begin=end, gradient=gradient, factor=factor, steps=state.steps + 1), direction

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError for an odd number of steps, and for a schedule that also changes the learning rate."""
        if steps % 2:
            raise ValueError(f"Expected steps={steps} to be even: an iteration of ADADP is two steps.")
        if not isinstance(schedule, Constant):
            raise ValueError(
                f"Expected lr_schedule={schedule} to be Constant(): ADADP adapts its learning rate itself."
            )
