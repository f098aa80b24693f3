"""Tuning on public data: the search reads no private record, so it costs nothing and may be released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from dpsweep.accounting import numbers
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.selection.interface import Disclosure, Draw, Search, require_points


@dataclass(frozen=True, kw_only=True)
class Public:
    """Runs every declared point once, on the public data set named `data` and on no other.

    *Guarantee*: nothing is spent, since no private record is read; the curator asserts that `data` is public, and
    reports repeat this. Hyperparameters transfer only as far as the data sets are alike. Everything may be released.
    """

    data: str

    def __post_init__(self) -> None:
        if not isinstance(self.data, str) or not self.data.strip():
            raise ValueError(f"Expected data={self.data!r} to name the public data set.")

    @property
    def name(self) -> str:
        """The rule's name in commands and reports."""
        return "public"

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """Everything: it is public already."""
        return frozenset(Disclosure)

    @property
    def execution(self) -> None:
        """None: a search on the public data set is a separate sweep."""
        return None

    def check(self, search: Search) -> None:
        """Accepts every search."""

    def expected_tries(self, n_points: int) -> float:
        """All points."""
        return float(n_points)

    def chance_of_best(self, n_points: int, share: float) -> float:
        """1: every point is tried, and best means best on the public data."""
        require_points(n_points)
        numbers.share("share", share)
        return 1.0

    def draw(self, n_points: int, rng: Random) -> Draw:
        """All points, in the order of the grid; no randomness is used."""
        require_points(n_points)
        return Draw(tries=tuple(range(n_points)))

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """No access to private records."""
        return PlanEvent(training=events.nothing())
