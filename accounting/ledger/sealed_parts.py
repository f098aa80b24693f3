"""The sealed parts of an account: units that no sweep trains or selects on, each part of which answers once.

An account sets them aside at its first charge, and they never change. A part is fresh only if every charge of the
account left out the same parts of the same records: another one, or a cost from outside, may have read any unit. When
all runs of a charge with a card have ended or were given up, a vector of counts on its part, t = sum over its units of
v(M, unit) + noise, is asked once about the model M that is handed over.

*Claim.* The card costs nothing beside the search: a plan's price is the maximum over the populations, of which the part
is one more. *Proof.* Take neighbours that differ in a unit of the part. No run has read it, so everything but t has the
same law on both, and given everything else t is a Gaussian mechanism. A unit's part of a table has numbers >= 0 and
norm at most 1: its numbers sum to 1, or, for k labels per record, it has 1 / sqrt(k) in one cell of each of k pairs, or
a mean of such vectors. So a vector v of two tables, each scaled by the root of 1/2, has norm at most 1, and its
difference to another unit's at most the root of 2, since v.w >= 0. This holds under every selection rule, as the part
plays no part in it, and is not amplified. For neighbours that differ elsewhere, the part is the same on both, so t is
post-processing of the model: the winner, or the final run's, which the price covers also where it is not released. QED

*Claim.* An interval of a card misses with probability at most its level. *Proof.* Given everything but the part's units
and the noise of t, the model is fixed, and these units are a fresh sample: a keyed hash of each unit alone cut the
part, and no earlier answer came from it. So the level is that of one score that was chosen beforehand. QED
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from dpsweep.accounting.codec import OMITTED, Count, Fraction, PositiveInt, Stored
from dpsweep.accounting.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class SealedParts(Stored):
    """About `share` of the units (the test records if `public`) in `parts` disjoint equal parts, by a keyed hash."""

    share: Fraction
    parts: PositiveInt
    public: Annotated[bool, OMITTED] = False


@dataclass(frozen=True, kw_only=True)
class SealedCharge(Stored):
    """The parts that a charge's runs left out of `records` (a digest), and the number, from 1, of its card's part."""

    parts: SealedParts
    records: str
    card: Count | None = None

    def is_cut_alike(self, other: SealedCharge | None) -> bool:
        """Whether another charge left out the same units."""
        return other is not None and (self.parts, self.records) == (other.parts, other.records)


def number_of_fresh_part(earlier: Iterable[SealedCharge | None], asked: SealedCharge) -> int | None:
    """The number of the next part that nothing has read, by all earlier charges of the account; None without one."""
    number = 1
    for one in earlier:
        if one is None or not asked.is_cut_alike(one):
            return None
        number = max(number, 1 + (one.card or 0))
    return number if number <= asked.parts.parts else None


def numbered_for_charge(earlier: Iterable[SealedCharge | None], asked: SealedCharge, account: str) -> SealedCharge:
    """The same with the number of its card's part, given in the charge's transaction; `BadInput` if none is left."""
    if asked.card is None:
        return asked
    if (number := number_of_fresh_part(earlier, asked)) is None:
        text = f"Expected a sealed part of {account} that nothing has read: none is left."
        raise BadInput(f"{text} Without a card, plan.card=false, the sweep may run.")
    return replace(asked, card=number)
