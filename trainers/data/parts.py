"""Disjoint parts of the private records: one for a search, one for the final run of its winner.

A record's part is a function of the record (or of its unit, or of its position) and of a public key, like its place in
the split of a score (`trainers/data/split.py`), which then divides each part. The two keys differ: with one key, the
records with the smallest hashes would be held out in one part and be missing in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.numbers import fraction
from dpsweep.accounting.selection.disjoint_parts import Use

if TYPE_CHECKING:
    from dpsweep.trainers.data.records import Records

KEY = b"dpsweep part 1"


@dataclass(frozen=True, kw_only=True)
class DataPart:
    """The part of the records that a run reads: about `share` of them for the search, all others for the final run."""

    share: float
    use: Use

    def __post_init__(self) -> None:
        fraction("share", self.share)
        object.__setattr__(self, "use", Use(self.use))

    def nominal(self, records: int, adjacency: Adjacency) -> int:
        """The nominal number of units of this part, at least 1, out of a nominal `records`.

        Under REPLACE_ONE the number of records is public, and this number is exact.
        """
        from dpsweep.trainers.data.split import left_by_position

        if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
            rest = left_by_position(records, self.share, KEY)
        else:
            rest = records - round(self.share * records)
        return max(1, rest if self.use is Use.FINAL else records - rest)

    def of(self, private: Records, adjacency: Adjacency) -> Records:
        """The records of this part."""
        from dpsweep.trainers.data.split import part_mask

        search = part_mask(private, self.share, adjacency, KEY)
        return private.select(search if self.use is Use.SEARCH else ~search)
