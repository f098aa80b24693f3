"""Total variation between the outputs on neighbours, by which a fair coin is guessed, from a privacy profile."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsweep.accounting.profiles.privacy_profiles import Profile

FARTHEST = 6.0
"""The largest epsilon at which the delta of a search is asked for."""

RELATIVE = 1e-9
"""More than the relative error of the quotients."""


def total_variation_of_profile(profile: Profile) -> float:
    """Delta at epsilon 0, or what it is at most by delta at another epsilon, where a bound is not tight at 0.

    *Guarantee*: an upper bound; each direction bounds the total variation of both. The bound on a search is not tight
    at 0, but its delta at larger epsilons bounds the total variation too.
    *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.4: it is at most
    (exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1).
    """
    one_direction: Any = getattr(profile, "directions", (profile,))[0]

    def bounds_at(epsilons: np.ndarray) -> np.ndarray:
        return np.asarray((np.expm1(epsilons) + 2 * one_direction.delta(epsilons)) / (np.exp(epsilons) + 1))

    first, second = bounds_at(np.array([0.0, 1.0]))
    least = first if first < second else bounds_at(np.linspace(0.0, FARTHEST, 13)).min()
    return float(min(1.0, least * (1 + RELATIVE)))
