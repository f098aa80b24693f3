"""Tuning by the best of all points: each runs once, and only the winner is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.trial_counts import EachPoint
from dpsweep.accounting.selection.hidden_search import HiddenSearchRule, SearchEvent
from dpsweep.accounting.selection.interface import THE_WINNER, Disclosure


@dataclass(frozen=True, kw_only=True)
class BestOfGrid(HiddenSearchRule):
    """The best of all points, each of which runs exactly once; their order and number are public.

    *Guarantee*: the smaller of two prices, the composition of all runs and the envelope bound of the dearest point's
    privacy profile, which is lower for more than a few points. The losers stay secret: the winner and its score may be
    released.
    *Source*: the envelope bound (`selection_envelope.py`).
    """

    works: ClassVar[tuple[str, ...]] = ("koskela2024privacy",)
    name: ClassVar[str] = "best_of_grid"
    discloses: ClassVar[frozenset[Disclosure]] = THE_WINNER | {Disclosure.NUMBER_OF_TRIES}
    """The winner and its score, and the number of runs, which is that of the points."""

    def search_event(self, n_points: int) -> SearchEvent:
        """The best of all points."""
        return events.best_of_tries(events.no_access(), EachPoint(count=n_points))
