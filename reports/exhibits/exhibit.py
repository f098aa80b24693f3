"""An exhibit of a page: sentences, pictures, and tables with the pictures' numbers for readers who cannot see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dpsweep.accounting.accountants.pld import clear_cached_prices
from dpsweep.reports.content.audience import Needs, Reader
from dpsweep.reports.content.facts import Bill
from dpsweep.reports.content.sections import Segment
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.figures.drawing import Drawing


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A section: `key` names it in `report.json` and in the page's addresses, `source` is the source of its numbers.

    `note` explains how to read it; `findings` are sentences with numbers. `conclusion` is a clause of the sentence in
    which the page concludes what to do next. `needs` is set from the declaration.
    """

    key: str
    title: str
    note: str
    source: str
    findings: tuple[str, ...] = ()
    conclusion: str = ""
    bar: tuple[Segment, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    needs: Needs = Needs.CURATOR


@dataclass(frozen=True, kw_only=True)
class DeclaredExhibit:
    """A function that makes an exhibit from a sweep and its bill, None if there is nothing to show, and its needs.

    An exhibit that reads a run's result needs at least `Needs.WINNER`; a result of a losing run needs
    `Needs.ALL_SCORES`.
    """

    needs: Needs
    make: Callable[[Sweep, Bill], Exhibit | None]


def visible_exhibits(
    declared: Iterable[DeclaredExhibit], sweep: Sweep, bill: Bill, reader: Reader
) -> tuple[Exhibit, ...]:
    """The exhibits that this reader may see, in their order; the others are not made."""
    exhibits = []
    for one in declared:
        if reader.may_see(one.needs) and (exhibit := one.make(sweep, bill)) is not None:
            exhibits.append(replace(exhibit, needs=one.needs))
            clear_cached_prices()  # no exhibit prices what another one did
    return tuple(exhibits)
