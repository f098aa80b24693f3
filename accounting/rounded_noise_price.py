"""What rounded noise costs over exact noise: constants that trainers prove, and how a price includes them.

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

LOG_RATIO = 2.0**-41
"""Bound on the log-ratio of a cell's probability to that under exact noise (`trainers/randomness.py`)."""

NUMBERS_OF_COUNT = 1024
"""A noisy count is rounded to a lattice that is 32 times finer, so that its intervals hold: its log-ratio is at most
32 * LOG_RATIO. As both bounds of `log_ratio_of_numbers` grow at least like the square root, it counts as 32^2 numbers.
"""

NEVER = 2.0**-188
"""Bound on the probability that a secret part has more units than slots (`trainers/data/places.py`), or that a number
has noise beyond 16 standard deviations, whose rounding nothing bounds."""

NEAR, FAR = 64.0, 2.0**14
"""Epsilons up to which d = `tail` * exp(-epsilon) is taken: up to the first for those below it, else up to the last."""

TAIL = 1e-36
"""The `tail` of a profile, far below every delta that one is read at."""

SHARE = 1e-9
"""The share of delta that is the `tail` where delta is known."""


def log_ratio_of_numbers(numbers: int, reach: float, tail: float) -> float:
    """The smaller of two x for so many numbers: for d = 0, or for d = `tail` * exp(-`reach`).

    Then (1 + exp(e - x)) d is at most 2 `tail` at every e <= `reach`. That also covers what happens with a probability
    below `NEVER` a number: `tail` is larger.

    >>> f"{log_ratio_of_numbers(270_000 * 5000 * 35, NEAR, TAIL):.1e}", log_ratio_of_numbers(2, NEAR, TAIL) / LOG_RATIO
    ('1.7e-06', 2.0)
    """
    every = numbers * LOG_RATIO
    likely = LOG_RATIO * math.sqrt(2 * numbers * (reach - math.log(tail))) + every * math.expm1(LOG_RATIO)
    return min(every, likely)


def epsilon_with_rounding(numbers: int, delta: float, epsilon_at: Callable[[float], float]) -> float:
    """Epsilon at `delta`, given that of exact noise at every delta: 2 x + epsilon_at(the delta that leaves room).

    Infinity where no room is left.
    """
    if delta <= 0:
        return math.inf
    if not numbers:
        return epsilon_at(delta)
    for reach in (NEAR, FAR, math.inf):  # beyond FAR, d = 0
        x = log_ratio_of_numbers(numbers, reach, SHARE * delta)
        left = (1 - 2 * SHARE) * delta * math.exp(-x)
        if left > 0 and (epsilon := 2 * x + epsilon_at(left)) <= reach:
            return epsilon
    return math.inf
