"""Tuning by a public threshold: the first try that is good enough ends the search, and only that one is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsweep.accounting import numbers
from dpsweep.accounting.events import build as events
from dpsweep.accounting.selection.hidden_search import HiddenSearch, HiddenSearchRule

NEGLIGIBLE = 1e-20
"""The tail that a hard stop may have, as a part of delta: times exp(epsilon) it is still below the last digit."""


@dataclass(frozen=True, kw_only=True)
class Threshold(HiddenSearchRule):
    """The first try whose score reaches a public `threshold`; a coin of probability `gamma` gives up before.

    *Guarantee*: about twice the epsilon of one run. The threshold is an accuracy known beforehand, not read off this
    data; points come from a list made beforehand, independently and with replacement. Shown may be the winner and its
    score, or that there is none. `gamma` is one over the number of points where it is None; no more than `limit` tries
    are made, None: so many that the stop costs nothing beside `delta`, the plan's.
    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Theorem 3.1.
    """

    gamma: float | None = None
    limit: int | None = None
    threshold: float
    delta: float

    def __post_init__(self) -> None:
        if self.gamma is not None:
            numbers.share("gamma", self.gamma)
        if self.limit is not None:
            numbers.positive_int("limit", self.limit)
        numbers.share("threshold", self.threshold)
        numbers.between("delta", self.delta, above=0, below=1)

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return "threshold"

    def search(self, n_points: int) -> HiddenSearch:
        """The first good one of the tries that the coin and the hard stop allow.

        Tries after the winner may be made or spared: nobody sees them.
        """
        gamma = 1 / n_points if self.gamma is None else float(self.gamma)
        limit = self._limit(gamma) if self.limit is None else self.limit
        event = events.above_threshold(events.nothing(), gamma=gamma, limit=limit)
        return HiddenSearch(event=event, threshold=float(self.threshold))

    def _limit(self, gamma: float) -> int:
        return 1 if gamma == 1 else math.ceil(math.log(NEGLIGIBLE * self.delta) / math.log1p(-gamma))
