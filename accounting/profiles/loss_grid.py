"""Privacy losses of one step on a grid, and a short summary of a composition of many steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_NEAR, _GROWTH = 64, 1.02
"""Grid points around 0 that are single groups in an outline, and the growth factor of the groups beyond."""

_SUM = 1e-9
"""More than the relative rounding of a sum of probabilities."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """A discrete privacy-loss distribution on a grid.

    `probabilities[i]` is the probability of the loss `interval * (lowest + i)`, `infinite` that of an infinite loss.
    """

    lowest: int
    interval: float
    probabilities: np.ndarray
    infinite: float

    @cached_property
    def values(self) -> np.ndarray:
        """The losses in nats."""
        return np.asarray(self.interval * (self.lowest + np.arange(len(self.probabilities))))

    @cached_property
    def logs(self) -> np.ndarray:
        """Logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.probabilities))

    @property
    def highest(self) -> int:
        """The last grid point."""
        return self.lowest + len(self.probabilities) - 1

    def cut(self, mass: float) -> Losses:
        """These losses, with the largest ones counted as infinite: as many as have at most `mass` together.

        *Guarantee*: every delta is at least that of these losses, as a loss only grows.
        """
        sums = np.cumsum(self.probabilities[::-1])
        lost = min(int(np.searchsorted(sums, mass, side="right")), max(0, self.highest - 1))
        if lost == 0:
            return self
        return Losses(
            lowest=self.lowest,
            interval=self.interval,
            probabilities=self.probabilities[:-lost],
            infinite=self.infinite + float(sums[lost - 1]) * (1 + _SUM),
        )

    def tilted(self, theta: float) -> tuple[np.ndarray, float]:
        """Probabilities multiplied by exp(theta loss) and normalised, and the logarithm of the normaliser."""
        exponents = theta * self.values
        exponents += self.logs
        most = float(exponents.max())
        exponents -= most
        weights = np.exp(exponents, out=exponents)
        total = float(weights.sum())
        weights /= total
        return weights, most + math.log(total)

    def log_moment(self, theta: float) -> float:
        """ln of the mean of exp(theta loss) over finite losses."""
        exponents = theta * self.values + self.logs
        most = float(exponents.max())
        return most + math.log(float(np.exp(exponents - most).sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Outline:
    """Groups of neighbouring losses, narrow near 0: precise enough to choose a tilt and a window, not a bound."""

    counts: np.ndarray
    starts: np.ndarray
    logs: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[tuple[Losses, int]]) -> Outline:
        """The outline of a composition, from its losses and their multiplicities."""
        groups = [_group_losses(losses) for losses, _ in parts]
        starts = np.cumsum([0, *(len(logs) for logs, _, _ in groups)])[:-1]
        logs, means, variances = (np.concatenate(columns) for columns in zip(*groups, strict=True))
        counts = np.array([float(count) for _, count in parts])
        return cls(counts=counts, starts=starts, logs=logs, means=means, variances=variances)

    def cumulants(self, theta: float) -> tuple[float, float, float]:
        """The log-moment of the whole composition at theta, with its first two derivatives."""
        exponents = self.logs + theta * self.means + np.minimum(theta**2 * self.variances / 2, 50.0)
        sizes = np.diff(np.append(self.starts, len(exponents)))
        most = np.maximum.reduceat(exponents, self.starts)
        weights = np.exp(exponents - np.repeat(most, sizes))
        total = np.add.reduceat(weights, self.starts)
        mean = np.add.reduceat(weights * self.means, self.starts) / total
        squares = (self.means - np.repeat(mean, sizes)) ** 2 + self.variances
        variance = np.add.reduceat(weights * squares, self.starts) / total
        log = most + np.log(total)
        return float(self.counts @ log), float(self.counts @ mean), float(self.counts @ variance)

    def expected_beyond(self, mass: float, theta: float) -> float:
        """The expected number, when tilted by theta, of the largest losses that have at most `mass` together.

        Every kind of step has an equal share of that mass.
        """
        exponents = self.logs + theta * self.means + np.minimum(theta**2 * self.variances / 2, 50.0)
        expected = 0.0
        ends = np.append(self.starts[1:], len(exponents))
        for count, first, last in zip(self.counts, self.starts, ends, strict=True):
            sums = np.cumsum(np.exp(self.logs[first:last][::-1]))
            beyond = int(np.searchsorted(sums, mass / len(self.counts) / count, side="right"))
            weights = np.exp(exponents[first:last] - exponents[first:last].max())
            expected += float(count * weights[len(weights) - beyond :].sum() / weights.sum())
        return expected


def _group_losses(losses: Losses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The log-probability, mean and variance of the losses in each group of grid points."""
    far = max(abs(losses.lowest), abs(losses.highest), _NEAR) + 1
    growing = _NEAR * _GROWTH ** np.arange(math.ceil(math.log(far / _NEAR) / math.log(_GROWTH)) + 1)
    ahead = np.unique(np.concatenate([np.arange(_NEAR), growing.astype(np.int64)]))
    edges = np.concatenate([-ahead[:0:-1], ahead]) - losses.lowest
    edges = np.unique(np.concatenate([[0], edges[(edges > 0) & (edges < len(losses.probabilities))]]))
    masses = np.add.reduceat(losses.probabilities, edges)
    positive = masses > 0
    divisor = np.where(positive, masses, 1.0)
    means = np.add.reduceat(losses.probabilities * losses.values, edges) / divisor
    sizes = np.diff(np.append(edges, len(losses.probabilities)))
    squares = (losses.values - np.repeat(means, sizes)) ** 2
    variances = np.add.reduceat(losses.probabilities * squares, edges) / divisor
    return np.log(masses[positive]), means[positive], variances[positive]
