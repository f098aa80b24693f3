"""The split of the private records into training records and a holdout, and their disjoint parts for a final run.

The split of the private records into training records and a holdout that scores the trials.

The cost of a trial is the larger of its training and its scoring, not their sum, because the two parts are
disjoint populations. That holds only if one record's presence does not affect the part of any other record:

- ADD_OR_REMOVE_ONE: the part is a keyed hash of the record's own bytes, so adding or removing one record
  moves no other record, for every order of the rows. Equal records share a part.
- REPLACE_ONE: the part is a keyed hash of the record's position, so the replacement lies in the same part as
  the replaced record and only one of the two parts changes.
- Units of several records: the part is a keyed hash of the unit's identifier, so all its records share a part
  and adding or removing one unit moves no other. REPLACE_ONE is refused: a replaced unit has another identifier
  and may change parts, and the position of a unit would depend on the units before it.

Never draw the split from a permutation or a running count: both make every record's part depend on all the
others. The key is public and fixed, so the split is the same for every trial, process and machine: the training
records of *all* trials must be disjoint from the holdout.

Disjoint parts of the private records: one for a search, one for the final run of its winner.

A public part is a function of the record (or of its unit, or of its position) and of a public key, like its place in
the split of a score (`trainers/data/split.py`), which then divides each part. The two keys differ: with one key, the
records with the smallest hashes would be held out in one part and be missing in the other.

The sealed parts of an account are cut before every other split, in the same way and by a key of their own: nothing
trains or selects on them.

A secret part is decided by a secret coin for each record (each unit), independent of its contents and of all other
coins: amplification by subsampling holds for no less. Coins made from contents would be one coin for equal records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.codec import fraction, require_bool
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.plan import Use

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.sealed_parts import SealedParts
    from dpsweep.trainers.data.records import Records


_KEY = b"dpsweep holdout 1"
HASH_BYTES = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """The records to train on, the private ones held out, and the public test records."""

    train: Records
    holdout: Records | None = None
    test: Records | None = None


def split_off_holdout(private: Records, *, fraction: float, adjacency: Adjacency, test: Records | None = None) -> Split:
    """The split of the private records into two disjoint parts; the holdout is about `fraction` of them."""
    mask = pseudo_random_part_mask(private, fraction, adjacency)
    return Split(train=private.select(~mask), holdout=private.select(mask), test=test)


def pseudo_random_part_mask(
    records: Records, fraction: float, adjacency: Adjacency, key: bytes = _KEY
) -> NDArray[np.bool_]:
    """The mask [n] of about this fraction of the records: those of the holdout, or, by another key, of another part.

    Guarantee: each entry is a function of its own record's bytes, or of its unit's identifier where there are units
    (ADD_OR_REMOVE_ONE), or of its position (REPLACE_ONE), and of public constants alone.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"Expected fraction={fraction} in (0, 1).")
    inside = _pseudo_random_integer_of_each_unit(records, adjacency, key) < np.uint64(_threshold(fraction))
    return inside if records.units is None else inside[records.units.of]


CYCLIC_KEY = b"dpsweep cyclic 1"


def units_of_each_cyclic_part(records: Records, parts: int, adjacency: Adjacency) -> tuple[NDArray[np.int64], ...]:
    """The ascending numbers of the units in each of `parts` disjoint parts, by a public key of their own.

    Guarantee: a unit's part depends on what `pseudo_random_part_mask` depends on, and on nothing else.
    """
    if parts == 1:
        return (np.arange(records.number_of_units),)
    limits = np.array([_threshold(part / parts) for part in range(1, parts)], dtype=np.uint64)
    hashes = _pseudo_random_integer_of_each_unit(records, adjacency, CYCLIC_KEY)
    part_of_unit = np.searchsorted(limits, hashes, side="right")
    return tuple(np.flatnonzero(part_of_unit == part) for part in range(parts))


def _pseudo_random_integer_of_each_unit(records: Records, adjacency: Adjacency, key: bytes) -> NDArray[np.uint64]:
    """A public pseudo-random integer [units], from a record's bytes, its unit's identifier, or its position."""
    replacing = Adjacency(adjacency) is Adjacency.REPLACE_ONE
    if records.units is not None and replacing:
        raise ValueError(f"Expected adjacency={adjacency} to be {Adjacency.ADD_OR_REMOVE_ONE} for units.")
    if records.units is None and not replacing:
        hashes = np.ascontiguousarray(records.keyed_hashes(key, HASH_BYTES))
        return hashes.view(">u8").reshape(-1).astype(np.uint64)
    tags = _record_positions_as_bytes(len(records)) if records.units is None else records.units.names
    return np.array([_pseudo_random_integer(tag, key) for tag in tags], dtype=np.uint64)


