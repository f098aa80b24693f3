"""Tuning by composition where the losers are nobody's business: every point runs, and the winner alone is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.selection.interface import THE_WINNER, Disclosure, SelectionRule


@dataclass(frozen=True, kw_only=True)
class WinnerOnly(SelectionRule):
    """Every declared point once, at the price of all of them; the winner and its score may be shown.

    *Guarantee*: that of composition. What is shown is a part of what composition may show.
    *Source*: post-processing (Dwork and Roth 2014, Proposition 2.1).
    """

    name: ClassVar[str] = "winner_only"
    discloses: ClassVar[frozenset[Disclosure]] = THE_WINNER
