"""Figures in a page: their widths in rows, the texts of a map's cells, and their SVG in the page's colours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.reports.content.panels import MapPanel
from dpsweep.reports.content.tables import item_from_map_cell
from dpsweep.reports.figures.drawing import GRID, INK, MUTED, PAPER, SERIES, Drawing
from dpsweep.reports.figures.figure_layout import Layout, Place, lay_out_panels

COLUMN, SPACE = 1072.0, 40.0
"""CSS pixels of the narrowest column in which figures stand side by side, and between two figures."""

LEAST_SCALE, MOST_SCALE, TALLEST = 1.05, 1.45, 840.0
"""Scales from a figure's own size at which texts are legible and not larger than headings; the largest height."""

Size = tuple[float, float]


def figure_scale_for_fewest_rows(sizes: Sequence[Size]) -> float:
    """The scale of all figures of these sizes (width, height in CSS pixels): the largest one with the fewest rows.

    Figures stay in their order. A figure that is wider than the column at `LEAST_SCALE` sets a smaller scale.

    >>> [round(figure_scale_for_fewest_rows([(360, 250)] * figures), 2) for figures in (1, 2, 3, 4)]
    [1.45, 1.43, 1.43, 1.43]
    """
    fits = min(COLUMN / width for width, _ in sizes)
    most = min(fits, MOST_SCALE, max(LEAST_SCALE, TALLEST / max(height for _, height in sizes)))
    if most <= LEAST_SCALE:
        return most
    fewest = _count_rows_of_figures(sizes, LEAST_SCALE)
    candidates = (scale for scale in (most, *_scales_that_fill_a_row(sizes)) if LEAST_SCALE <= scale <= most)
    return max((scale for scale in candidates if _count_rows_of_figures(sizes, scale) <= fewest), default=LEAST_SCALE)


def figure_widths_as_column_shares(sizes: Sequence[Size]) -> tuple[float, ...]:
    """The width of each figure as a share of the column, rounded down, at their common scale."""
    scale = figure_scale_for_fewest_rows(sizes) if sizes else 1.0
    return tuple(int(10_000 * scale * width / COLUMN) / 10_000 for width, _ in sizes)


def _scales_that_fill_a_row(sizes: Sequence[Size]) -> Iterator[float]:
    """The scales at which some consecutive figures fill a row exactly."""
    for first in range(len(sizes)):
        for last in range(first + 1, len(sizes) + 1):
            room = COLUMN - SPACE * (last - first - 1)
            yield room / sum(width for width, _ in sizes[first:last])


def _count_rows_of_figures(sizes: Sequence[Size], scale: float) -> int:
    """The number of rows that figures need, each placed in the last row if it fits there."""
    rows, used = 1, -SPACE
    for width, _ in sizes:
        used += SPACE + scale * width
        if used > COLUMN + 1e-6:
            rows, used = rows + 1, scale * width
    return rows


@dataclass(frozen=True, kw_only=True)
class CellText:
    """The settings of a point, and its score or state as in the table; `right` places it left of the cell's right."""

    settings: str
    result: str
    right: bool


@dataclass(frozen=True, kw_only=True)
class PanelTexts:
    """The texts of a panel, row by row from the top, None for points that are not in the grid.

    `left`, `top`, `width` and `height` are the panel's place in the figure, as shares of the figure.
    """

    name: str
    left: float
    top: float
    width: float
    height: float
    columns: int
    rows: int
    cells: tuple[CellText | None, ...]


def cell_texts_by_panel(panels: Sequence[MapPanel]) -> tuple[PanelTexts, ...]:
    """The texts of all panels of a figure."""
    layout = lay_out_panels(panels)
    return tuple(
        PanelTexts(
            name=panel.name,
            left=place.x / layout.width,
            top=1 - (place.y + place.height) / layout.height,
            width=place.width / layout.width,
            height=place.height / layout.height,
            columns=len(panel.across.values),
            rows=len(panel.down.values),
            cells=tuple(_cell_texts_of_panel(layout, place, panel)),
        )
        for place, panel in zip(layout.places, panels, strict=True)
    )


def _cell_texts_of_panel(layout: Layout, place: Place, panel: MapPanel) -> Iterator[CellText | None]:
    columns = len(panel.across.values)
    for row in reversed(range(len(panel.down.values))):
        for column in range(columns):
            cell = panel.cells.get((row, column))
            middle = place.x + place.width * (column + 0.5) / columns
            if cell is None:
                yield None
                continue
            keys = ((panel.across, column), (panel.down, row))
            settings = ", ".join(f"{axis.label} {axis.ticks[step]}" for axis, step in keys if axis.key is not None)
            yield CellText(
                settings=settings, result=item_from_map_cell(cell, panel.scale).text, right=2 * middle > layout.width
            )


CSS_PIXELS_PER_POINT = 96 / 72
_PAGE_COLOURS = {INK: "currentColor", MUTED: "var(--muted)", PAPER: "var(--paper)", GRID: "var(--line)"} | {
    colour: f"var(--series{place})" for place, colour in enumerate(SERIES)
}


_NUMBER = r"(-?[\d.]+)"
_CELL = re.compile(
    rf'<path d="M {_NUMBER} {_NUMBER} \nL {_NUMBER} \2 \nL \3 {_NUMBER} \nL \1 \4 \nL \1 \2 \n" '
    r'clip-path="[^"]*" style="fill: (#[0-9a-f]{6})"/>'
)
"""A filled rectangle without an outline, as matplotlib writes a cell of a map; a page may have thousands."""


def inline_svg(picture: Drawing) -> Markup:
    """The picture without external addresses or global styles, with its alternative text as `aria-label`.

    A picture that failed is a sentence that says so, in its place.

    *Guarantee*: texts were escaped when the SVG was written, and the alternative text is escaped here.
    """
    if picture.failure:
        return Markup('<p class="failure">{}</p>').format(sentence_on_failed_picture(picture))
    svg = picture.svg[picture.svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>|<metadata.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = _CELL.sub(r'<path d="M\1 \2H\3V\4H\1z" fill="\5"/>', svg)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{picture.name}-', svg)
    svg = svg.replace("url(#", f"url(#{picture.name}-").replace('href="#', f'href="#{picture.name}-')
    svg = svg.replace("font-family: 'DejaVu Sans'; ", "")
    for colour, variable in _PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    return Markup(re.sub(r"<svg [^>]*>", lambda tag: _accessible_svg_opening_tag(tag.group(), picture), svg, count=1))


def sentence_on_failed_picture(picture: Drawing) -> str:
    """The sentence in place of a picture that failed."""
    return f"The picture {picture.name} could not be drawn: {escape_invisible_characters(picture.failure).rstrip('.')}."


def _accessible_svg_opening_tag(tag: str, picture: Drawing) -> str:
    (view,) = re.findall(r'viewBox="([^"]*)"', tag)
    width = round(float(view.split()[2]) * CSS_PIXELS_PER_POINT)
    return (
        f'<svg viewBox="{view}" width="{width}" style="min-width:{round(0.85 * width)}px" role="img" '
        f'aria-label="{escape(escape_invisible_characters(picture.alt))}">'
    )
