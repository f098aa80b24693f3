"""Intervals from bootstrap draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsweep.reports.statistics.verdict import CONFIDENCE, IntervalEstimate, unknown


def percentiles(name: str, value: float, draws: NDArray[np.float64], level: float = CONFIDENCE) -> IntervalEstimate:
    """The central quantiles of draws [draws] that are spread around the estimate."""
    if not np.isfinite(value) or not np.isfinite(draws).all():
        return unknown(name, value)
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    return IntervalEstimate(name=name, value=value, low=float(low), high=float(high))
