"""Update rules, which turn a noisy mean gradient into a step direction: post-processing, at no privacy cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from dpsweep.accounting.codec import below_one, positive
from dpsweep.trainers.declarations.lr_schedules import Constant, LearningRate
from dpsweep.trainers.user_modules import error_as_one_line, is_of_users_own_class

if TYPE_CHECKING:
    from torch import Tensor


State = TypeVar("State")


class Update(ABC, Generic[State]):
    """A rule that turns the private gradients so far into the next direction; it never reads the data.

    Every update inherits from it.

    A state is None, or a frozen dataclass of tensors and numbers that a checkpoint can hold. Gradients may belong to
    several runs at the same step, one row per run: the result for a row depends on that row alone.
    `moves_weights_alone` is true where the state relies on nothing else changing the weights between two steps.
    """

    moves_weights_alone: ClassVar[bool] = False

    @abstractmethod
    def start(self, weights: Tensor) -> State:
        """The state before the first step, which starts from these weights [..., P]."""

    @abstractmethod
    def direction(self, state: State, gradient: Tensor, noise_std: Tensor) -> tuple[State, Tensor]:
        """The next state, and the direction [..., P]; the loop subtracts the learning rate times the direction.

        `noise_std` [..., 1] is the standard deviation of the noise in each number of the gradient.
        """

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError, in one sentence, for a run with this number of steps and schedule that makes no sense."""

    def check_lr(self, lr: float) -> None:
        """Raises ValueError if the update was declared for another learning rate than the method's."""


