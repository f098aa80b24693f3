"""How a noisy mean gradient becomes a direction to step along: post-processing, free of charge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from trainers.validation import decay_rate, positive

if TYPE_CHECKING:
    from torch import Tensor

State = TypeVar("State")


class Update(Protocol[State]):
    """A rule that turns the private gradients seen so far into the next direction; it never sees the data.

    A state is None, or a frozen dataclass of tensors and numbers that a checkpoint can hold.
    """

    def start(self, gradient: Tensor) -> State:
        """The state before the first step, for gradients shaped like this one."""
        ...

    def direction(self, state: State, gradient: Tensor) -> tuple[State, Tensor]:
        """The next state, and the direction [P] whose multiple by the learning rate is subtracted."""
        ...


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Steps along the gradient itself."""

    def start(self, gradient: Tensor) -> None:
        """Nothing to remember."""
        return

    def direction(self, state: None, gradient: Tensor) -> tuple[None, Tensor]:
        """The gradient."""
        return None, gradient


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Running averages of the gradient and of its square, before the correction for their start at 0."""

    first: Tensor
    second: Tensor
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Steps along the bias-corrected mean of gradients over the root of their bias-corrected mean square.

    Source: Kingma & Ba 2015, Algorithm 1.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        decay_rate("beta1", self.beta1)
        decay_rate("beta2", self.beta2)
        positive("eps", self.eps)

    def start(self, gradient: Tensor) -> Moments:
        """Both averages at 0."""
        return Moments(first=gradient.new_zeros(gradient.shape), second=gradient.new_zeros(gradient.shape))

    def direction(self, state: Moments, gradient: Tensor) -> tuple[Moments, Tensor]:
        """The corrected mean over the root of the corrected mean square."""
        steps = state.steps + 1
        first = state.first.lerp(gradient, 1 - self.beta1)
        second = state.second.lerp(gradient.square(), 1 - self.beta2)
        root = (second / (1 - self.beta2**steps)).sqrt()
        direction = first / (1 - self.beta1**steps) / (root + self.eps)
        return Moments(first=first, second=second, steps=steps), direction
