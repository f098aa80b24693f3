"""Who may read a page, and what its reader may be shown: the one filter of all pages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from dpsweep.accounting.selection.interface import Disclosure


class Audience(StrEnum):
    """The two pages of a sweep."""

    CURATOR = "curator"
    PUBLIC = "public"

    @property
    def banner(self) -> str:
        """The line on top of the page."""
        return {
            Audience.CURATOR: "For you alone: do not pass this page on.",
            Audience.PUBLIC: "Public. This page shows only what the price below covers and may be passed on.",
        }[self]


class Needs(StrEnum):
    """What a sweep's price must cover before a part of its page may be shown to others than the curator."""

    NOTHING = "nothing: it follows from the plan and its charges, whatever came of them"
    WINNER = "which point won"
    WINNER_SCORE = "the winner's score"
    ALL_SCORES = "the score of every run"
    CURATOR = "more than any price covers: it stays with the curator"


_COVERED_BY = {
    Needs.WINNER: Disclosure.WINNER,
    Needs.WINNER_SCORE: Disclosure.WINNER_SCORE,
    Needs.ALL_SCORES: Disclosure.ALL_SCORES,
}


def most_disclosed(disclosed: Collection[Disclosure]) -> Disclosure | None:
    """The most that is disclosed of results: all scores, else the winner's, else the winner; None for nothing of it.

    >>> most_disclosed({Disclosure.WINNER, Disclosure.NUMBER_OF_TRIES, Disclosure.WINNER_SCORE}).value
    'winner_score'
    """
    return next((kind for kind in reversed(_COVERED_BY.values()) if kind in disclosed), None)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The reader of a page, and what the sweep's rule discloses to everybody.

    >>> reader = Reader(audience=Audience.PUBLIC, disclosed=frozenset({Disclosure.WINNER}))
    >>> [needs.name for needs in Needs if reader.may_see(needs)]
    ['NOTHING', 'WINNER']
    """

    audience: Audience
    disclosed: frozenset[Disclosure]

    def may_see(self, needs: Needs) -> bool:
        """Whether what needs so much may be on this reader's page."""
        if self.audience is Audience.CURATOR or needs is Needs.NOTHING:
            return True
        return needs in _COVERED_BY and _COVERED_BY[needs] in self.disclosed
