"""The meaning of (epsilon, delta) in sentences: the one writer of them, for every page, message and document.

Each sentence is a theorem about two neighbouring data sets, and so holds for whoever sees what is released, or anything
computed from it, whatever else they know. Each number is computed here and rounded such that the sentence stays true.
With p and q for the probabilities of one conclusion on the two data sets:

* Chances: p <= e^epsilon q + delta and q <= e^epsilon p + delta. This is the definition (Dwork and Roth 2014,
  Definition 2.4).
* A fair coin: whoever guesses which data set was used is right with a probability of at most (1 + T) / 2, where T is
  the total variation, which is the privacy profile at epsilon 0. From (epsilon, delta) alone it is at most
  (e^epsilon + delta) / (e^epsilon + 1) (Kairouz, Oh, Viswanath 2015, Theorem 3.4).
* Odds: they change by a factor of more than 2 e^epsilon with a probability of at most (2 + e^-epsilon) delta. On the
  outputs S where they rise so far, P(S) <= e^epsilon Q(S) + delta <= P(S) / 2 + delta, so P(S) <= 2 delta and Q(S) <=
  e^-epsilon delta; the other direction is the same (the form is that of Kasiviswanathan and Smith 2014).
* An attack that the pair allows errs with probability 1 / (e^epsilon + 1) on both data sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.notation import (
    INFINITE,
    delta_text_rounded_up,
    epsilon_text_rounded_up,
    exponential_text_rounded_up,
    percent_text_rounded_up,
)

LARGE_EPSILON = 10.0
"""Above this, the harm that an epsilon allows is said."""

HOPELESS_EPSILON = 23.0
"""Above this, an allowed attack makes less than one mistake among all people alive."""

_ROUNDING = 1 + 1e-12
"""More than the rounding of the few operations below."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of a guarantee for one unit; `total_variation` is an upper bound on it, None if unknown.

    >>> Meaning(guarantee=Guarantee(epsilon=1.0, delta=1e-5, unit="user")).coin_sentence[-54:]
    'would guess the coin right at most 73.2 % of the time.'
    """

    guarantee: Guarantee
    total_variation: float | None = None

    @property
    def largest_share_of_right_guesses(self) -> float:
        """The largest probability to guess the fair coin right: by the total variation or by the pair, the smaller."""
        error = math.exp(-self.guarantee.epsilon)
        by_pair = (1 + self.guarantee.delta * error) / (1 + error)
        by_profile = 1.0 if self.total_variation is None else (1 + self.total_variation) / 2
        return min(1.0, by_pair * _ROUNDING, by_profile * _ROUNDING)

    @property
    def chance_of_larger_odds(self) -> float:
        """The largest probability that odds rise or fall by a factor of more than 2 e^epsilon."""
        return (2 + math.exp(-self.guarantee.epsilon)) * self.guarantee.delta * _ROUNDING

    def factor_text(self, times: int = 1) -> str:
        """So many times e^epsilon, of the epsilon as it is written, so that a reader computes the same number."""
        written = epsilon_text_rounded_up(self.guarantee.epsilon).replace(INFINITE, "inf")
        return exponential_text_rounded_up(Decimal(written), times)

    @property
    def _is_unit_added(self) -> bool:
        return self.guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences for everybody: on chances, on a coin, and on the harm that a large epsilon allows."""
        return tuple(filter(None, (self.chance_sentence, self.coin_sentence, self.harm_sentence)))

    @property
    def chance_sentence(self) -> str:
        """The definition in words; empty for an epsilon that promises nothing in practice."""
        if self.guarantee.epsilon > HOPELESS_EPSILON:
            return ""
        most, delta, unit = self.factor_text(), delta_text_rounded_up(self.guarantee.delta), self.guarantee.unit
        other = f"had been any other, plus {delta}"
        if self._is_unit_added:
            other = f"had not been used, plus {delta}; and the chance without it is at most {most} times that with it, "
            other += f"plus {delta}"
        return (
            f"Whatever anybody concludes about one {unit} from what is released, the chance that this is concluded is "
            f"at most e^epsilon = {most} times what it would be if this {unit} {other}."
        )

    @property
    def coin_sentence(self) -> str:
        """How often a fair coin on one unit would be guessed right."""
        unit, right = self.guarantee.unit, percent_text_rounded_up(self.largest_share_of_right_guesses)
        coin = f"whether one {unit} is used" if self._is_unit_added else f"which of two values one {unit} has"
        return (
            f"If a fair coin had decided {coin}, somebody who knows everything else and sees all that is released "
            f"would guess the coin right at most {right} % of the time."
        )

    @property
    def odds_sentence(self) -> str:
        """How rarely odds change by more than 2 e^epsilon; empty where that is no bound, or promises nothing."""
        unit, twice, rare = self.guarantee.unit, self.factor_text(times=2), self.chance_of_larger_odds
        odds = f"that one {unit} was used" if self._is_unit_added else f"of one value of a {unit} against another"
        said = (
            f"What is released changes the odds {odds} by a factor of more than 2 e^epsilon = {twice} with a "
            f"probability of at most {delta_text_rounded_up(rare)}."
        )
        return said if self.guarantee.epsilon <= HOPELESS_EPSILON and rare < 1 else ""

    @property
    def harm_sentence(self) -> str:
        """The harm that an epsilon above 10 allows; empty up to 10, and for infinity, which promises nothing."""
        epsilon, unit = self.guarantee.epsilon, self.guarantee.unit
        one_in = f"one in e^epsilon + 1, about {self.factor_text()},"
        attack = f"tells two values of a {unit} apart in all but {one_in} cases"
        if self._is_unit_added:
            attack = f"finds all but {one_in} of the {unit}s that took part and wrongly accuses one in as many of the "
            attack += "others"
        allowed = f"the bound allows an attack that {attack}"
        said = "at this epsilon the bound promises nothing in practice" if epsilon > HOPELESS_EPSILON else allowed
        large = LARGE_EPSILON < epsilon < math.inf
        return f"Epsilon {epsilon_text_rounded_up(epsilon)} is large: {said}." if large else ""
