"""Tuning by random stopping (the papers' "LT"): a coin after each try, a hard stop, only the best try released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from dpsweep.accounting import validation
from dpsweep.accounting.codec import Delta, Share
from dpsweep.accounting.events import build as events
from dpsweep.accounting.selection.hidden_search import HiddenSearchRule, SearchEvent

_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class RandomStopping(HiddenSearchRule):
    """The best of a number of tries; a coin of probability `gamma` after each try, or a hard stop, ends the search.

    *Guarantee*: three times the epsilon of one run at a far smaller delta. Points come from a list made beforehand,
    independently and with replacement; the number of tries is secret. The winner and its score may be released.
    `delta` is the plan's; `delta2`, the part of it that the hard stop takes, is optimised if it is None; `gamma` is one
    over the number of points if it is None.
    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Theorem 3.4.
    """

    works: ClassVar[tuple[str, ...]] = ("liu2019private",)
    name: ClassVar[str] = "random_stopping"

    gamma: Share | None = None
    delta: Delta
    delta2: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta2 is not None:
            validation.require_number_between("delta2", self.delta2, above=0, below=self.delta)

    def search_event(self, n_points: int) -> SearchEvent:
        """The best of the tries before the coin or the hard stop; the event sets the hard stop."""
        gamma = 1 / n_points if self.gamma is None else float(self.gamma)
        delta2 = delta2_maximising_delta_of_one_run(self.delta, gamma) if self.delta2 is None else float(self.delta2)
        return events.random_stopping(events.no_access(), gamma=gamma, delta2=delta2)


@lru_cache(maxsize=256)
def delta2_maximising_delta_of_one_run(delta: float, gamma: float) -> float:
    """The delta2 that leaves one run the largest delta, that is, maximises (delta - delta2) / ceil(ln(1/delta2)/gamma).

    With u = gamma T the maximum is at (1 + u) exp(-u) = delta; the best integer T is next to that.

    >>> round(delta2_maximising_delta_of_one_run(1e-5, 0.1), 8)
    6.8e-07
    """
    u = math.log(1 / delta)
    for _ in range(100):
        u = math.log((1 + u) / delta)
    stops = [stop for stop in (math.floor(u / gamma), math.ceil(u / gamma)) if math.exp(-gamma * stop) < delta]
    best = max(stops, key=lambda stop: (delta - math.exp(-gamma * stop)) / stop)
    return math.exp(-gamma * best) * (1 + _ROUNDING)
