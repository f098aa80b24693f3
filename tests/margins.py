"""Margins of randomized tests: how far off a right program may be before a test says that it is wrong.

Each margin is exact, or a union bound over exact ones, so that one case of a test fails by chance with a probability of
at most `FALSE_ALARM`. What is allowed for one case is `MOST`; tests/RANDOMIZED.md lists all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, chi2, norm

MOST = 1e-9
"""The largest probability of a false alarm that one case of a randomized test may have."""

FALSE_ALARM = 1e-10
"""What one statement of a test takes of it."""


def deviations(count: int = 1, false_alarm: float = FALSE_ALARM) -> float:
    """The standard deviations by which none of `count` normal variables differs from its mean."""
    return float(norm.isf(false_alarm / count / 2))


def deviation_range(samples: int, count: int = 1, false_alarm: float = FALSE_ALARM) -> tuple[float, float]:
    """The range of `count` root mean squares of `samples` independent standard normal numbers each."""
    tail = false_alarm / count / 2
    low, high = chi2.ppf(tail, samples), chi2.isf(tail, samples)
    return float(np.sqrt(low / samples)), float(np.sqrt(high / samples))


def count_range(trials: int, probability: float, count: int = 1, false_alarm: float = FALSE_ALARM) -> tuple[int, int]:
    """The range of `count` numbers of successes in `trials` independent trials each."""
    tail = false_alarm / count / 2
    return int(binom.ppf(tail, trials, probability)), int(binom.isf(tail, trials, probability))


def distribution_margin(samples: int, false_alarm: float = FALSE_ALARM) -> float:
    """The distance of an empirical distribution function from the true one (Massart 1990)."""
    return float(np.sqrt(np.log(2 / false_alarm) / (2 * samples)))


def joint(one: ArrayLike, other: ArrayLike) -> float:
    """How much two samples go together.

    Standard normal if the first has independent standard normal numbers that are independent of the second, which may
    be anything but 0.
    """
    first, second = (np.asarray(sample, dtype=np.float64).ravel() for sample in (one, other))
    return float(first @ second / np.linalg.norm(second))
