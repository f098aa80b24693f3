"""Tables of counts with noise on every count: their event, with the sensitivity that they have for each adjacency."""

from __future__ import annotations

import math

from dpsweep.accounting.events.build import gaussian
from dpsweep.accounting.events.match import as_gaussian_step, output_noise
from dpsweep.accounting.events.types import DpEvent, StatedGaussianDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.numbers import non_negative


def noisy_table(*, noise_std: float, adjacency: Adjacency) -> DpEvent:
    """A table of counts, each with Gaussian noise of this standard deviation; a record's row has numbers that sum to 1.

    *Guarantee*: the L2 sensitivity is 1 where a record is added or removed, and the square root of 2 where one is
    replaced. *Proof*: a record adds a vector v of numbers >= 0 whose sum is 1, so |v|^2 <= (sum of v)^2 = 1. Another
    record in its place changes the table by v - w, and |v - w|^2 = |v|^2 + |w|^2 - 2 v.w <= 2, since v.w >= 0. Both are
    attained by records in a single cell each. A quotient is rounded so that the noise never counts for more than it is.
    """
    if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
        non_negative("noise_std", noise_std)
        multiplier = math.nextafter(noise_std / math.sqrt(2), 0.0)
        return StatedGaussianDpEvent(noise_multiplier=multiplier, adjacency=Adjacency.REPLACE_ONE)
    return gaussian(noise_multiplier=noise_std)


def table_noise(event: DpEvent) -> float | None:
    """The standard deviation of the noise on each count of a noisy table, to 12 digits; None for other events."""
    step = as_gaussian_step(event)
    stated = output_noise(event)
    std = math.sqrt(2) * stated if stated is not None else None if step is None else step[1]
    return None if std is None else float(f"{std:.12g}")
