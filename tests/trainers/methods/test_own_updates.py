"""An error of a user's own update names the update and says what an update must do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from dpsweep.trainers.methods.updates import (
    Directions,
    Momentum,
    Sgd,
    Update,
    Velocity,
    first_state_of_update,
    require_finite_direction_of_each_row_alone,
)


@dataclass(frozen=True, kw_only=True)
class Misspelt(Update[None]):
    """An update with a mistake in both of its methods."""

    def start(self, weights: Tensor) -> None:
        return weights.no_such_method()  # type: ignore[no-any-return, operator]

    def direction(self, state: None, gradient: Tensor, noise_std: Tensor) -> tuple[None, Tensor]:
        return None, gradient[..., :1]


CONTRACT = (
    r"Expected update=\S*Misspelt to keep the contract of dpsweep\.trainers\.methods\.updates\.Update: start\(weights\)"
)


def test_an_error_in_an_own_update_names_it_and_the_contract() -> None:
    with pytest.raises(ValueError, match=rf"^{CONTRACT}.* AttributeError: .*no_such_method"):
        first_state_of_update(Misspelt(), torch.zeros(3))
    for updates in ([Misspelt()], [Misspelt(), Sgd()]):
        directions = Directions(updates, [None for _ in updates])
        with pytest.raises(
            ValueError, match=rf"^{CONTRACT}.* got a direction of shape \[1, 1\] for a gradient of \[1, 3\]"
        ):
            directions(torch.zeros(len(updates), 3), torch.ones(len(updates), 1))


@dataclass(frozen=True, kw_only=True)
class Given(Update[Velocity]):
    """An update whose direction is this function of the gradient and of the sum of gradients so far."""

    function: Callable[[Tensor, Tensor], Tensor]

    def start(self, weights: Tensor) -> Velocity:
        return Velocity(velocity=weights.new_zeros(weights.shape))

    def direction(self, state: Velocity, gradient: Tensor, noise_std: Tensor) -> tuple[Velocity, Tensor]:
        total = state.velocity + gradient
        return Velocity(velocity=total), self.function(gradient, total)


@dataclass(frozen=True, kw_only=True)
class BareState(Given):
    """An update whose state is a tensor."""

    def start(self, weights: Tensor) -> Velocity:
        return weights  # type: ignore[return-value]


@dataclass(kw_only=True)
class Changeable(Update[None]):
    """An update without a hash."""

    def start(self, weights: Tensor) -> None:
        return

    def direction(self, state: None, gradient: Tensor, noise_std: Tensor) -> tuple[None, Tensor]:
        return None, gradient


@pytest.mark.parametrize(
    ("update", "mistake"),
    [
        (Given(function=lambda gradient, total: gradient / 0), "ValueError: got a direction that is not finite"),
        (Given(function=lambda gradient, total: (-total).sqrt()), "ValueError: got a direction that is not finite"),
        (Given(function=lambda gradient, total: gradient - gradient.mean(0)), "ValueError: got another direction for"),
        (Given(function=lambda gradient, total: gradient - total.mean()), "ValueError: got another direction for"),
        (BareState(function=lambda gradient, total: gradient), "TypeError: must be called with a dataclass"),
        (Changeable(), "TypeError: unhashable type: 'Changeable'"),
    ],
    ids=["infinite", "nan", "rows are mixed", "states are mixed", "state is no dataclass", "no hash"],
)
def test_an_own_update_that_breaks_the_contract_is_refused(update: Update[Any], mistake: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected update=\S* to keep the contract .* alone\. {mistake}"):
        require_finite_direction_of_each_row_alone(update, 50)


def test_an_own_update_that_keeps_the_contract_is_accepted() -> None:
    state = torch.get_rng_state()
    for function in (
        lambda gradient, total: gradient + 0.5 * total,
        lambda gradient, total: gradient / total.norm(dim=-1, keepdim=True),
        lambda gradient, total: gradient + gradient.new_empty(gradient.shape).normal_(),
        lambda gradient, total: gradient.mul_(2),
    ):
        require_finite_direction_of_each_row_alone(Given(function=function), 50)
    require_finite_direction_of_each_row_alone(Momentum(), 50)
    assert torch.equal(state, torch.get_rng_state())