@dataclass(frozen=True, kw_only=True)
class Sgd(Update[None]):
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
class Momentum(Update[Velocity]):
    """Heavy-ball momentum without dampening: steps along the velocity v <- momentum * v + gradient.

    Source: Yu, Zhang, Chen 2019, Equation 5.
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        below_one("momentum", self.momentum)

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

    def without_bias_of_start(self, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
        """The mean and the mean square, corrected for their start at 0."""
        return self.first / (1 - beta1**self.steps), self.second / (1 - beta2**self.steps)


@dataclass(frozen=True, kw_only=True)
class _BothMoments(Update[Moments]):
    """Steps along the bias-corrected mean gradient, scaled by the bias-corrected mean square."""

    beta1: float = 0.9
    beta2: float = 0.999

    def __post_init__(self) -> None:
        below_one("beta1", self.beta1)
        below_one("beta2", self.beta2)

    def start(self, weights: Tensor) -> Moments:
        """Both averages at 0."""
        return Moments(first=weights.new_zeros(weights.shape), second=weights.new_zeros(weights.shape))

    def direction(self, state: Moments, gradient: Tensor, noise_std: Tensor) -> tuple[Moments, Tensor]:
        """The corrected mean, scaled."""
        moments = Moments(
            first=state.first.lerp(gradient, 1 - self.beta1),
            second=state.second.lerp(gradient.square(), 1 - self.beta2),
            steps=state.steps + 1,
        )
        return moments, self._scaled(*moments.without_bias_of_start(self.beta1, self.beta2), noise_std)

    @abstractmethod
    def _scaled(self, mean: Tensor, mean_square: Tensor, noise_std: Tensor) -> Tensor:
        """The corrected mean, scaled by the corrected mean square."""


@dataclass(frozen=True, kw_only=True)
class Adam(_BothMoments):
    """Steps along the bias-corrected mean gradient, divided by the root of the bias-corrected mean square.

    Source: Kingma & Ba 2015, Algorithm 1.
    """

    works: ClassVar[tuple[str, ...]] = ("kingma2015adam",)

    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)

    def _scaled(self, mean: Tensor, mean_square: Tensor, noise_std: Tensor) -> Tensor:
        """Divided by the root of the mean square plus eps."""
        return mean / (mean_square.sqrt() + self.eps)


@dataclass(frozen=True, kw_only=True)
class AdamWithoutNoiseBias(_BothMoments):
    """Adam with the noise's variance subtracted from the mean square, which it is a constant part of.

    The difference, which may be negative by chance, is at least `least`, a mean square.
    Source: Tang, Shpilevskiy, Lecuyer 2024, Algorithm 1 (DP-AdamBC; gamma' is `least`).
    """

    works: ClassVar[tuple[str, ...]] = ("tang2024dpadambc",)

    least: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("least", self.least)

    def _scaled(self, mean: Tensor, mean_square: Tensor, noise_std: Tensor) -> Tensor:
        """Divided by the root of the mean square less the noise's variance."""
        return mean / (mean_square - noise_std.square()).clamp(min=self.least).sqrt()


@dataclass(frozen=True, kw_only=True, eq=False)
class FirstMoment:
    """A running average of the gradient, before bias correction."""

    first: Tensor
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class AdamWithoutSecondMoments(Update[FirstMoment]):
    """Steps along the bias-corrected mean gradient, divided by the limit of Adam's root when noise dominates.

    If gradients are only noise, their mean square converges to the noise's variance, and Adam's root to `noise_std`.
    Without noise, the divisor is `eps` alone.
    Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022, Theorem 7.1 and Algorithm 2.
    """

    works: ClassVar[tuple[str, ...]] = ("mohapatra2022role",)

    beta1: float = 0.9
    eps: float = 1e-8

    def __post_init__(self) -> None:
        below_one("beta1", self.beta1)
        positive("eps", self.eps)

    def start(self, weights: Tensor) -> FirstMoment:
        """Average 0."""
        return FirstMoment(first=weights.new_zeros(weights.shape))

    def direction(self, state: FirstMoment, gradient: Tensor, noise_std: Tensor) -> tuple[FirstMoment, Tensor]:
        """The corrected mean divided by the noise's standard deviation plus eps."""
        steps = state.steps + 1
        first = state.first.lerp(gradient, 1 - self.beta1)
        return FirstMoment(first=first, steps=steps), first / (1 - self.beta1**steps) / (noise_std + self.eps)


def first_state_of_update(update: Update[State], weights: Tensor) -> State:
    """The state before the first step; an error of a user's own update is a ValueError that says what it must do."""
    with _name_own_update_in_errors(update):
        return update.start(weights)


def next_state_and_direction(
    update: Update[State], state: State, gradient: Tensor, noise_std: Tensor
) -> tuple[State, Tensor]:
    """The next state and the direction, checked to have the gradient's shape; errors as in `first_state_of_update`."""
    with _name_own_update_in_errors(update):
        state, direction = update.direction(state, gradient, noise_std)
        if direction.shape != gradient.shape:
            raise ValueError(f"got a direction of shape {[*direction.shape]} for a gradient of {[*gradient.shape]}")
    return state, direction


def require_finite_direction_of_each_row_alone(update: Update[Any], parameters: int) -> None:
    """Raises ValueError unless two steps of a user's own update, of two runs at once, are finite and kept apart."""
    import torch

    if not is_of_users_own_class(update):
        return
    weights, *gradients, others = torch.randn(4, 2, parameters, generator=torch.Generator().manual_seed(0))

    def directions_of_first_run(second_gradients: Sequence[Tensor]) -> list[Tensor]:
        with torch.random.fork_rng(devices=[]):  # an update that draws random numbers draws the same ones each time
            directions = Directions([update] * 2, [first_state_of_update(update, row) for row in weights])
            pairs = zip((first for first, _ in gradients), second_gradients, strict=True)
            return [directions(torch.stack(pair), torch.ones(2, 1))[0].clone() for pair in pairs]

    with _name_own_update_in_errors(update):
        hash(update)
    once, again = directions_of_first_run([second for _, second in gradients]), directions_of_first_run(list(others))
    with _name_own_update_in_errors(update):
        if not all(direction.isfinite().all() for direction in once):
            raise ValueError("got a direction that is not finite for a random gradient")
        if not all(map(torch.allclose, once, again)):
            raise ValueError("got another direction for a run where the gradients of the run beside it were others")


@contextmanager
def _name_own_update_in_errors(update: Update[Any]) -> Iterator[None]:
    """Turns every exception of a user's own update into a ValueError with its name and the interface's contract."""
    try:
        yield
    except Exception as error:  # the user's own code may raise anything
        if not is_of_users_own_class(update):
            raise
        kind = type(update)
        raise ValueError(
            f"Expected update={kind.__module__}.{kind.__name__} to keep the contract of {Update.__module__}.Update: "
            "start(weights) gives a state, None or a dataclass of tensors, and direction(state, gradient, noise_std) "
            "gives the next state and a direction of the gradient's shape, finite, each row by the same row of state "
            f"and gradient alone. {error_as_one_line(error)}."
        ) from error


class Directions:
    """The updates of K runs at once: one call for all runs with equal updates."""

    def __init__(self, updates: Sequence[Update[Any]], states: Sequence[Any]) -> None:
        rows: dict[Update[Any], list[int]] = {}
        for row, update in enumerate(updates):
            rows.setdefault(update, []).append(row)
        self._rows = rows
        self._states = {}
        for update, own in rows.items():
            with _name_own_update_in_errors(update):
                self._states[update] = _join_states([states[row] for row in own])

    def __call__(self, gradients: Tensor, noise_std: Tensor) -> Tensor:
        """The directions [K, P] for these gradients [K, P] with noise of these standard deviations [K, 1]."""
        if len(self._rows) == 1:
            (update,) = self._rows
            self._states[update], direction = next_state_and_direction(
                update, self._states[update], gradients, noise_std
            )
            return direction
        directions = gradients.new_empty(gradients.shape)
        for update, rows in self._rows.items():
            own = self._states[update], gradients[rows], noise_std[rows]
            self._states[update], directions[rows] = next_state_and_direction(update, *own)
        return directions

    def states(self) -> list[Any]:
        """The current state of each run."""
        by_row: dict[int, Any] = {}
        for update, rows in self._rows.items():
            by_row |= {row: _state_of_run(self._states[update], place) for place, row in enumerate(rows)}
        return [by_row[row] for row in sorted(by_row)]


def _join_states(states: Sequence[Any]) -> Any:
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


def _state_of_run(state: Any, place: int) -> Any:
    """One run's part of a joined state."""
    import torch

    if state is None:
        return None
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return replace(state, **{key: value[place] for key, value in values.items() if isinstance(value, torch.Tensor)})


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
class HalfSteps(Update[Iteration]):
    """Two half steps per iteration; their difference from one full step adapts the learning rate.

    With g the gradient at x, and h the gradient at the middle y = x - lr g / 2, an iteration ends at
    x - lr (g + h) / 2. Its error is the norm of its difference from the full step z = x - lr g, each coordinate divided
    by max(1, |z_i|); the next learning rate is lr times sqrt(tolerance / error), a factor clamped to [0.9, 1.1].
    Iterations are never rejected, whatever their error.
    Source: Koskela & Honkela 2020, Algorithm 1. The square root, which suits an error of second order in lr, and the
    tolerance of 1 are from the authors' program.
    """

    moves_weights_alone: ClassVar[bool] = True
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

    def check_lr(self, lr: float) -> None:
        """Raises ValueError for another learning rate: the error of a step is relative to its own."""
        if self.lr != lr:
            raise ValueError(f"Expected update.lr={self.lr} to be lr={lr}.")
