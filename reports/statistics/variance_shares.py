"""Shares of a grid's variance that the learning rate, the other setting, and their interaction explain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsweep.reports.statistics.bootstrap import percentiles
from dpsweep.reports.statistics.point_scores import Values
from dpsweep.reports.statistics.score_grid import ScoreGrid
from dpsweep.reports.statistics.verdict import CONFIDENCE, IntervalEstimate

BY_RATE, BY_SETTING, BY_BOTH = 0, 1, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class VarianceShares:
    """Shares of the variance of a grid's true scores, whose sum is 1, with bootstrap draws [draws, 3]."""

    values: Values
    draws: Values

    def of(self, name: str, *parts: int, level: float = CONFIDENCE) -> IntervalEstimate:
        """The share of these parts together."""
        places = list(parts)
        return percentiles(name, float(self.values[places].sum()), self.draws[:, places].sum(axis=1), level)


def variance_shares(grid: ScoreGrid) -> VarianceShares | None:
    """The shares; None if the points do not differ by more than their errors.

    A sum of squares of noisy means exceeds that of true ones by the noise's variance times its degrees of freedom,
    that of a bootstrap draw by the draw's noise in addition; both are subtracted. *Source*: the method of moments for
    variance components; Searle, Casella, McCulloch 1992, Section 4.4.
    """
    if not grid.points.vary:
        return None
    settings, rates = grid.places.shape
    freedoms = np.array([rates - 1, settings - 1, (rates - 1) * (settings - 1)])
    noise = float((grid.errors**2).mean()) * freedoms
    drawn = _squares(grid.draws) - (1 + grid.points.inflation**2) * noise
    values, draws = _shares(_squares(grid.means) - noise), _shares(drawn)
    return VarianceShares(values=values, draws=draws)


def _squares(means: Values) -> Values:
    """Sums of squares of grids [..., settings, rates] by rate, by setting, and by their interaction [..., 3]."""
    settings, rates = means.shape[-2:]
    whole = means.mean(axis=(-2, -1), keepdims=True)
    by_rate, by_setting = means.mean(axis=-2, keepdims=True) - whole, means.mean(axis=-1, keepdims=True) - whole
    rest = means - whole - by_rate - by_setting
    sums = [
        settings * (by_rate**2).sum(axis=(-2, -1)),
        rates * (by_setting**2).sum(axis=(-2, -1)),
        (rest**2).sum(axis=(-2, -1)),
    ]
    return np.stack(sums, axis=-1)


def _shares(squares: Values) -> Values:
    positive = np.maximum(squares, 0.0)
    return np.asarray(positive / np.maximum(positive.sum(axis=-1, keepdims=True), 1e-300))
