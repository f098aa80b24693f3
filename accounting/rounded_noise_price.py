"""The additional price of floating-point noise over exact noise, for noisy numbers rounded to a lattice."""

from __future__ import annotations

import math

LOG_RATIO = 2.0**-36
"""Bound on the log-ratio of a cell's probability to that under exact noise (`trainers/randomness.py`)."""

OVERFULL = 2.0**-60
"""Bound on the probability that the units of one step exceed its places (`trainers/data/places.py`): paid in delta."""


def epsilon_and_delta_added_by_rounding(numbers: float, epsilon: float, delta: float) -> tuple[float, float]:
    """The epsilon and delta that `numbers` noisy numbers add to the (epsilon, delta) of exact noise.

    Let x bound the log-ratio of all numbers' joint law to that of exact noise, except with a probability of d. Each
    neighbour's law is changed once, so (epsilon + 2 x, exp(x) * delta + (1 + exp(epsilon + x)) * d) holds. The smaller
    of two bounds is taken: x = numbers * LOG_RATIO with d = 0; and LOG_RATIO * sqrt(2 * numbers * ln(1 / d)) +
    numbers * LOG_RATIO * (exp(LOG_RATIO) - 1), where d is chosen to add 1e-6 * delta.
    Source: Dwork, Rothblum, Vadhan 2010, Lemma III.2 and Theorem III.3.

    >>> round(epsilon_and_delta_added_by_rounding(270_000 * 5000 * 35, 8.0, 1e-5)[0], 6)
    5.3e-05
    """
    every = numbers * LOG_RATIO
    if delta <= 0:
        return 2 * every, 0.0
    inverse = epsilon + 2 - math.log(1e-6 * delta)  # d = 1e-6 * delta / exp(epsilon + 2), and x <= 1 below
    likely = LOG_RATIO * math.sqrt(2 * numbers * inverse) + every * math.expm1(LOG_RATIO)
    if likely < min(every, 1.0):
        return 2 * likely, (math.expm1(likely) + 1e-6) * delta
    return 2 * every, min(1.0, math.expm1(min(every, 700.0)) * delta)  # beyond, no delta below 1 is of use
