"""Which private records are trained on and which are held out to score the trials.

The cost of a trial is the larger of its training and its scoring, not their sum, because the two parts are
disjoint populations. That holds only while one record's presence decides nothing about another record's part:

- ADD_OR_REMOVE_ONE: the part is a keyed hash of the record's own bytes, so adding or removing one record
  moves no other record, whatever the order of the rows. Equal records share a part.
- REPLACE_ONE: the part is a keyed hash of the record's position, so a replaced record stays where its
  forerunner was and only one of the two parts changes.
- Units of several records: the part is a keyed hash of the unit's identifier, so all its records share a part
  and adding or removing one unit moves no other. A replaced unit has another identifier and may change parts,
  and a position among units would shift with whoever comes before it: REPLACE_ONE is refused.

Never draw the split from a permutation or a running count: both make every record's part depend on all the
others. The key is public and fixed: the split is the same for every trial, process and machine, as the
disjointness of *all* trials' training records from the held-out ones requires.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.guarantee import Adjacency

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from dpsweep.trainers.data.records import Records

_KEY = b"dpsweep holdout 1"
_DIGEST_BYTES = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """The records to train on, the private ones held out, and the public test records."""

    train: Records
    holdout: Records | None = None
    test: Records | None = None


def hold_out(private: Records, *, fraction: float, adjacency: Adjacency, test: Records | None = None) -> Split:
    """The private records in two disjoint parts, about `fraction` of them held out."""
    held = holdout_mask(private, fraction, adjacency)
    return Split(train=private.select(~held), holdout=private.select(held), test=test)


def holdout_mask(records: Records, fraction: float, adjacency: Adjacency) -> NDArray[np.bool_]:
    """Whether each record is held out, a mask [n].

    Guarantee: each entry is a function of its own record's bytes, or of its unit's identifier where there are units
    (ADD_OR_REMOVE_ONE), or of its position (REPLACE_ONE), and of public constants alone.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"Expected fraction={fraction} in (0, 1).")
    replacing = Adjacency(adjacency) is Adjacency.REPLACE_ONE
    if records.units is not None:
        if replacing:
            raise ValueError(f"Expected adjacency={adjacency} to be {Adjacency.ADD_OR_REMOVE_ONE} for units.")
        return _held(records.units.names, fraction)[records.units.of]
    return _held(_positions(len(records)) if replacing else records.contents(), fraction)


@lru_cache(maxsize=64)
def left_by_position(records: int, fraction: float) -> int:
    """How many of so many records are not held out where positions decide: public, as their number is."""
    return records - int(_held(_positions(records), fraction).sum())


def _held(tags: Iterable[bytes], fraction: float) -> NDArray[np.bool_]:
    threshold = int(fraction * 2 ** (8 * _DIGEST_BYTES))
    return np.array([_draw(tag) < threshold for tag in tags], dtype=np.bool_)


def _draw(tag: bytes) -> int:
    """A public pseudo-random integer, uniform over 64 bits, that only `tag` decides."""
    return int.from_bytes(blake2b(tag, digest_size=_DIGEST_BYTES, key=_KEY).digest(), "big")


def _positions(records: int) -> Iterator[bytes]:
    return (position.to_bytes(8, "little") for position in range(records))
