"""Means over repetitions of a quantity that each repetition gives once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from dpsweep.reports.statistics.verdict import CONFIDENCE, IntervalEstimate, unknown


def mean_of_repeats(name: str, values: Sequence[float], level: float = CONFIDENCE) -> IntervalEstimate:
    """The mean with Student's interval; without an interval for fewer than two repetitions.

    A difference between two runs of one repetition is such a quantity: what they share, for example their initial
    weights, cancels. *Source*: the paired t test.

    >>> one = mean_of_repeats("gap", [1.0, 2.0, 3.0])
    >>> round(one.value, 2), round(one.low, 2), round(one.high, 2)
    (2.0, -0.48, 4.48)
    """
    kept = np.asarray(values, dtype=float)
    if len(kept) < 2 or not np.isfinite(kept).all():
        return unknown(name, float(kept.mean()) if len(kept) else math.nan)
    margin = float(stdtrit(len(kept) - 1, (1 + level) / 2) * kept.std(ddof=1) / math.sqrt(len(kept)))
    return IntervalEstimate(
        name=name, value=float(kept.mean()), low=float(kept.mean()) - margin, high=float(kept.mean()) + margin
    )
