"""The tail of a composition of privacy losses, as computed by one tilted transform (`tilted_transform.py`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

LOG_MOMENT = 1e-6
"""More than the rounding of the log-moment of a composition: a few units for each of at most millions of steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tail:
    """The tail of a composition above each grid point from `first`, at one tilt, with bounds on its errors.

    With c the loss at `centre`: `mass` sums P exp(-theta (loss - c)) above a point, and `weighted` sums the same times
    exp(-(loss - c)). Both must be multiplied by exp(`scale`). The error of delta(e) is at most `rounding` exp(-theta (e
    - c) + scale) plus the fraction `slack` of the mass; `beyond` is added for losses that are infinite or above
    the window, and the tilted mass `wrapped` may come from losses outside it.
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
    wrapped: float

    @cached_property
    def lowest(self) -> float:
        """The smallest epsilon that this tail covers."""
        return self.interval * self.first

    @cached_property
    def highest(self) -> float:
        """The largest epsilon that this tail covers."""
        return self.interval * (self.first + len(self.mass) - 1)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds at epsilons from `lowest` to `highest`."""
        at = np.clip(np.floor(epsilons / self.interval).astype(np.int64) - self.first, 0, len(self.mass) - 1)
        return self._delta(epsilons - self.interval * self.centre, at)

    def chernoff(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds at any epsilons: exp(log-moment - theta epsilon), Chernoff's bound on larger losses."""
        exponents = self.scale - self.theta * (epsilons - self.interval * self.centre)
        return np.asarray(np.exp(np.minimum(0.0, exponents + LOG_MOMENT)) + self.beyond)

    def chernoff_epsilon(self, delta: float) -> float:
        """The epsilon at which Chernoff's bound reaches delta; infinity without a tilt."""
        if self.theta == 0 or delta <= self.beyond:
            return math.inf
        bound = (self.scale + LOG_MOMENT - math.log(delta - self.beyond)) / self.theta
        return max(0.0, self.interval * self.centre + bound * (1 + 1e-12))

    def epsilon(self, delta: float) -> float:
        """The epsilon between `lowest` and `highest` at which the bound reaches delta, rounded up."""
        points = self._points
        too_small = np.flatnonzero(self._delta(points, np.arange(len(points))) > delta)
        if len(too_small) == 0:
            return self.lowest
        at = int(too_small[-1])
        scale = math.exp(self.scale)
        error = scale * self.rounding * math.exp(-self.theta * float(points[at]))
        above = float(self.mass[at]) * (1 + self.slack) * scale + error + self.beyond - delta
        weighted = float(self.weighted[at]) * scale
        step = float(points[at]) + self.interval
        if above <= 0 or weighted <= 0:
            return self.interval * self.centre + (step if above > 0 else float(points[at]))
        return self.interval * self.centre + min(step, max(float(points[at]), math.log(above / weighted)))

    def rounding_at(self, epsilon: float) -> float:
        """The part of the delta at `epsilon`, from `lowest` to `highest`, that may be rounding."""
        at = min(max(math.floor(epsilon / self.interval) - self.first, 0), len(self.mass) - 1)
        error = self.rounding * math.exp(-self.theta * (epsilon - self.interval * self.centre))
        return math.exp(self.scale) * (error + self.slack * float(self.mass[at]))

    def doubt_at(self, epsilon: float) -> float:
        """The part of the delta at `epsilon`, from `lowest` to `highest`, that the losses may not have.

        These are rounding, infinite losses, those outside the window, and those that wrapped around into it.
        """
        wrapped = math.exp(self.scale - self.theta * (epsilon - self.interval * self.centre)) * self.wrapped
        return 2 * self.rounding_at(epsilon) + self.beyond + wrapped

    @cached_property
    def _points(self) -> np.ndarray:
        return np.asarray(self.interval * (self.first - self.centre + np.arange(len(self.mass))))

    def _delta(self, ahead: np.ndarray, at: np.ndarray) -> np.ndarray:
        mass = self.mass[at]
        inside = np.maximum(0.0, mass - np.exp(ahead) * self.weighted[at]) + self.slack * mass
        return np.asarray(math.exp(self.scale) * (inside + self.rounding * np.exp(-self.theta * ahead)) + self.beyond)
