"""Lower bounds from one run with many canaries: guesses of secret coins, and what they refute.

Each of m canaries is in the training records by a fair, secret coin of its own, and the attacker guesses some of the
coins from what was released. A private mechanism lets few guesses be right, however dependent they are.

Theorem (Mahloujifar, Melis, Chaudhuri 2025, for f-DP; Steinke, Nasr, Jagielski 2023, for one epsilon and delta). Let r
of m coins be guessed, let p_i be the probability that i guesses are right, H_j the sum over i >= j of i p_i / m, and
G_j that of (r - i) p_i / m. Then b(H_j) <= G_(j - 1) for j >= 1, where b is `Claim.least`.

*Proof.* Fix all coins but that of one canary, and let E be the event that its coin is guessed as g and that at least
j - 1 of the other guesses are right. Then P(E | coin g) = y and P(E | other coin) = x are probabilities of one event
under neighbours, so b(y) <= x. The mean of y over the canary and all coins is H_j, that of x is G_(j - 1), and b is
convex. QED.

`refutes_charged_epsilon` assumes that v or more guesses are right with a probability of `false_alarm`, and adds up from
above the least probabilities that the theorem leaves for v - 1, v - 2, ... right guesses: if they exceed 1, the claim
is refuted.

*Proof* that the least ones suffice. Write T_j = H_j + G_j, primes for the least solution, s = T_j - T_j' and d = H_j -
H_j'. At j = v all mass at v has the least H, so s = 0 and d >= 0. If s >= 0 and r d >= j s, then p_(j - 1) is at least
p_(j - 1)' - max(0, s - d) m / (r - j + 1), so T_(j - 1) - T_(j - 1)' >= s - (s - d) r / (r - j + 1) >= 0, and r d - j s
>= 0 is kept, because a further mass at j - 1 adds r / m to T and (j - 1) / m to H. So T_0 >= T_0'. QED.
"""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsweep.accounting.validation import positive_int

LARGEST = 64.0
"""Bounds on epsilon are searched below this: no number of canaries refutes more."""

TOLERANCE = 1e-4
"""Bounds on epsilon are rounded down by at most this, unless the caller wants them coarser."""

FAR = 700.0
"""A larger epsilon is replaced by this, near the largest exponent of a float64."""

ROUNDING = 1e-9
"""More than the relative rounding of a sum of probabilities here; it only weakens the attack."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The mechanism is (epsilons[i], deltas[i])-private for every i: one pair, or the whole privacy curve."""

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.epsilons or len(self.epsilons) != len(self.deltas):
            raise ValueError(f"Expected epsilons={self.epsilons} to have a delta each.")

    def least_neighbour_probability(self, probability: float) -> float:
        """The least probability of an event under a neighbour if it has this probability; convex and increasing."""
        starts, lines = self._upper_envelope_lines_by_interval
        slope, height = lines[bisect(starts, probability) - 1]
        return max(0.0, slope * probability + height)

    @cached_property
    def _upper_envelope_lines_by_interval(self) -> tuple[list[float], list[tuple[float, float]]]:
        """The largest of all lines by intervals: where each begins, and its slope and height at 0."""
        lines = [(0.0, 0.0)]
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            growth = math.exp(min(epsilon, FAR))
            lines += [(1 / growth, -delta / growth), (growth, 1 - delta - growth)]
        starts, largest = [-math.inf], [max(line for line in lines if line[0] == 0)]
        for slope, height in sorted(lines):
            while True:
                last_slope, last_height = largest[-1]
                if slope > last_slope:
                    start = (last_height - height) / (slope - last_slope)
                else:
                    start = -math.inf if height > last_height else math.inf
                if start > starts[-1] or len(largest) == 1:
                    break
                starts.pop()
                largest.pop()
            if start < math.inf:
                starts.append(start)
                largest.append((slope, height))
        return starts, largest


@dataclass(frozen=True, kw_only=True)
class GuessCounts:
    """How many coins are guessed, fixed before the run: the highest scores as present, the lowest as absent."""

    present: int
    absent: int

    @property
    def number_of_guesses(self) -> int:
        """The number of guesses."""
        return self.present + self.absent


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


def guesses_from_scores_and_coins(scores: ArrayLike, present: ArrayLike, split: GuessCounts) -> Guesses:
    """The guesses by these scores [m], which are high for canaries that are present; `present` are the coins [m].

    A score that is not a number counts as 0. Among equal scores the earlier canary is the lower one.

    >>> split = GuessCounts(present=1, absent=1)
    >>> guesses_from_scores_and_coins([0.1, 3.0, -2.0, 0.0], [True, True, False, False], split).right
    2
    """
    values = np.nan_to_num(np.asarray(scores, dtype=np.float64))
    coins: NDArray[np.bool_] = np.asarray(present, dtype=np.bool_)
    if values.shape != coins.shape or values.ndim != 1:
        raise ValueError(f"Expected scores={values.shape} to be one for each of the coins={coins.shape}.")
    order = np.argsort(values, kind="stable")
    highest, lowest = order[len(order) - split.present :], order[: split.absent]
    right = int(coins[highest].sum()) + int((~coins[lowest]).sum())
    return Guesses(canaries=len(coins), made=split.number_of_guesses, right=right)


def refutes_claim(guesses: Guesses, claim: Claim, false_alarm: float) -> bool:
    """Whether so many right guesses have a probability below `false_alarm` under every mechanism of this claim."""
    canaries, made, right = guesses.canaries, guesses.made, guesses.right
    if not right:
        return False
    whole = made / canaries * (1 + ROUNDING)
    sure, other = false_alarm * right / canaries, false_alarm * (made - right) / canaries
    for count in range(right, 0, -1):
        needed = claim.least_neighbour_probability(sure)
        if needed > other:
            sure += (count - 1) / (made - count + 1) * (needed - other)
            other = needed
        if sure + other > whole:
            return True
    return False


def p_value(guesses: Guesses, claim: Claim) -> float:
    """An upper bound on the probability of so many right guesses under this claim, within a relative 1 %."""
    low, high = -60.0, 0.0
    if refutes_claim(guesses, claim, math.exp(low)):
        return math.exp(low)
    if not refutes_claim(guesses, claim, 1.0):
        return 1.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if refutes_claim(guesses, claim, math.exp(middle)) else (middle, high)
    return math.exp(high)


def epsilon_lower_bound(guesses: Guesses, delta: float, false_alarm: float, tolerance: float = TOLERANCE) -> float:
    """A lower bound on the mechanism's epsilon at `delta`, wrong with probability `false_alarm` at most; 0 at least.

    >>> round(epsilon_lower_bound(Guesses(canaries=100, made=100, right=100), 0.0, 0.05), 2)
    3.49
    """

    def is_refuted(epsilon: float) -> bool:
        return refutes_claim(guesses, Claim(epsilons=(epsilon,), deltas=(delta,)), false_alarm)

    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high):
        low, high = high, 2 * high
        if high > LARGEST:
            return low
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def fewest_right_guesses_to_refute(canaries: int, made: int, claim: Claim, false_alarm: float) -> int | None:
    """The least number of right guesses that refutes the claim; None if no number does."""
    if not refutes_claim(Guesses(canaries=canaries, made=made, right=made), claim, false_alarm):
        return None
    low, high = 0, made
    while high - low > 1:
        middle = (low + high) // 2
        refuted = refutes_claim(Guesses(canaries=canaries, made=made, right=middle), claim, false_alarm)
        low, high = (low, middle) if refuted else (middle, high)
    return high
