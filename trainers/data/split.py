"""Which private records are trained on and which are held out to score the trials.

The cost of a trial is the larger of its training and its scoring, not their sum, because the two parts are
disjoint populations. That holds only while one record's presence decides nothing about another record's part:

- ADD_OR_REMOVE_ONE: the part is a keyed hash of the record's own bytes, so adding or removing one record
  moves no other record, whatever the order of the rows. Equal records share a part.
- REPLACE_ONE: the part is a keyed hash of the record's position, so a replaced record stays where its
  forerunner was and only one of the two parts changes.

Never draw the split from a permutation or a running count: both make every record's part depend on all the
others. The key is public and fixed: the split is the same for every trial, process and machine, as the
disjointness of *all* trials' training records from the held-out ones requires.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from accounting.guarantee import Adjacency

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from trainers.data.records import Records

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

    Guarantee: each entry is a function of its own record's bytes (ADD_OR_REMOVE_ONE) or of its position
    (REPLACE_ONE) and of public constants alone.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"Expected fraction={fraction} in (0, 1).")
    threshold = int(fraction * 2 ** (8 * _DIGEST_BYTES))
    tags = _positions(len(records)) if Adjacency(adjacency) is Adjacency.REPLACE_ONE else _contents(records)
    return np.fromiter((_draw(tag) < threshold for tag in tags), dtype=np.bool_, count=len(records))


def _draw(tag: bytes) -> int:
    """A public pseudo-random integer, uniform over 64 bits, that only `tag` decides."""
    return int.from_bytes(blake2b(tag, digest_size=_DIGEST_BYTES, key=_KEY).digest(), "big")


def _positions(records: int) -> Iterator[bytes]:
    return (position.to_bytes(8, "little") for position in range(records))


def _contents(records: Records) -> Iterator[bytes]:
    """Each record's label and stored features as little-endian bytes, alike on every machine."""
    stored = records.features.cpu().numpy()
    features = stored.astype(stored.dtype.newbyteorder("<"), order="C", copy=False)
    labels = records.labels.cpu().numpy().astype("<i8")
    return (label.tobytes() + row.tobytes() for label, row in zip(labels, features, strict=True))
