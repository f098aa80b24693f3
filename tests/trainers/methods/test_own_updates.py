"""An error of a user's own update names the update and says what an update must do."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from dpsweep.trainers.methods.updates import Directions, Sgd, Update, first_state_of_update


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
