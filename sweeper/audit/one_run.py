"""Lower bounds from one run with many canaries: guesses of secret coins, and what they refute.

Each of m canaries is in the training records by a fair, secret coin of its own, and the attacker guesses some of the
coins from what was released. A private mechanism lets few guesses be right, however dependent they are.

Theorem (Mahloujifar, Melis, Chaudhuri 2025, for f-DP; Steinke, Nasr, Jagielski 2023, for one epsilon and delta). Let r
of m coins be guessed, let p_i be the probability that i guesses are right, H_j the sum over i >= j of i p_i / m, and
G_j that of (r - i) p_i / m. Then b(H_j) <= G_(j - 1) for j >= 1, where b is `_least_under_neighbour`.

*Proof.* Fix all coins but that of one canary, and let E be the event that its coin is guessed as g and that at least
j - 1 of the other guesses are right. Then P(E | coin g) = y and P(E | other coin) = x are probabilities of one event
under neighbours, so b(y) <= x. The mean of y over the canary and all coins is H_j, that of x is G_(j - 1), and b is
convex. QED.

`refutes_epsilon` assumes that v or more guesses are right with a probability of `false_alarm`, and adds up from
above the least probabilities that the theorem leaves for v - 1, v - 2, ... right guesses: if they exceed 1, the claim
is refuted.

*Proof* that the least ones suffice. Write T_j = H_j + G_j, primes for the least solution, s = T_j - T_j' and d = H_j -
H_j'. At j = v all mass at v has the least H, so s = 0 and d >= 0. If s >= 0 and r d >= j s, then p_(j - 1) is at least
p_(j - 1)' - max(0, s - d) m / (r - j + 1), so T_(j - 1) - T_(j - 1)' >= s - (s - d) r / (r - j + 1) >= 0, and r d - j s
>= 0 is kept, because a further mass at j - 1 adds r / m to T and (j - 1) / m to H. So T_0 >= T_0'. QED.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsweep.accounting.codec import positive_int

LARGEST = 64.0
"""Bounds on epsilon are searched below this: no number of canaries refutes more."""

TOLERANCE = 1e-4
"""Bounds on epsilon are rounded down by at most this."""

ROUNDING = 1e-9
"""More than the relative rounding of a sum of probabilities here; it only weakens the attack."""

SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""The shares of the coins that are guessed as present; as many are guessed as absent, or none."""


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """The outcome of an attack: `right` of `made` guesses about `canaries` coins."""

    canaries: int
    made: int
    right: int

    def __post_init__(self) -> None:
        positive_int("canaries", self.canaries)
        if not 0 <= self.right <= self.made <= self.canaries:
            raise ValueError(f"Expected 0 <= right={self.right} <= made={self.made} <= canaries={self.canaries}.")


def guess_coins(scores: ArrayLike, present: ArrayLike) -> list[Guesses]:
    """The guesses of every share by these scores [m], high for canaries that are `present` [m].

    The highest scores are guessed as present, and the lowest as absent or not at all. A score that is not a number
    counts as 0. Among equal scores the earlier canary is the lower one.

    >>> max(guess_coins([0.1, 3.0, -2.0, 0.0], [True, True, False, False]), key=lambda one: one.right)
    Guesses(canaries=4, made=4, right=4)
    """
    values = np.nan_to_num(np.asarray(scores, dtype=np.float64))
    coins: NDArray[np.bool_] = np.asarray(present, dtype=np.bool_)
    if values.shape != coins.shape or values.ndim != 1:
        raise ValueError(f"Expected scores={values.shape} to be one for each of the coins={coins.shape}.")
    ranked = coins[np.argsort(values, kind="stable")]
    guesses = []
    for count in (max(1, int(share * len(coins))) for share in SHARES if len(coins) > 1):
        high, low = int(ranked[-count:].sum()), count - int(ranked[:count].sum())
        guesses += [Guesses(canaries=len(coins), made=count, right=high)]
        guesses += [Guesses(canaries=len(coins), made=2 * count, right=high + low)]
    return guesses


def best_bound(guesses: list[Guesses], delta: float, false_alarm: float) -> tuple[float, Guesses]:
    """The largest lower bound of several guesses of the same coins, and the guesses that give it.

    It is wrong with probability `false_alarm` at most, which is divided among them.
    """
    bounds = [(epsilon_lower_bound(one, delta, false_alarm / len(guesses)), one) for one in guesses]
    return max(bounds, key=lambda one: one[0])


def refutes_epsilon(guesses: Guesses, epsilon: float, delta: float, false_alarm: float) -> bool:
    """Whether so many right guesses have a probability below `false_alarm` under every (epsilon, delta) mechanism."""
    canaries, made, right = guesses.canaries, guesses.made, guesses.right
    if not right:
        return False
    whole = made / canaries * (1 + ROUNDING)
    sure, other = false_alarm * right / canaries, false_alarm * (made - right) / canaries
    for count in range(right, 0, -1):
        needed = _least_under_neighbour(sure, epsilon, delta)
        if needed > other:
            sure += (count - 1) / (made - count + 1) * (needed - other)
            other = needed
        if sure + other > whole:
            return True
    return False


def _least_under_neighbour(probability: float, epsilon: float, delta: float) -> float:
    """The least probability of an event under a neighbour if it has this probability; convex and increasing."""
    growth = math.exp(epsilon)
    return max(0.0, (probability - delta) / growth, 1 - delta - growth * (1 - probability))


def epsilon_lower_bound(guesses: Guesses, delta: float, false_alarm: float) -> float:
    """A lower bound on the mechanism's epsilon at `delta`, wrong with probability `false_alarm` at most; 0 at least.

    >>> round(epsilon_lower_bound(Guesses(canaries=100, made=100, right=100), 0.0, 0.05), 2)
    3.49
    """
    if not refutes_epsilon(guesses, 0.0, delta, false_alarm):
        return 0.0
    low, high = 0.0, 1.0
    while refutes_epsilon(guesses, high, delta, false_alarm):
        low, high = high, 2 * high
        if high > LARGEST:
            return low
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if refutes_epsilon(guesses, middle, delta, false_alarm) else (low, middle)
    return low
