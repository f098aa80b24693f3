"""The one-page privacy statement of a release, to be printed, dated and signed: what it says, and its PDF file.

The file is one A4 page by matplotlib: no browser, and the same bytes each time.
"""

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

from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up
from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.reports.figures.drawing import GRID, INK, MUTED, SERIES, own_matplotlib_settings
from dpsweep.reports.statement.released_claim import ReleasedClaim, ReleasedModel

REPORT = (
    "The SHA-256 of report.json, which has what is claimed here. The curator's ledger has a line for this release, and "
    "its digest covers that file."
)
MODEL = "The SHA-256 of {file}. The charges pay for one model, and the ledger refuses a second one."
SIGNED = ("Date", "Name and office", "Signature")
"""The lines that a person fills in."""


@dataclass(frozen=True, kw_only=True)
class StatementRow:
    """One row: its label, its text, and points below it. `code` is set in letters of equal width."""

    label: str
    text: str = ""
    points: tuple[str, ...] = ()
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class OnePage:
    """The statement: what it is about, the claim in large letters, the rows, and the lines to sign."""

    title: str
    about: str
    epsilon: str
    delta: str
    claim: str
    rows: tuple[StatementRow, ...]
    signed: tuple[str, ...] = SIGNED

    @property
    def has_claim(self) -> bool:
        """Whether something is claimed: not of data that were declared public."""
        return bool(self.epsilon)


def one_page_statement(claim: ReleasedClaim) -> OnePage:
    """The statement on a claim; data declared public have none, and the statement says so."""
    rows = (
        StatementRow(label="Protected", text=claim.line_text_on_topic("Unit and neighbours")),
        StatementRow(label="Selection rule", text=f"{claim.rule.replace('_', ' ').capitalize()}: {claim.discloses}."),
        StatementRow(label="Covered", text=claim.line_text_on_topic("Covered")),
        StatementRow(label="Outcome", text=claim.outcome),
        StatementRow(label="Accountants", text=claim.line_text_on_topic("Accountants")),
        StatementRow(label="Meaning", text=claim.line_text_on_topic("Meaning")),
        StatementRow(label="Winner", text=claim.line_text_on_topic("Winner")),
        StatementRow(label="The account", text=claim.account_reserved_and_budget_sentence),
        StatementRow(label="Not covered", points=claim.not_covered_sentences),
        StatementRow(label="Trust", text=claim.line_text_on_topic("Trust")),
        StatementRow(label="Report", text=REPORT, code=claim.report),
        *row_of_model(claim.model),
    )
    return OnePage(
        title=f"Privacy statement: {claim.account}",
        about=claim.headline,
        epsilon="" if claim.nobody else epsilon_text_rounded_up(claim.epsilon),
        delta="" if claim.nobody else delta_text_rounded_up(claim.delta),
        claim=claim.line_text_on_topic("Claim"),
        rows=tuple(row for row in rows if row.text or row.points),
    )


def row_of_model(model: ReleasedModel | None) -> tuple[StatementRow, ...]:
    """The row that names the released model; none where the release has none."""
    return (
        () if model is None else (StatementRow(label="Model", text=MODEL.format(file=model.file), code=model.sha256),)
    )


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
        figure.text(
            *place,
            escape_invisible_characters(self.text),
            fontproperties=font,
            color=self.ink,
            va="baseline",
            parse_math=False,
        )


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


def row_font_size_that_fits(page: OnePage) -> float:
    """The size of the rows' text in points at which one A4 page holds the statement: the largest of `SIZES`."""
    with own_matplotlib_settings(_STYLE):
        start = _y_below_marks(_head_marks(page))
        fitting = (size for size in SIZES if _row_marks_and_end(page.rows, start, size)[1] <= HEIGHT - MARGIN - SIGNING)
        return next(fitting, SIZES[-1])


def pdf_bytes_of_page(page: OnePage) -> bytes:
    """The statement as a PDF file without dates; rows are set smaller until the page holds them."""
    stream = io.BytesIO()
    nothing = {"CreationDate": None, "Producer": None, "Creator": None}
    with own_matplotlib_settings(_STYLE):
        top = list(_head_marks(page))
        rows, _ = _row_marks_and_end(page.rows, _y_below_marks(top), row_font_size_that_fits(page))
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        FigureCanvasPdf(figure)
        for mark in (*top, *rows, *_signature_marks(page.signed)):
            mark.draw_on(figure)
        figure.savefig(stream, format="pdf", metadata={**nothing, "Title": page.title})
    return stream.getvalue()


