"""What an audit of the ideal mechanism would find: its power, and the number of guesses that suits it.

The attacker's score of a canary is the sum of its direction over all noisy steps. In the ideal mechanism it is a
Gaussian plus the number of steps that sampled the canary, so thousands of audits are simulated without any training.
A mistake changes the noise, or the canary's share in the sum, by a factor. All numbers here are estimates that say how
much an audit's silence means; no bound depends on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsweep.accounting.lower_bounds.canary_attack import CanarySteps
from dpsweep.accounting.lower_bounds.one_run import (
    Claim,
    GuessCounts,
    Guesses,
    epsilon_lower_bound,
    fewest_right_guesses_to_refute,
    guesses_from_scores_and_coins,
)

SIMULATED = 40
"""Audits that are simulated for each mistake."""

COARSE = 0.02
"""The tolerance of bounds that are only compared."""

SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""The candidates for the share of the coins that are guessed as present; as many are guessed as absent, or none."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """What a mistake makes of a step: its noise, and the share of a canary in its sum, as multiples of the declared."""

    noise: float = 1.0
    share: float = 1.0


RIGHT = Mistake()
NOISE_HALVED = Mistake(noise=0.5)


@dataclass(frozen=True, kw_only=True)
class IdealAudit:
    """The audit of a mechanism with these steps, by canaries with a fair coin each."""

    steps: tuple[CanarySteps, ...]
    canaries: int

    def simulated_scores_and_coins(
        self, mistake: Mistake, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The scores and the coins of one simulated audit, each [canaries]."""
        coins = rng.random(self.canaries) < 0.5
        scores = np.zeros(self.canaries)
        for step in self.steps:
            if step.noise_multiplier == 0:
                return np.where(coins, 1.0, 0.0), coins
            hits = rng.binomial(step.count, step.rate, self.canaries)
            noise = mistake.noise * np.sqrt(step.count) * rng.standard_normal(self.canaries)
            shift = mistake.share * hits * np.where(coins, step.present, step.instead) / step.noise_multiplier
            scores += (shift + noise) / step.noise_multiplier
        return scores, coins

    def guess_counts_for_largest_bound(self, delta: float, false_alarm: float, rng: np.random.Generator) -> GuessCounts:
        """The numbers of guesses with the largest lower bound in one simulated audit of the right mechanism."""
        scores, coins = self.simulated_scores_and_coins(RIGHT, rng)
        return max(
            self._candidate_guess_counts(),
            key=lambda split: epsilon_lower_bound(
                guesses_from_scores_and_coins(scores, coins, split), delta, false_alarm, COARSE
            ),
        )

    def guess_counts_for_claim(self, claim: Claim, false_alarm: float, rng: np.random.Generator) -> GuessCounts:
        """The numbers of guesses that refute this claim by the widest margin where the noise is half the declared."""
        scores, coins = self.simulated_scores_and_coins(NOISE_HALVED, rng)

        def refutation_margin(split: GuessCounts) -> float:
            needed = fewest_right_guesses_to_refute(self.canaries, split.number_of_guesses, claim, false_alarm)
            right = guesses_from_scores_and_coins(scores, coins, split).right
            return (right - (2 * split.number_of_guesses if needed is None else needed)) / math.sqrt(
                split.number_of_guesses
            )

        return max(self._candidate_guess_counts(), key=refutation_margin)

    def median_epsilon_bound(
        self, mistake: Mistake, split: GuessCounts, delta: float, false_alarm: float, seed: int = 0
    ) -> float:
        """The median lower bound of audits with these guesses, where there is this mistake."""
        right = self._counts_of_right_guesses(mistake, split, seed)
        median = Guesses(canaries=self.canaries, made=split.number_of_guesses, right=right[SIMULATED // 2])
        return epsilon_lower_bound(median, delta, false_alarm)

    def share_of_refuting_audits(
        self, mistake: Mistake, split: GuessCounts, claim: Claim, false_alarm: float, seed: int = 0
    ) -> float:
        """The share of audits with these guesses that refute the claim, where there is this mistake."""
        needed = fewest_right_guesses_to_refute(self.canaries, split.number_of_guesses, claim, false_alarm)
        if needed is None:
            return 0.0
        return sum(count >= needed for count in self._counts_of_right_guesses(mistake, split, seed)) / SIMULATED

    def _counts_of_right_guesses(self, mistake: Mistake, split: GuessCounts, seed: int) -> list[int]:
        """The numbers of right guesses in simulated audits, in ascending order."""
        rng = np.random.Generator(np.random.Philox(seed))
        return sorted(
            guesses_from_scores_and_coins(*self.simulated_scores_and_coins(mistake, rng), split).right
            for _ in range(SIMULATED)
        )

    def _candidate_guess_counts(self) -> list[GuessCounts]:
        """The candidates: guesses of presence alone, or as many of absence."""
        counts = [max(1, int(share * self.canaries)) for share in SHARES]
        alone, both = ([GuessCounts(present=count, absent=count * side) for count in counts] for side in (0, 1))
        return alone + both
