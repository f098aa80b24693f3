"""A mechanism on a batch of fixed size has a price only where it is one Gaussian: nothing beside it is left out."""

from __future__ import annotations

import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import compose, gaussian, noisy_max
from dpsweep.accounting.events.types import SampledWithoutReplacementDpEvent
from dpsweep.accounting.guarantee import Adjacency


@pytest.mark.parametrize("accountant", [Pld(), Rdp()], ids=["PLD", "RDP"])
def test_what_is_beside_the_gaussian_in_a_fixed_batch_is_not_left_out(accountant: Pld | Rdp) -> None:
    inner = compose([gaussian(noise_multiplier=10.0), noisy_max(noise_scale=0.01)])
    sampled = SampledWithoutReplacementDpEvent(source_dataset_size=1000, sample_size=1000, event=inner)
    with pytest.raises(UnsupportedEvent):
        accountant.epsilon(sampled, 1e-5, Adjacency.REPLACE_ONE)
