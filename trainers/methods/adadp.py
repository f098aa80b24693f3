"""ADADP's update: a learning rate that adapts to how far one full step is from two half steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.declarations.lr_schedules import Constant, LearningRate

if TYPE_CHECKING:
    from torch import Tensor

LEAST, MOST = 0.9, 1.1
"""What one iteration may multiply the learning rate by."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Iteration:
    """Where an iteration begins [..., P], its first gradient, and the factor [..., 1] on the learning rate so far."""

    begin: Tensor
    gradient: Tensor
    factor: Tensor
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class HalfSteps:
    """Two half steps an iteration, after which the learning rate is changed by what one full step misses.

    With g the gradient at x, and h that at the middle y = x - lr g / 2, an iteration ends at x - lr (g + h) / 2. Its
    error is the norm of the difference from the full step x - lr g, each number of it divided by max(1, |that of the
    full step|); the next learning rate is lr times sqrt(tolerance / error), though no less than 0.9 and no more than
    1.1. Iterations are never taken back, whatever their error.
    Source: Koskela & Honkela 2020, Algorithm 1. The root, which suits an error of second order in lr, is that of the
    authors' program, as is a tolerance of 1.
    """

    lr: float
    tolerance: float = 1.0

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("tolerance", self.tolerance)

    def start(self, weights: Tensor) -> Iteration:
        """The beginning of the first iteration, at the method's own learning rate."""
        ones = weights.new_ones(*weights.shape[:-1], 1)
        return Iteration(begin=weights.clone(), gradient=weights.new_zeros(weights.shape), factor=ones)

    def direction(self, state: Iteration, gradient: Tensor, noise_std: Tensor) -> tuple[Iteration, Tensor]:
        """Half of the gradient, times the learning rate's factor."""
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
        """Raises ValueError for half an iteration, and for a second rule about the learning rate."""
        if steps % 2:
            raise ValueError(f"Expected steps={steps} to be even: an iteration of ADADP is two steps.")
        if not isinstance(schedule, Constant):
            raise ValueError(
                f"Expected lr_schedule={schedule} to be Constant(): ADADP adapts its learning rate itself."
            )
