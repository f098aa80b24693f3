"""One exhibit of a page: sentences, pictures, and their numbers in tables for those who cannot see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dpsweep.reports.content.audience import Needs, Reader
from dpsweep.reports.content.charges import Bill
from dpsweep.reports.content.sections import Segment
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.figures.charts import Drawing


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A section: `key` names it in `report.json` and in the page's addresses, `source` says where its numbers are from.

    `note` is how to read it, `said` what it says in sentences with numbers.
    """

    key: str
    title: str
    note: str
    source: str
    said: tuple[str, ...] = ()
    bar: tuple[Segment, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    sheets: tuple[Sheet, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeclaredExhibit:
    """How an exhibit is made of a sweep and its bill, None where there is nothing to show, and what it needs.

    What reads the result of a run needs at least `Needs.WINNER`, and of a run that did not win `Needs.ALL_SCORES`.
    """

    needs: Needs
    make: Callable[[Sweep, Bill], Exhibit | None]


def shown(declared: Iterable[DeclaredExhibit], sweep: Sweep, bill: Bill, reader: Reader) -> tuple[Exhibit, ...]:
    """The exhibits that this reader may see, in their order; the others are not even made."""
    made = (exhibit.make(sweep, bill) for exhibit in declared if reader.may_see(exhibit.needs))
    return tuple(exhibit for exhibit in made if exhibit is not None)
