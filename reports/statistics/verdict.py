"""Intervals, and verdicts from them: a claim holds, misses its margin, is refuted, or the runs cannot decide it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

CONFIDENCE = 0.95
"""Joint confidence of all intervals of one verdict."""


class Verdict(StrEnum):
    """What the runs say about a claim."""

    HOLDS = "holds"
    MISSED = "same direction, margin missed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"

    @classmethod
    def from_condition(cls, condition: bool) -> Verdict:
        """The verdict on a claim that is computed without chance."""
        return cls.HOLDS if condition else cls.REFUTED


@dataclass(frozen=True, kw_only=True)
class IntervalEstimate:
    """A named quantity with its interval; `low` and `high` are infinite if the runs say nothing about it."""

    name: str
    value: float
    low: float = -math.inf
    high: float = math.inf

    @property
    def has_interval(self) -> bool:
        """Whether the quantity has an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def verdict_that_value_is_between(self, least: float = -math.inf, most: float = math.inf) -> Verdict:
        """Whether the quantity is between `least` and `most`.

        It holds if the whole interval is between them, and is refuted if no part of it is.

        >>> one = IntervalEstimate(name="e", value=-1.0, low=-1.2, high=-0.8)
        >>> ranges = ({"least": -1.5, "most": -0.5}, {"least": 0.0}, {"most": -1.0})
        >>> [one.verdict_that_value_is_between(**bounds).value for bounds in ranges]
        ['holds', 'refuted', 'undecided']
        """
        if not self.has_interval:
            return Verdict.UNDECIDED
        if least <= self.low and self.high <= most:
            return Verdict.HOLDS
        return Verdict.REFUTED if self.high < least or self.low > most else Verdict.UNDECIDED


def unknown_estimate(name: str, value: float = math.nan) -> IntervalEstimate:
    """A quantity without an interval."""
    return IntervalEstimate(name=name, value=value)


def confidence_of_each_interval(intervals: int) -> float:
    """The confidence of each of several intervals that hold jointly with `CONFIDENCE`. *Source*: Bonferroni.

    >>> confidence_of_each_interval(1), round(confidence_of_each_interval(5), 3)
    (0.95, 0.99)
    """
    return 1 - (1 - CONFIDENCE) / max(1, intervals)


def joint_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim of several parts; undecided if it has none.

    >>> joint_verdict([Verdict.HOLDS, Verdict.UNDECIDED]).value, joint_verdict([Verdict.HOLDS, Verdict.REFUTED]).value
    ('undecided', 'refuted')
    """
    parts = set(verdicts)
    if Verdict.REFUTED in parts:
        return Verdict.REFUTED
    return Verdict.HOLDS if parts == {Verdict.HOLDS} else Verdict.UNDECIDED


def verdict_on_direction_and_margin(direction: Verdict, margin: Verdict) -> Verdict:
    """The verdict on a claim from that on its direction and that on its margin.

    Only an interval that excludes the direction refutes; one that excludes the margin alone says that it is missed.

    >>> verdict_on_direction_and_margin(Verdict.HOLDS, Verdict.REFUTED).value
    'same direction, margin missed'
    >>> verdict_on_direction_and_margin(Verdict.UNDECIDED, Verdict.REFUTED).value
    'undecided'
    """
    if direction is not Verdict.HOLDS:
        return direction
    return Verdict.MISSED if margin is Verdict.REFUTED else margin


def interval_estimate_from_draws(
    name: str, value: float, draws: NDArray[np.float64], level: float = CONFIDENCE
) -> IntervalEstimate:
    """The central quantiles of draws [draws] that are spread around the estimate."""
    if not np.isfinite(value) or not np.isfinite(draws).all():
        return unknown_estimate(name, value)
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    return IntervalEstimate(name=name, value=value, low=float(low), high=float(high))


def mean_estimate_of_repeats(name: str, values: Sequence[float], level: float = CONFIDENCE) -> IntervalEstimate:
    """The mean with Student's interval; without an interval for fewer than two repetitions.

    A difference between two runs of one repetition is such a quantity: what they share, for example their initial
    weights, cancels. *Source*: the paired t test.

    >>> one = mean_estimate_of_repeats("gap", [1.0, 2.0, 3.0])
    >>> round(one.value, 2), round(one.low, 2), round(one.high, 2)
    (2.0, -0.48, 4.48)
    """
    kept = np.asarray(values, dtype=float)
    if len(kept) < 2 or not np.isfinite(kept).all():
        return unknown_estimate(name, float(kept.mean()) if len(kept) else math.nan)
    margin = float(stdtrit(len(kept) - 1, (1 + level) / 2) * kept.std(ddof=1) / math.sqrt(len(kept)))
    return IntervalEstimate(
        name=name, value=float(kept.mean()), low=float(kept.mean()) - margin, high=float(kept.mean()) + margin
    )
