"""Tuning by the median of repeated runs: every point is run several times and paid for, and the best median wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from dpsweep.accounting.codec import PositiveInt
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.interface import Search


@dataclass(frozen=True, kw_only=True)
class MedianOfRepeats(Composition):
    """A composition in which the point with the best median score over its runs wins.

    `repeats` is the least number of runs of each point. The winner is less often a point that was lucky once than by
    single runs; the first run of the winning point is handed over, with its own score.

    *Guarantee*: that of the composition of all runs; the choice is post-processing of what is released.
    """

    name: ClassVar[str] = "median of repeats"
    name_of_point_score: ClassVar[str] = "median"

    repeats: PositiveInt = 3

    def check_search_is_covered(self, search: Search) -> None:
        """Refuses points that run less often."""
        if search.repeats < self.repeats:
            raise BadInput(f"Expected repeats={search.repeats} to be at least {self.repeats} under {self.name}.")

    def score_of_point(self, scores: Sequence[float]) -> float:
        """The median."""
        return median(scores)
