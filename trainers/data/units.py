"""Units: the people (patients, users) that records belong to, where one of them has several records.

The guarantee for a unit rests on three facts, which this module and `split` ensure. A unit's records stay together in
every sample and in the holdout. The contribution cap selects a unit's records from these records alone. Nothing about
a unit depends on another unit, so adding or removing it changes no other unit's part, records or weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dpsweep.accounting.numbers import positive_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpsweep.trainers.data.records import Records

    Index: TypeAlias = NDArray[np.int64] | NDArray[np.bool_] | slice

_KEY = b"dpsweep contribution 1"
_DIGEST_BYTES = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """The unit of each of n records.

    `names` are the units' distinct identifiers, as bytes; `of` [n] gives each record's index into them. Every unit
    has a record: a sampler would otherwise draw units that are not in the data set.
    """

    names: tuple[bytes, ...]
    of: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"Expected names={len(self.names)} identifiers to be distinct.")
        if self.of.dtype != np.int64 or self.of.ndim != 1:
            raise ValueError(f"Expected of={self.of.dtype} {self.of.shape} to be int64 [n].")
        if not np.array_equal(np.unique(self.of), np.arange(len(self.names))):
            raise ValueError(f"Expected of to name each of the {len(self.names)} units, and no others.")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of records of each unit."""
        return np.bincount(self.of, minlength=len(self))

    def select(self, index: Index) -> Units:
        """The units of the records at `index`; units without a record there are left out."""
        kept, of = np.unique(self.of[index], return_inverse=True)
        return Units(names=tuple(self.names[unit] for unit in kept), of=of.astype(np.int64, copy=False))

    def members(self, drawn: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """The records of the drawn units, unit after unit in the order drawn, and the number of records of each."""
        place = np.full(len(self), -1)
        place[drawn] = np.arange(len(drawn))
        index = np.flatnonzero(place[self.of] >= 0)
        places = place[self.of[index]]
        sizes = np.bincount(places, minlength=len(drawn))
        return index[np.argsort(places, kind="stable")], tuple(sizes.tolist())

    @property
    def weights(self) -> NDArray[np.float64]:
        """1 over the number of records of each record's unit [n]."""
        return 1 / np.bincount(self.of, minlength=len(self))[self.of]

    def means(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of each unit's records' `values` [n]."""
        return np.bincount(self.of, weights=values, minlength=len(self)) / self.sizes


def by_unit(records: Records, identifiers: Sequence[bytes], cap: int) -> Records:
    """The records with the units that `identifiers` [n] name, at most `cap` per unit; equal identifiers are one unit.

    Guarantee: a unit keeps the records whose contents have the smallest public keyed hashes. This choice is a function
    of the unit's own records alone, independent of their order and of all other units.
    """
    positive_int("cap", cap)
    places = {name: place for place, name in enumerate(dict.fromkeys(identifiers))}
    units = Units(names=tuple(places), of=np.array([places[name] for name in identifiers], dtype=np.int64))
    tags = [blake2b(content, digest_size=_DIGEST_BYTES, key=_KEY).digest() for content in records.contents()]
    order = np.array(sorted(range(len(tags)), key=lambda record: (units.of[record], tags[record])), dtype=np.int64)
    sizes = np.bincount(units.of, minlength=len(units))
    rank = np.arange(len(tags)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return replace(records, units=units).select(np.sort(order[rank < cap]))
