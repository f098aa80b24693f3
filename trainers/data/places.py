"""Places: where the records of a step, or of a score, lie in passes through a model, so that none displaces another.

Why this module exists: a float32 kernel rounds a row by its place in the batch and by the batch's shape. A record that
moves to another place because a neighbour was added has another gradient, whose bounded value may even turn round, and
the sum then moves by more than the bound that is charged.

Invariant: the units of a part fill some of its slots, whose number is declared (`most_units`). A step draws among all
slots, the empty ones too. So the number that joins has a law of declared numbers alone, and the number of places is
made of it. All passes have one shape, and the units that joined take places by a uniformly drawn injection; the other
places are blank. An added record fills a slot that was empty: where it joins, its place was blank without it. The
places of the others have the same law with it and without it, and at the same places a row has the same bits, whatever
the other rows hold. So the sum moves by the added record's own contribution, and a count by 1.

A data set with more units than slots is refused before the charge. A secret part, whose units are known to nobody, has
more with a probability below `NEVER`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.events.build import NEVER

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
    """The most of these units that a part has if each is in it independently with probability `rate`.

    *Guarantee*: there are more with a probability below `NEVER`, or never. The tail of a binomial law with n trials is
    P(X >= k) = I_rate(k, n - k + 1), the regularized incomplete beta function.
    """
    from scipy.special import betainc

    low, high = 0, units
    while low < high:
        most = (low + high) // 2
        # half of the probability is left for the rounding of the function
        if betainc(most + 1, units - most, rate) < NEVER / 2:
            high = most
        else:
            low = most + 1
    return low


def number_of_places(joining: int) -> int:
    """The places of a step that so many slots join: a little more than these, so that few shapes occur.

    >>> number_of_places(0), number_of_places(66), number_of_places(1003)
    (1, 72, 1024)
    """
    grain = 1 << (joining.bit_length() // 2)
    return max(1, -(-joining // grain) * grain)


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


def draw_passes(records: int, places: int, rng: np.random.Generator | None) -> NDArray[np.int64]:
    """The record at each place of the passes [passes, places], or `BLANK`; in their order without `rng`.

    *Guarantee*: with `rng` each record draws its place in a pass by itself, uniformly, and passes are added until each
    record has one. That is a uniformly drawn injection into passes without end. So an added record changes the place of
    no other: at equal shapes a kernel rounds a row by its place alone, whatever the other rows hold, and a prediction,
    even one at a tie, stays the same. No number of records is too large, and none has to be declared.
    """
    if rng is None:
        return np.pad(np.arange(records), (0, -records % places), constant_values=BLANK).reshape(-1, places)
    drawn = rng.integers(places, size=records)
    order, sizes = np.argsort(drawn, kind="stable"), np.bincount(drawn, minlength=places)
    passes = np.full((sizes.max(), places), BLANK)
    passes[np.arange(records) - np.repeat(sizes.cumsum() - sizes, sizes), drawn[order]] = order
    return passes
