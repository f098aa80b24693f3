"""The tail of a composition of privacy losses, as one tilted transform knows it (`tilted_transform.py`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Tail:
    """The composition seen through one tilt: the tail above each grid point from `first` on, and what is not known.

    With c the loss at `centre`: `mass` sums P exp(-theta (loss - c)) above a point, `weighted` the same times
    exp(-(loss - c)). Both are to be multiplied by exp(`scale`). Of delta(e), `rounding` exp(-theta (e - c) + scale) is
    not known, and `slack` of the mass; `beyond` is added.
    """

    theta: float
    interval: float
    first: int
    centre: int
    scale: float
    mass: np.ndarray
    weighted: np.ndarray
    rounding: float
    slack: float
    beyond: float

    @cached_property
    def lowest(self) -> float:
        """The smallest epsilon that is answered."""
        return self.interval * self.first

    @cached_property
    def highest(self) -> float:
        """The largest epsilon that is answered."""
        return self.interval * (self.first + len(self.mass) - 1)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds at epsilons from `lowest` to `highest`."""
        at = np.clip(np.floor(epsilons / self.interval).astype(np.int64) - self.first, 0, len(self.mass) - 1)
        return self._delta(epsilons - self.interval * self.centre, at)

    def epsilon(self, delta: float) -> float:
        """Where delta is reached between `lowest` and `highest`, rounded up."""
        points = self._points
        short = np.flatnonzero(self._delta(points, np.arange(len(points))) > delta)
        if len(short) == 0:
            return self.lowest
        at = int(short[-1])
        spread = math.exp(self.scale)
        unknown = spread * self.rounding * math.exp(-self.theta * float(points[at]))
        above = float(self.mass[at]) * (1 + self.slack) * spread + unknown + self.beyond - delta
        weighted = float(self.weighted[at]) * spread
        step = float(points[at]) + self.interval
        if above <= 0 or weighted <= 0:
            return self.interval * self.centre + (step if above > 0 else float(points[at]))
        return self.interval * self.centre + min(step, max(float(points[at]), math.log(above / weighted)))

    def doubt(self, epsilon: float) -> float:
        """How much of the delta at `epsilon`, from `lowest` to `highest`, may be rounding."""
        at = min(max(math.floor(epsilon / self.interval) - self.first, 0), len(self.mass) - 1)
        unknown = self.rounding * math.exp(-self.theta * (epsilon - self.interval * self.centre))
        return math.exp(self.scale) * (unknown + self.slack * float(self.mass[at]))

    @cached_property
    def _points(self) -> np.ndarray:
        return np.asarray(self.interval * (self.first - self.centre + np.arange(len(self.mass))))

    def _delta(self, ahead: np.ndarray, at: np.ndarray) -> np.ndarray:
        mass = self.mass[at]
        inside = np.maximum(0.0, mass - np.exp(ahead) * self.weighted[at]) + self.slack * mass
        return np.asarray(math.exp(self.scale) * (inside + self.rounding * np.exp(-self.theta * ahead)) + self.beyond)
