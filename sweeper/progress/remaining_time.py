"""The time that a sweep still takes: first as planned, then more and more by its own pace."""

from __future__ import annotations

from dataclasses import dataclass

TRUSTED = 0.03
"""The share of all steps after which the pace that was seen counts as much as the plan."""


@dataclass(kw_only=True)
class RemainingTime:
    """Estimates the rest from the planned seconds of the whole sweep, if known, and the share of steps that is done.

    The pace is that since the first new step was seen: imports and reading data before it are not taken for slow steps.

    >>> rest = RemainingTime(planned=100.0)
    >>> rest.seconds(0.0, now=0.0), rest.seconds(0.1, now=10.0), round(rest.seconds(0.5, now=30.0))
    (100.0, 90.0, 27)
    """

    planned: float | None
    _start: tuple[float, float] | None = None
    _first: tuple[float, float] | None = None

    def seconds(self, share: float, now: float) -> float | None:
        """The remaining seconds after this share of all steps; None while nothing is known."""
        self._start = self._start or (share, now)
        if self._first is None and share > self._start[0]:
            self._first = (share, now)
        pace = self._pace(self._first, share, now)
        if self.planned is None:
            pace = pace or self._pace(self._start, share, now)
            return None if pace is None else pace * (1 - share)
        planned = self.planned * (1 - share)
        if pace is None or self._first is None:
            return planned
        since = share - self._first[0]
        weight = since / (since + TRUSTED)
        return weight * pace * (1 - share) + (1 - weight) * planned

    @staticmethod
    def _pace(since: tuple[float, float] | None, share: float, now: float) -> float | None:
        """The seconds of all steps at the pace since then; None if there was no step since."""
        if since is None or share <= since[0] or now <= since[1]:
            return None
        return (now - since[1]) / (share - since[0])
