"""What rounded noise costs over exact noise.

The law of one noisy number is within a factor exp(+-LOG_RATIO) of that under exact noise, given all earlier ones. So
the joint law of k numbers is within exp(+-x) of the exact one except with a probability of d (`log_ratio_of_numbers`),
on both neighbours, and a mechanism with the hockey-stick divergence delta(e) under exact noise has at most

    exp(x) delta(e - 2 x) + (1 + exp(e - x)) d

at every e of any sign. This is the divergence of *one try*, its score included: a rule that hides losers raises x as it
raises epsilon, so its theorem starts from the rounded try.
*Source*: Dwork, Rothblum, Vadhan 2010 (Boosting and Differential Privacy), Lemma III.2 and Theorem III.3, for x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsweep.accounting.profiles.privacy_profiles import Curve, Profile, curves_by_direction, rounded_up

LOG_RATIO = 2.0**-41  # bound on a cell's log-probability minus that under exact noise (`trainers/randomness.py`)
REACHES = (64.0, 2.0**14, math.inf)  # d is tail * exp(-reach) up to the first epsilon, to the second, and 0 beyond
TAIL, SHARE = 1e-36, 1e-9  # the tail of a profile, far below every delta in use; or, where delta is known, this part


def log_ratio_of_numbers(numbers: int, reach: float, tail: float) -> float:
    """The smaller of two x for so many numbers: for d = 0, or for d = `tail` * exp(-`reach`).

    Beyond 16 standard deviations nothing bounds the rounding; the probability of such noise is far below `tail`
    (`NEVER` in `accounting/events/build.py`).

    >>> f"{log_ratio_of_numbers(270_000 * 5000 * 35, 64, TAIL):.1e}", log_ratio_of_numbers(2, 64, TAIL) / LOG_RATIO
    ('1.7e-06', 2.0)
    """
    every = numbers * LOG_RATIO
    likely = LOG_RATIO * math.sqrt(2 * numbers * (reach - math.log(tail))) + every * math.expm1(LOG_RATIO)
    return min(every, likely)


def epsilon_with_rounding(numbers: int, delta: float, epsilon_at: Callable[[float], float]) -> float:
    """2 x + epsilon_at(the delta that leaves room), `epsilon_at` being of exact noise; infinity where none is left."""
    if not numbers and delta > 0:
        return epsilon_at(delta)
    for reach in REACHES if delta > 0 else ():
        x = log_ratio_of_numbers(numbers, reach, SHARE * delta)
        left = (1 - 2 * SHARE) * delta * math.exp(-x)
        if left > 0 and (epsilon := rounded_up(2 * x + epsilon_at(left))) <= reach:
            return epsilon
    return math.inf


@dataclass(frozen=True, kw_only=True)
class Rounded(Profile):
    """A mechanism with so many rounded noisy numbers; `inner` is its profile under exact noise."""

    inner: Profile
    numbers: int

    @cached_property
    def directions(self) -> tuple[Profile, ...]:
        """One if they are not known apart."""
        return tuple(_RoundedDirection(curve, self.numbers) for curve in curves_by_direction(self.inner))

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The larger of both directions."""
        return np.asarray(np.max([direction.delta(epsilons) for direction in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        """See `epsilon_with_rounding`."""
        return epsilon_with_rounding(self.numbers, delta, self.inner.epsilon)


@dataclass(frozen=True)
class _RoundedDirection(Profile):
    curve: Curve
    numbers: int

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        ratios = np.array([log_ratio_of_numbers(self.numbers, reach, TAIL) for reach in REACHES])
        x = ratios[np.searchsorted(REACHES, epsilons)]
        return np.asarray(np.minimum(1.0, np.exp(x) * self.curve(epsilons - 2 * x) + 2 * TAIL))