def secret_coin_mask(records: Records, share: float, coins: bytes) -> NDArray[np.bool_]:
    """The mask [n] of the records whose secret coin, one for each record or unit, says yes; about this share of them.

    `coins` is the secret key of the pseudo-random coins, at most 64 bytes; a coin depends on nothing else than this and
    the record's position, so that equal records have independent coins.
    """
    if not 0 < share < 1:
        raise ValueError(f"Expected share={share} in (0, 1).")
    mask = _pseudo_random_mask_of_tags(_record_positions_as_bytes(records.number_of_units), share, coins)
    return mask if records.units is None else mask[records.units.of]


@lru_cache(maxsize=64)
def number_of_records_outside_position_mask(records: int, fraction: float, key: bytes = _KEY) -> int:
    """The number of records outside the mask when positions decide; public, as `records` is."""
    return records - int(_pseudo_random_mask_of_tags(_record_positions_as_bytes(records), fraction, key).sum())


SEALED_KEY = b"dpsweep sealed 1"


def number_of_sealed_part(records: Records, sealed: SealedParts, adjacency: Adjacency) -> NDArray[np.int64]:
    """The number [n] of the sealed part that each record is in, from 1; 0 for records in none.

    Guarantee: each entry depends on what `pseudo_random_part_mask` depends on, and on nothing else. Parts are disjoint.
    """
    each = sealed.share / sealed.parts
    limits = [number * each for number in range(1, sealed.parts)] + [sealed.share]
    inside = [pseudo_random_part_mask(records, limit, adjacency, SEALED_KEY) for limit in limits]
    return np.where(inside[-1], sealed.parts + 1 - np.sum(inside, axis=0), 0)


def nominal_units_outside_sealed_parts(units: int, sealed: SealedParts, adjacency: Adjacency) -> int:
    """The nominal number of units in no sealed part, at least 1; exact under REPLACE_ONE."""
    return max(1, _nominal_units_outside_part(units, sealed.share, adjacency, SEALED_KEY))


def _nominal_units_outside_part(units: int, share: float, adjacency: Adjacency, key: bytes) -> int:
    if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
        return number_of_records_outside_position_mask(units, share, key)
    return units - round(share * units)


def _pseudo_random_mask_of_tags(tags: Iterable[bytes], fraction: float, key: bytes) -> NDArray[np.bool_]:
    threshold = _threshold(fraction)
    return np.array([_pseudo_random_integer(tag, key) < threshold for tag in tags], dtype=np.bool_)


def _threshold(fraction: float) -> int:
    """The integer that a pseudo-random one is below for this fraction of the records."""
    return int(fraction * 2 ** (8 * HASH_BYTES))


def _pseudo_random_integer(tag: bytes, key: bytes) -> int:
    """A public pseudo-random integer, uniform over 64 bits, that only `tag` and the public key decide."""
    return int.from_bytes(blake2b(tag, digest_size=HASH_BYTES, key=key).digest(), "big")


def _record_positions_as_bytes(records: int) -> Iterator[bytes]:
    return (position.to_bytes(8, "little") for position in range(records))


KEY = b"dpsweep part 1"
LEAST_BYTES = 16

CONTENT_KEYS = (_KEY, KEY, SEALED_KEY)
"""The public keys by which a record's contents decide its part: of a score, of a final run, and of a card."""


@dataclass(frozen=True, kw_only=True)
class DataPart:
    """The part of the records that a run reads: about `share` of them for the search, all others for the final run.

    `secret` says that secret coins decide, which are made from random bits that are drawn once for a whole search.
    """

    share: float
    use: Use
    secret: bool = False

    def __post_init__(self) -> None:
        fraction("share", self.share)
        object.__setattr__(self, "use", Use(self.use))
        require_bool("secret", self.secret)

    def nominal_units_in_part(self, records: int, adjacency: Adjacency) -> int:
        """The nominal number of units of this part, at least 1, out of a nominal `records`.

        Under REPLACE_ONE the number of records is public, and this number is exact.
        """
        if self.secret and Adjacency(adjacency) is Adjacency.REPLACE_ONE:
            raise BadInput(f"Expected privacy.adjacency={adjacency} to be add_or_remove_one with a secret part.")
        rest = _nominal_units_outside_part(records, self.share, adjacency, KEY)
        return max(1, rest if self.use is Use.FINAL else records - rest)

    def records_in_part(self, private: Records, adjacency: Adjacency, coins: bytes = b"") -> Records:
        """The records of this part; `coins` are the random bits of a secret part, at least 128.

        Raises `ContractBroken` if a secret part has fewer, or a public part any.
        """

        if bool(coins) is not self.secret or 0 < len(coins) < LEAST_BYTES:
            raise ContractBroken(f"Expected random bits for a secret part alone, got {len(coins)} bytes of them.")
        mask = (
            secret_coin_mask(private, self.share, coins)
            if self.secret
            else pseudo_random_part_mask(private, self.share, adjacency, KEY)
        )
        return private.select(mask if self.use is Use.SEARCH else ~mask)
