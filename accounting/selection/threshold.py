"""Tuning by a public threshold: the first try whose score reaches it ends the search, and only it is released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.codec import Delta, PositiveInt, Share
from dpsweep.accounting.events import build as events
from dpsweep.accounting.selection.hidden_search import DrawnTries, HiddenSearchRule, SearchEvent

NEGLIGIBLE = 1e-20
"""The tail allowed to a hard stop, as a fraction of delta: negligible even after multiplication by exp(epsilon)."""


@dataclass(frozen=True, kw_only=True)
class Threshold(HiddenSearchRule):
    """The first try whose score reaches a public `threshold`; after each try a coin of probability `gamma` gives up.

    *Guarantee*: about twice the epsilon of one run. The threshold is an accuracy known beforehand, not computed from
    these data; points come from a list made beforehand, independently and with replacement. The winner and its score
    may be released, or that there is none. `gamma` is one over the number of points if it is None. At most `limit`
    tries are made; if it is None, the limit is so high that the stop costs nothing beside `delta`, the plan's.
    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Theorem 3.1.
    """

    works: ClassVar[tuple[str, ...]] = ("liu2019private",)
    name: ClassVar[str] = "threshold"

    gamma: Share | None = None
    limit: PositiveInt | None = None
    threshold: Share
    delta: Delta

    def search_event(self, n_points: int) -> SearchEvent:
        """The first try that reaches the threshold, among those before the coin or the hard stop.

        Tries after the winner may be made or skipped: their results are never released.
        """
        gamma = 1 / n_points if self.gamma is None else float(self.gamma)
        highest = 1 if gamma == 1 else math.ceil(math.log(NEGLIGIBLE * self.delta) / math.log1p(-gamma))
        return events.above_threshold(events.no_access(), gamma=gamma, limit=self.limit or highest)

    def _tries_over_points(self, n_points: int) -> DrawnTries:
        """Drawn tries, of which the first one with a good score wins."""
        return DrawnTries(points=n_points, event=self.search_event(n_points), threshold=float(self.threshold))
