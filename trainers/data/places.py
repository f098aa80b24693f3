"""Places: where the records of a step, or of a score, lie in passes through a model, so that none displaces another.

Why this module exists: a float32 kernel rounds a row by its place in the batch and by the batch's shape. A record that
moves to another place because a neighbour was added has another gradient, whose bounded value may even turn round, and
the sum then moves by more than the bound that is charged.

Invariant: the number of places depends on declared numbers alone, all passes have one shape, and the records that are
drawn take places by a uniformly drawn injection; the other places are blank. An added record takes a place that was
blank. The places of the others have the same law with it and without it, and at the same places a row has the same
bits, whatever the other rows hold. So the sum moves by the added record's own contribution, and a count by 1.

A batch larger than its places would break this. It is impossible where all units have a place. In a step that
samples, it has a probability below `OVERFULL`, which the price adds to delta for each step. Whether it happens does not
depend on the added record, so nothing is multiplied by exp(epsilon). Both hold for parts of at most `most_units` units:
a data set with more is refused before the charge.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.rounded_noise_price import OVERFULL

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

BLANK = -1
"""The number at a place that no record has taken."""

_SHARE, _DEVIATIONS = 0.1, 4


def most_units(nominal: int) -> int:
    """The most units that a part of a nominal number of units may have: a tenth more, or four standard deviations.

    >>> most_units(100), most_units(60_000)
    (140, 66000)
    """
    return nominal + math.ceil(max(_SHARE * nominal, _DEVIATIONS * math.sqrt(nominal)))


@lru_cache(maxsize=1024)
def most_joining(units: int, rate: float) -> int:
    """The most of these units that join if each does independently with probability `rate`.

    *Guarantee*: more join with a probability below `OVERFULL`, or never. The tail of a binomial law with n trials is
    P(X >= k) = I_rate(k, n - k + 1), the regularized incomplete beta function.
    """
    from scipy.special import betainc

    low, high = 0, units
    while low < high:
        most = (low + high) // 2
        # half of the probability is left for the rounding of the function
        if betainc(most + 1, units - most, rate) < OVERFULL / 2:
            high = most
        else:
            low = most + 1
    return low


def batch_places(nominal: int, rate: float) -> int:
    """The places of a step that each of `most_units(nominal)` units joins independently with probability `rate`.

    *Guarantee*: that of `most_joining`.

    >>> batch_places(5000, 0.05), batch_places(60_000, 1000 / 60_000), batch_places(430, 1.0)
    (429, 1403, 513)
    """
    return most_joining(most_units(nominal), rate)


def draw_places(order: np.random.Generator | None, units: NDArray[np.int64], places: int) -> NDArray[np.int64]:
    """These units at uniformly drawn distinct places [places], others `BLANK`; in their order without `order`.

    More units than places take as many times the places as they need.
    """
    row: NDArray[np.int64] = draw_rows_of_places(order, units, np.array([len(units)]), places)[0]
    return row


def draw_rows_of_places(
    order: np.random.Generator | None, units: NDArray[np.int64], sizes: NDArray[np.int64], places: int
) -> NDArray[np.int64]:
    """The units of K batches, batch after batch, as rows [K, places]: each as `draw_places`, independent of the others.

    Batches of more units than places make all rows as many times as long as the largest one needs.
    """
    total = places * max(1, -(-int(sizes.max(initial=0)) // places))
    rows = np.full((len(sizes), total), BLANK, dtype=np.int64)
    rows[np.arange(total) < sizes[:, None]] = units
    return rows if order is None else order.permuted(rows, axis=1)


def spread_over_places(rows: Tensor, units: NDArray[np.int64]) -> Tensor:
    """The rows [k, ...] of the units that have a place, at their places: [places, ...], with zeros at blank ones."""
    import torch

    taken = torch.from_numpy(np.flatnonzero(units != BLANK)).to(rows.device)
    return rows.new_zeros(len(units), *rows.shape[1:]).index_copy_(0, taken, rows)