def _y_below_marks(marks: Iterable[Drawn]) -> float:
    """Where the rows begin."""
    return max(mark.y for mark in marks) + 20


def _head_marks(page: OnePage) -> Iterator[Drawn]:
    """Title, subject, and the claim in large letters."""
    y = MARGIN + 14
    for line in _wrap_text(page.title, 17, WIDTH - 2 * MARGIN, weight="bold"):
        yield PlacedWords(x=MARGIN, y=y, text=line, size=17, weight="bold")
        y += 21
    for line in _wrap_text(page.about, 9, WIDTH - 2 * MARGIN):
        yield PlacedWords(x=MARGIN, y=y - 3, text=line, size=9, ink=MUTED)
        y += 13
    y += 26
    if page.has_claim:
        text = f"\N{GREEK SMALL LETTER EPSILON} \N{LESS-THAN OR EQUAL TO} {page.epsilon}"
        yield PlacedWords(x=MARGIN, y=y, text=text, size=26, weight="bold", ink=SERIES[0])
        after = MARGIN + _text_width_in_points(text, 26, "bold", _SANS) + 14
        yield PlacedWords(x=after, y=y, text=f"at \N{GREEK SMALL LETTER DELTA} = {page.delta}", size=13, ink=MUTED)
    else:
        yield PlacedWords(x=MARGIN, y=y, text="No claim", size=26, weight="bold", ink=SERIES[-1])
    y += 22
    for line in _wrap_text(page.claim, 10, WIDTH - 2 * MARGIN):
        yield PlacedWords(x=MARGIN, y=y, text=line, size=10)
        y += 14


def _row_marks_and_end(rows: Sequence[StatementRow], start: float, size: float) -> tuple[list[Drawn], float]:
    """The rows in this size, and the place where they end."""
    marks: list[Drawn] = []
    y, left = start, MARGIN + LABEL
    for row in rows:
        marks.append(HorizontalLine(y=y))
        y += (GAP + 1) * size
        marks.append(PlacedWords(x=MARGIN, y=y, text=row.label, size=size, weight="bold"))
        for line in _wrap_text(row.text, size, WIDTH - MARGIN - left):
            marks.append(PlacedWords(x=left, y=y, text=line, size=size))
            y += LEADING * size
        for point in row.points:
            marks.append(PlacedWords(x=left, y=y, text="\N{BULLET}", size=size, ink=MUTED))
            for line in _wrap_text(point, size, WIDTH - MARGIN - left - size):
                marks.append(PlacedWords(x=left + size, y=y, text=line, size=size))
                y += LEADING * size
        if row.code:
            marks.append(PlacedWords(x=left, y=y, text=row.code, size=min(size, 9), family=_MONO))
            y += LEADING * size
        y += (GAP - LEADING + 0.42) * size
    return [*marks, HorizontalLine(y=y)], y


def _signature_marks(signed: Sequence[str]) -> Iterator[Drawn]:
    """The lines to sign, side by side."""
    y, gap = HEIGHT - MARGIN - 14, 18.0
    width = (WIDTH - 2 * MARGIN + gap) / len(signed)
    for place, label in enumerate(signed):
        x = MARGIN + place * width
        yield HorizontalLine(y=y, x=x, end=x + width - gap, ink=INK)
        yield PlacedWords(x=x, y=y + 12, text=label, size=8, ink=MUTED)


def _wrap_text(text: str, size: float, width: float, weight: str = "normal") -> list[str]:
    """The lines of a text that are at most so wide, in points; a word that is wider is cut."""
    lines: list[str] = []
    line = ""
    for word in (part for one in text.split() for part in _cut_word(one, size, width, weight)):
        longer = f"{line} {word}" if line else word
        if line and _text_width_in_points(longer, size, weight, _SANS) > width:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line] if line else lines


def _cut_word(word: str, size: float, width: float, weight: str) -> list[str]:
    """A word in pieces that are at most so wide: one, unless somebody has very long names."""
    pieces = [word]
    while len(pieces[-1]) > 1 and _text_width_in_points(pieces[-1], size, weight, _SANS) > width:
        last = pieces.pop()
        share = max(1, int(len(last) * width / _text_width_in_points(last, size, weight, _SANS)) - 1)
        pieces += [last[:share], last[share:]]
    return pieces


@lru_cache(maxsize=4096)
def _text_width_in_points(text: str, size: float, weight: str, family: str) -> float:
    """The width of a text, in points, by the settings of `pdf_bytes_of_page`."""
    font = FontProperties(family=family, weight=weight, size=size)
    return float(_SHAPES.get_text_width_height_descent(text, font, ismath=False)[0])
