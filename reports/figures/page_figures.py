"""Figures in a page: maps of scores as the page's own cells, which fill any width, and charts as SVG in its colours."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.colors import to_hex

from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.reports.content.panels import (
    Axis,
    MapPanel,
    colour_scale_ends,
    common_scale_of_panels,
    mark_cells_below_scale,
)
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.content.tables import Sheet, item_from_map_cell, panel_sheet
from dpsweep.reports.figures.drawing import GRID, INK, MUTED, PAPER, SERIES, Drawing
from dpsweep.reports.figures.figure_layout import legend_text_of_mark_or_state, marks_and_states
from dpsweep.reports.figures.heatmap import COLOURS, legible_ink

STOPS = 9
"""Colours by which a page's legend draws the colour scale."""

LEAST_ROW, USUAL_ROW, LARGEST_ROW, USUAL_PLOT, TALLEST_PLOT, TICK = 6, 46, 96, 320, 840, 15
"""CSS pixels: the heights of a map's row and of a whole map, and the height that a row's label needs."""

SHORT_TICK = 5
"""Letters of a label that stand side by side in a cell whose score is legible."""


@dataclass(frozen=True, kw_only=True)
class PageCell:
    """A cell of a map: the settings of its point, its score or state as in the table, and how it looks.

    `text` and `spread` are written into the cell, `colour` and `ink` are empty for a cell without a score, `look`
    names its mark or state for the style sheet. `right` places its settings left of the cell's right end.
    """

    settings: str
    result: str
    text: str
    spread: str
    runs: int
    colour: str
    ink: str
    look: str
    right: bool


@dataclass(frozen=True, kw_only=True)
class PageMap:
    """A panel as the page shows it: its axes, and its cells row by row from the top, None for points not in it."""

    title: str
    facet: tuple[str, ...]
    name: str
    across: Axis
    down: Axis
    cells: tuple[PageCell | None, ...]
    sheet: Sheet

    @property
    def row_height(self) -> int:
        """CSS pixels of a row: maps of few rows are not flat, and those of many rows fit a screen."""
        rows = len(self.down.values)
        return max(LEAST_ROW, min(LARGEST_ROW, max(USUAL_ROW, USUAL_PLOT // rows), TALLEST_PLOT // rows))

    @property
    def down_ticks(self) -> tuple[str, ...]:
        """The labels of the rows from the top; empty where they would touch."""
        every = math.ceil(TICK / self.row_height)
        return tuple(tick if place % every == 0 else "" for place, tick in enumerate(self.down.ticks))[::-1]

    @property
    def has_long_ticks(self) -> bool:
        """Whether the columns' labels are wider than a legible score."""
        return max(map(len, self.across.ticks)) > SHORT_TICK


@dataclass(frozen=True, kw_only=True)
class PageMaps:
    """The maps of a page on one colour scale, with one legend: `looks` are the marks and states that occur."""

    maps: tuple[PageMap, ...]
    heading: str
    ends: tuple[str, str, str]
    gradient: str
    looks: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> int:
        """The columns of the widest map."""
        return max(len(one.across.values) for one in self.maps)

    @property
    def most_beside(self) -> int:
        """The largest number of maps in a row."""
        several = len(self.maps)
        return several if several < 4 else next((most for most in (3, 2) if several % most == 0), 3)

    @property
    def has_cells_of_several_runs(self) -> bool:
        """Whether a cell is the mean of several runs."""
        return any(cell is not None and cell.runs > 1 for one in self.maps for cell in one.cells)


def page_maps_of_panels(panels: Sequence[MapPanel], heading: str) -> PageMaps | None:
    """The maps of these panels, whose colour scale is called `heading`; None for one cell, which the headline tells."""
    if sum(len(panel.cells) for panel in panels) < 2:
        return None
    panels, (low, high) = mark_cells_below_scale(panels), colour_scale_ends(panels)
    colours, scale = mpl.colormaps[COLOURS], common_scale_of_panels(panels)

    def colour_and_ink_of_score(score: float) -> tuple[str, str]:
        colour = colours((score - low) / (high - low))
        return to_hex(colour), legible_ink(colour)

    return PageMaps(
        maps=tuple(
            PageMap(
                title=panel.label,
                facet=panel.facet,
                name=panel.name,
                across=panel.across,
                down=panel.down,
                cells=tuple(_cells_of_panel(panel, colour_and_ink_of_score)),
                sheet=panel_sheet(panel),
            )
            for panel in panels
        ),
        heading=heading,
        ends=(scale.text(low), scale.text((low + high) / 2), scale.text(high)),
        gradient=", ".join(to_hex(colours(stop / (STOPS - 1))) for stop in range(STOPS)),
        looks=tuple((entry.name.lower(), legend_text_of_mark_or_state(entry)) for entry in marks_and_states(panels)),
    )


def _cells_of_panel(
    panel: MapPanel, colour_and_ink_of_score: Callable[[float], tuple[str, str]]
) -> Iterator[PageCell | None]:
    columns = len(panel.across.values)
    for row in reversed(range(len(panel.down.values))):
        for column in range(columns):
            cell = panel.cells.get((row, column))
            if cell is None:
                yield None
                continue
            keys = ((panel.across, column), (panel.down, row))
            score = cell.accuracy if cell.state is State.FINISHED else None
            colour, ink = ("", "") if score is None else colour_and_ink_of_score(score)
            ends = None if score is None or cell.low is None or cell.high is None else (cell.low, cell.high)
            yield PageCell(
                settings=", ".join(f"{axis.label} {axis.ticks[step]}" for axis, step in keys if axis.key is not None),
                result=item_from_map_cell(cell, panel.scale).text,
                text=cell.state.value if score is None else panel.scale.text(score),
                spread="" if score is None or ends is None else panel.scale.spread_text(score, *ends),
                runs=cell.runs,
                colour=colour,
                ink=ink,
                look=(cell.state if score is None else cell.mark).name.lower(),
                right=2 * column >= columns,
            )


CSS_PIXELS_PER_POINT = 96 / 72
_PAGE_COLOURS = {INK: "currentColor", MUTED: "var(--muted)", PAPER: "var(--paper)", GRID: "var(--line)"} | {
    colour: f"var(--series{place})" for place, colour in enumerate(SERIES)
}


def inline_svg(picture: Drawing) -> Markup:
    """The picture without external addresses or global styles, with its alternative text as `aria-label`.

    A picture that failed is a sentence that says so, in its place.

    *Guarantee*: texts were escaped when the SVG was written, and the alternative text is escaped here.
    """
    if picture.failure:
        return Markup('<p class="failure">{}</p>').format(sentence_on_failed_picture(picture))
    svg = picture.svg[picture.svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>|<metadata.*?</metadata>", "", svg, flags=re.DOTALL)
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
