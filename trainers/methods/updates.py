"""Update rules, which turn a noisy mean gradient into a step direction: post-processing, at no privacy cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from dpsweep.accounting.numbers import decay_rate, positive
from dpsweep.accounting.references import KINGMA_2015, MOHAPATRA_2022, Work

if TYPE_CHECKING:
    from torch import Tensor

State = TypeVar("State")


class Update(Protocol[State]):
    """A rule that turns the private gradients so far into the next direction; it never reads the data.

    A state is None, or a frozen dataclass of tensors and numbers that a checkpoint can hold. Gradients may belong to
    several runs at the same step, one row per run: the result for a row depends on that row alone.
    """

    def start(self, weights: Tensor) -> State:
        """The state before the first step, which starts from these weights [..., P]."""
        ...

    def direction(self, state: State, gradient: Tensor, noise_std: Tensor) -> tuple[State, Tensor]:
        """The next state, and the direction [..., P]; the loop subtracts the learning rate times the direction.

        `noise_std` [..., 1] is the standard deviation of the noise in each number of the gradient.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Steps along the gradient itself."""

    def start(self, weights: Tensor) -> None:
        """No state."""
        return

    def direction(self, state: None, gradient: Tensor, noise_std: Tensor) -> tuple[None, Tensor]:
        """The gradient."""
        return None, gradient


@dataclass(frozen=True, kw_only=True, eq=False)
class Velocity:
    """The sum of the gradients so far, discounted by the momentum at every step."""

    velocity: Tensor


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Heavy-ball momentum without dampening: steps along the velocity v <- momentum * v + gradient.

    Source: Yu, Zhang, Chen 2019, Equation 5.
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        decay_rate("momentum", self.momentum)

    def start(self, weights: Tensor) -> Velocity:
        """Velocity 0."""
        return Velocity(velocity=weights.new_zeros(weights.shape))

    def direction(self, state: Velocity, gradient: Tensor, noise_std: Tensor) -> tuple[Velocity, Tensor]:
        """The velocity."""
        velocity = self.momentum * state.velocity + gradient
        return Velocity(velocity=velocity), velocity


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Running averages of the gradient and of its square, before bias correction."""

    first: Tensor
    second: Tensor
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Steps along the bias-corrected mean gradient, divided by the root of the bias-corrected mean square.

    Source: Kingma & Ba 2015, Algorithm 1.
    """

    works: ClassVar[tuple[Work, ...]] = (KINGMA_2015,)

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        decay_rate("beta1", self.beta1)
        decay_rate("beta2", self.beta2)
        positive("eps", self.eps)

    def start(self, weights: Tensor) -> Moments:
        """Both averages at 0."""
        return Moments(first=weights.new_zeros(weights.shape), second=weights.new_zeros(weights.shape))

    def direction(self, state: Moments, gradient: Tensor, noise_std: Tensor) -> tuple[Moments, Tensor]:
        """The corrected mean divided by the root of the corrected mean square plus eps."""
        steps = state.steps + 1
        first = state.first.lerp(gradient, 1 - self.beta1)
        second = state.second.lerp(gradient.square(), 1 - self.beta2)
        root = (second / (1 - self.beta2**steps)).sqrt()
        direction = first / (1 - self.beta1**steps) / (root + self.eps)
        return Moments(first=first, second=second, steps=steps), direction


@dataclass(frozen=True, kw_only=True, eq=False)
class FirstMoment:
    """A running average of the gradient, before bias correction."""

    first: Tensor
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class AdamWithoutSecondMoments:
    """Steps along the bias-corrected mean gradient, divided by the limit of Adam's root when noise dominates.

    If gradients are only noise, their mean square converges to the noise's variance, and Adam's root to `noise_std`.
    Without noise, the divisor is `eps` alone.
    Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022, Theorem 7.1 and Algorithm 2.
    """

    works: ClassVar[tuple[Work, ...]] = (MOHAPATRA_2022,)

    beta1: float = 0.9
    eps: float = 1e-8

    def __post_init__(self) -> None:
        decay_rate("beta1", self.beta1)
        positive("eps", self.eps)

    def start(self, weights: Tensor) -> FirstMoment:
        """Average 0."""
        return FirstMoment(first=weights.new_zeros(weights.shape))

    def direction(self, state: FirstMoment, gradient: Tensor, noise_std: Tensor) -> tuple[FirstMoment, Tensor]:
        """The corrected mean divided by the noise's standard deviation plus eps."""
        steps = state.steps + 1
        first = state.first.lerp(gradient, 1 - self.beta1)
        return FirstMoment(first=first, steps=steps), first / (1 - self.beta1**steps) / (noise_std + self.eps)


class Directions:
    """The updates of K runs at once: one call for all runs with equal updates."""

    def __init__(self, updates: Sequence[Update[Any]], states: Sequence[Any]) -> None:
        rows: dict[Update[Any], list[int]] = {}
        for row, update in enumerate(updates):
            rows.setdefault(update, []).append(row)
        self._rows = rows
        self._states = {update: _joined([states[row] for row in own]) for update, own in rows.items()}

    def __call__(self, gradients: Tensor, noise_std: Tensor) -> Tensor:
        """The directions [K, P] for these gradients [K, P] with noise of these standard deviations [K, 1]."""
        if len(self._rows) == 1:
            (update,) = self._rows
            self._states[update], direction = update.direction(self._states[update], gradients, noise_std)
            return direction
        directions = gradients.new_empty(gradients.shape)
        for update, rows in self._rows.items():
            own = self._states[update], gradients[rows], noise_std[rows]
            self._states[update], directions[rows] = update.direction(*own)
        return directions

    def states(self) -> list[Any]:
        """The current state of each run."""
        by_row: dict[int, Any] = {}
        for update, rows in self._rows.items():
            by_row |= {row: _row(self._states[update], place) for place, row in enumerate(rows)}
        return [by_row[row] for row in sorted(by_row)]


def _joined(states: Sequence[Any]) -> Any:
    """The states of runs at the same step joined into one, with each tensor [P] as a row of [K, P]."""
    import torch

    if states[0] is None:
        return None
    joined: dict[str, Any] = {}
    for field in fields(states[0]):
        values = [getattr(state, field.name) for state in states]
        if isinstance(values[0], torch.Tensor):
            joined[field.name] = torch.stack(values)
        elif any(value != values[0] for value in values):
            raise ValueError(f"Expected {field.name}={values} of runs that are trained together to be alike.")
    return replace(states[0], **joined)


def _row(state: Any, place: int) -> Any:
    """One run's part of a joined state."""
    import torch

    if state is None:
        return None
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return replace(state, **{key: value[place] for key, value in values.items() if isinstance(value, torch.Tensor)})
