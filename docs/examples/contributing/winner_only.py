"""Tuning by composition where the losers are nobody's business: every point runs, and the winner alone is shown."""

from __future__ import annotations

from dataclasses import dataclass

from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.interface import THE_WINNER, Disclosure


@dataclass(frozen=True, kw_only=True)
class WinnerOnly(Composition):
    """Every declared point once, at the price of all of them; the winner and its score may be shown.

    *Guarantee*: that of composition. What is shown is a part of what composition may show.
    *Source*: post-processing (Dwork and Roth 2014, Proposition 2.1).
    """

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return "winner_only"

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """The winner and its score."""
        return THE_WINNER
