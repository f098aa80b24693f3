"""The one-page statement as a PDF file of one A4 page, by matplotlib: no browser, and the same bytes each time."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextToPath

from dpsweep.accounting.printing import visible
from dpsweep.reports.figures.cell_marks import GRID, INK, MUTED, SERIES
from dpsweep.reports.figures.drawing_settings import own_settings
from dpsweep.reports.statement.one_page import OnePage, StatementRow

WIDTH, HEIGHT = 595.28, 841.89
"""A4, in points."""

MARGIN, LABEL = 54.0, 92.0
"""The margin on all sides, and the width of the labels' column, in points."""

SIZES = tuple(9.5 - step / 4 for step in range(23))
"""Sizes of the rows' text in points, the largest first; the first that fits on the page is used."""

LEADING, GAP = 1.42, 0.72
"""Line height and half the distance between rows, in font sizes."""

SIGNING = 74.0
"""The height of the lines to sign, at the foot of the page."""

_STYLE = {"pdf.fonttype": 42}
_SHAPES = TextToPath()
_MONO, _SANS = "DejaVu Sans Mono", "DejaVu Sans"


@dataclass(frozen=True, kw_only=True)
class PlacedWords:
    """A line of text with its place, in points from the upper left corner of the page."""

    x: float
    y: float
    text: str
    size: float
    ink: str = INK
    weight: str = "normal"
    family: str = _SANS

    def draw_on(self, figure: Figure) -> None:
        """Writes the text; a dollar sign does not start a formula."""
        font = FontProperties(family=self.family, weight=self.weight, size=self.size)
        place = self.x / WIDTH, 1 - self.y / HEIGHT
        figure.text(*place, visible(self.text), fontproperties=font, color=self.ink, va="baseline", parse_math=False)


@dataclass(frozen=True, kw_only=True)
class HorizontalLine:
    """A thin line across the page, or across a part of it."""

    y: float
    x: float = MARGIN
    end: float = WIDTH - MARGIN
    ink: str = GRID

    def draw_on(self, figure: Figure) -> None:
        """Draws the line."""
        up = 1 - self.y / HEIGHT
        figure.add_artist(Line2D([self.x / WIDTH, self.end / WIDTH], [up, up], color=self.ink, linewidth=0.7))


Drawn = PlacedWords | HorizontalLine


def size_for(page: OnePage) -> float:
    """The size of the rows' text in points at which one A4 page holds the statement: the largest of `SIZES`."""
    with own_settings(_STYLE):
        return _size_for(page)


def _size_for(page: OnePage) -> float:
    start = _below(_head(page))
    fitting = (size for size in SIZES if _rows(page.rows, start, size)[1] <= HEIGHT - MARGIN - SIGNING)
    return next(fitting, SIZES[-1])


def pdf_of(page: OnePage) -> bytes:
    """The statement as a PDF file without dates; rows are set smaller until the page holds them."""
    stream = io.BytesIO()
    nothing = {"CreationDate": None, "Producer": None, "Creator": None}
    with own_settings(_STYLE):
        top = list(_head(page))
        rows, _ = _rows(page.rows, _below(top), _size_for(page))
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        FigureCanvasPdf(figure)
        for mark in (*top, *rows, *_foot(page.signed)):
            mark.draw_on(figure)
        figure.savefig(stream, format="pdf", metadata={**nothing, "Title": page.title})
    return stream.getvalue()


def _below(marks: Iterable[Drawn]) -> float:
    """Where the rows begin."""
    return max(mark.y for mark in marks) + 20


