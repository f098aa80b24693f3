"""The banner of the curator's page: what on the page the price covers, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsweep.reports.content.audience import Audience, Needs, Reader
from dpsweep.reports.content.formatting import listed
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.exhibits.exhibit import Exhibit

STAYS = "Curator only: do not pass this page on."
RELEASE = "dpsweep release"
_SHOWN_STATES = (State.FINISHED, State.DIVERGED)
"""The outcomes that a release names; it says of all others that there is no result."""


@dataclass(frozen=True, kw_only=True)
class PagePart:
    """A part of the page in words, and what a price must cover before the part may be shown to others."""

    name: str
    needs: Needs


@dataclass(frozen=True, kw_only=True)
class Banner:
    """The line on top of a page and the sentences below it; `command` writes a page that may be shown, if any may."""

    line: str
    sentences: tuple[str, ...] = ()
    command: str = ""


def banner_of(sweep: Sweep, exhibits: Sequence[Exhibit], *, contradicted: bool) -> Banner:
    """The banner for this sweep's curator; `contradicted` says that the records contradict the statement."""
    if sweep.plan.public:
        return Banner(line=STAYS)
    if contradicted:
        return Banner(line=STAYS, sentences=("The records contradict the claim, so no part of it may be shown.",))
    if not sweep.runs.over:
        return Banner(line=STAYS, sentences=("The search is not finished, so no part of it may be shown yet.",))
    reader = Reader(audience=Audience.PUBLIC, disclosed=sweep.rule.discloses)
    parts = [*_parts(sweep), *(PagePart(name=f"“{one.title}”", needs=one.needs) for one in exhibits)]
    covered = [part.name for part in parts if reader.may_see(part.needs)]
    uncovered = [part.name for part in parts if not reader.may_see(part.needs)]
    return Banner(
        line=STAYS,
        sentences=(
            f"The price does not cover {listed(uncovered)}.",
            *((f"It covers {listed(covered)}; what it covers may be shown as it is.",) if covered else ()),
        ),
        command=RELEASE if sweep.winner is not None or sweep.rule.draws_in_secret else "",
    )


def _parts(sweep: Sweep) -> Iterator[PagePart]:
    """The parts beside the exhibits, in the order of the page."""
    if sweep.winner is not None:
        yield PagePart(name="the best point", needs=Needs.WINNER)
        yield PagePart(name="its score", needs=Needs.WINNER_SCORE)
    yield PagePart(name="the account's budget", needs=Needs.CURATOR)
    if sweep.rule.draws_in_secret:
        yield PagePart(name="the number of tries, their points, scores and times", needs=Needs.CURATOR)
    else:
        states = set(sweep.all_runs["state"])
        reasons = not states.issubset(_SHOWN_STATES)
        if reasons:
            yield PagePart(name="why runs have no score, which the maps show too", needs=Needs.CURATOR)
        if State.FINISHED in states:
            yield PagePart(name="the scores of all runs", needs=Needs.ALL_SCORES)
        if State.FINISHED in states and not reasons:
            yield PagePart(name="the maps", needs=Needs.ALL_SCORES)
        yield PagePart(name="times and folders of runs", needs=Needs.CURATOR)
    yield PagePart(name="the charges", needs=Needs.CURATOR)
    yield PagePart(name="“Reproduce and verify”", needs=Needs.CURATOR)
