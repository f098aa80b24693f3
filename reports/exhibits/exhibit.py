"""One exhibit of a page: sentences, pictures, and their numbers in tables for those who cannot see them."""

from __future__ import annotations

from dataclasses import dataclass

from dpsweep.reports.content.sections import Segment
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
