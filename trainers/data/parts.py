"""Disjoint parts of the private records: one for a search, one for the final run of its winner.

A public part is a function of the record (or of its unit, or of its position) and of a public key, like its place in
the split of a score (`trainers/data/split.py`), which then divides each part. The two keys differ: with one key, the
records with the smallest hashes would be held out in one part and be missing in the other.

A secret part is decided by a secret coin for each record (each unit), independent of its contents and of all other
coins: amplification by subsampling holds for no less. Coins made from contents would be one coin for equal records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.numbers import fraction
from dpsweep.accounting.selection.interface import Use
from dpsweep.accounting.validation import truth

if TYPE_CHECKING:
    from dpsweep.trainers.data.records import Records

KEY = b"dpsweep part 1"
LEAST_BYTES = 16


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
        truth("secret", self.secret)

    def nominal(self, records: int, adjacency: Adjacency) -> int:
        """The nominal number of units of this part, at least 1, out of a nominal `records`.

        Under REPLACE_ONE the number of records is public, and this number is exact.
        """
        from dpsweep.trainers.data.split import left_by_position

        if self.secret and Adjacency(adjacency) is Adjacency.REPLACE_ONE:
            raise BadInput(f"Expected privacy.adjacency={adjacency} to be add_or_remove_one with a secret part.")
        if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
            rest = left_by_position(records, self.share, KEY)
        else:
            rest = records - round(self.share * records)
        return max(1, rest if self.use is Use.FINAL else records - rest)

    def of(self, private: Records, adjacency: Adjacency, coins: bytes = b"") -> Records:
        """The records of this part; `coins` are the random bits of a secret part, at least 128.

        Raises `ContractBroken` if a secret part has fewer, or a public part any.
        """
        from dpsweep.trainers.data.split import coin_mask, part_mask

        if bool(coins) is not self.secret or 0 < len(coins) < LEAST_BYTES:
            raise ContractBroken(f"Expected random bits for a secret part alone, got {len(coins)} bytes of them.")
        mask = coin_mask(private, self.share, coins) if self.secret else part_mask(private, self.share, adjacency, KEY)
        return private.select(mask if self.use is Use.SEARCH else ~mask)
