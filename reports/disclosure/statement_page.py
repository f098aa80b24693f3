"""A statement's page as it is shown: read back into its values, and written again from them.

A page that is not what the template makes of its own values may show something else than what it contains: by a
comment, a style, a script or a hidden element. So only a page that is written again byte by byte is read at all.
"""

from __future__ import annotations

from html.parser import HTMLParser

from dpsweep.reports.pages.templates import fill
from dpsweep.reports.statement.one_page import OnePage, StatementRow
from dpsweep.reports.statement.one_page_pdf import SIZES

PLACES = {"h1": "title", "p about": "about", "p price": "epsilon", "small": "delta", "p claim": "claim"}
"""Where the values stand outside of the rows, by element and class."""
PARTS = ("dt", "dd", "li", "code")
"""The elements of a row."""
BEFORE_EPSILON, BEFORE_DELTA = "ε ≤ ", "at δ = "


def read_page(text: str) -> OnePage | None:
    """The values of a statement's page; None if the template of this version does not write this page from them."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    page = reader.page
    return page if any(fill("statement.html.j2", page=page, size=size) == text for size in SIZES) else None


class _Reader(HTMLParser):
    """Collects the text of each place; whatever else is in a page is not written again."""

    def __init__(self) -> None:
        super().__init__()
        self._place = ""
        self._values: dict[str, str] = {}
        self._rows: list[dict[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        in_row = tag if tag in PARTS else ""
        self._place = PLACES.get(" ".join([tag, *(str(value) for _, value in attrs)]), in_row)
        if tag == "dt" or (in_row and not self._rows):
            self._rows.append({})
        if in_row:
            self._rows[-1].setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._place = ""

    def handle_data(self, data: str) -> None:
        if self._place in PLACES.values():
            self._values[self._place] = self._values.get(self._place, "") + data
        elif self._place:
            self._rows[-1][self._place][-1] += data

    @property
    def page(self) -> OnePage:
        """The values that were collected; those that are missing are empty."""
        title, about, epsilon, delta, claim = (self._values.get(place, "") for place in PLACES.values())
        rows = (
            StatementRow(
                label="".join(row.get("dt", ())),
                text="".join(row.get("dd", ())),
                points=tuple(row.get("li", ())),
                code="".join(row.get("code", ())),
            )
            for row in self._rows
        )
        return OnePage(
            title=title,
            about=about,
            epsilon=epsilon.removeprefix(BEFORE_EPSILON) if delta else "",
            delta=delta.removeprefix(BEFORE_DELTA),
            claim=claim,
            rows=tuple(rows),
        )