def _head(page: OnePage) -> Iterator[Drawn]:
    """Title, subject, and the claim in large letters."""
    y = MARGIN + 14
    for line in _wrapped(page.title, 17, WIDTH - 2 * MARGIN, weight="bold"):
        yield PlacedWords(x=MARGIN, y=y, text=line, size=17, weight="bold")
        y += 21
    for line in _wrapped(page.about, 9, WIDTH - 2 * MARGIN):
        yield PlacedWords(x=MARGIN, y=y - 3, text=line, size=9, ink=MUTED)
        y += 13
    y += 26
    if page.has_claim:
        text = f"\N{GREEK SMALL LETTER EPSILON} \N{LESS-THAN OR EQUAL TO} {page.epsilon}"
        yield PlacedWords(x=MARGIN, y=y, text=text, size=26, weight="bold", ink=SERIES[0])
        after = MARGIN + _width(text, 26, "bold", _SANS) + 14
        yield PlacedWords(x=after, y=y, text=f"at \N{GREEK SMALL LETTER DELTA} = {page.delta}", size=13, ink=MUTED)
    else:
        yield PlacedWords(x=MARGIN, y=y, text="No claim", size=26, weight="bold", ink=SERIES[-1])
    y += 22
    for line in _wrapped(page.claim, 10, WIDTH - 2 * MARGIN):
        yield PlacedWords(x=MARGIN, y=y, text=line, size=10)
        y += 14


def _rows(rows: Sequence[StatementRow], start: float, size: float) -> tuple[list[Drawn], float]:
    """The rows in this size, and the place where they end."""
    marks: list[Drawn] = []
    y, left = start, MARGIN + LABEL
    for row in rows:
        marks.append(HorizontalLine(y=y))
        y += (GAP + 1) * size
        marks.append(PlacedWords(x=MARGIN, y=y, text=row.label, size=size, weight="bold"))
        for line in _wrapped(row.text, size, WIDTH - MARGIN - left):
            marks.append(PlacedWords(x=left, y=y, text=line, size=size))
            y += LEADING * size
        for point in row.points:
            marks.append(PlacedWords(x=left, y=y, text="\N{BULLET}", size=size, ink=MUTED))
            for line in _wrapped(point, size, WIDTH - MARGIN - left - size):
                marks.append(PlacedWords(x=left + size, y=y, text=line, size=size))
                y += LEADING * size
        if row.code:
            marks.append(PlacedWords(x=left, y=y, text=row.code, size=min(size, 9), family=_MONO))
            y += LEADING * size
        y += (GAP - LEADING + 0.42) * size
    return [*marks, HorizontalLine(y=y)], y


def _foot(signed: Sequence[str]) -> Iterator[Drawn]:
    """The lines to sign, side by side."""
    y, gap = HEIGHT - MARGIN - 14, 18.0
    width = (WIDTH - 2 * MARGIN + gap) / len(signed)
    for place, label in enumerate(signed):
        x = MARGIN + place * width
        yield HorizontalLine(y=y, x=x, end=x + width - gap, ink=INK)
        yield PlacedWords(x=x, y=y + 12, text=label, size=8, ink=MUTED)


def _wrapped(text: str, size: float, width: float, weight: str = "normal") -> list[str]:
    """The lines of a text that are at most so wide, in points; a word that is wider is cut."""
    lines: list[str] = []
    line = ""
    for word in (part for one in text.split() for part in _cut(one, size, width, weight)):
        longer = f"{line} {word}" if line else word
        if line and _width(longer, size, weight, _SANS) > width:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line] if line else lines


def _cut(word: str, size: float, width: float, weight: str) -> list[str]:
    """A word in pieces that are at most so wide: one, unless somebody has very long names."""
    pieces = [word]
    while len(pieces[-1]) > 1 and _width(pieces[-1], size, weight, _SANS) > width:
        last = pieces.pop()
        share = max(1, int(len(last) * width / _width(last, size, weight, _SANS)) - 1)
        pieces += [last[:share], last[share:]]
    return pieces


@lru_cache(maxsize=4096)
def _width(text: str, size: float, weight: str, family: str) -> float:
    """The width of a text, in points, by the settings of `pdf_of`."""
    font = FontProperties(family=family, weight=weight, size=size)
    return float(_SHAPES.get_text_width_height_descent(text, font, ismath=False)[0])
