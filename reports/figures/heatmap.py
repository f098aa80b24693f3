"""Heatmaps of scores over a grid.

Sizes in inches follow from the number of cells and the length of the labels, so that nothing overlaps on any grid.
Drawing uses neither pyplot's figures nor any global style. A state is shown by hatch and word, the best cell by frame
and star, never by colour alone.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dpsweep.accounting.printing import visible_lines
from dpsweep.reports.content.formatting import count, half_width, percent
from dpsweep.reports.content.panels import Cell, MapPanel, Mark, clipped, scale
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.figures import cell_marks as marks
from dpsweep.reports.figures.coloured_cells import colour_cells
from dpsweep.reports.figures.drawing_settings import drawn, own_settings
from dpsweep.reports.figures.figure_layout import (
    CELL_FONT,
    FACET_LINE,
    KEY_SAMPLE,
    LABEL_FONT,
    SMALL_FONT,
    TICK_FONT,
    TITLE_FONT,
    TITLE_LINE,
    Layout,
    Place,
    lay_out,
    meaning,
)
from dpsweep.reports.figures.vector_file import pdf_of

PNG_DPI = 300
FAILED_WIDTH = 4 * PNG_DPI
"""Pixels of the place in a page where the sentence on a failed map stands."""

COLOURS = "viridis"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "hatch.linewidth": 0.45,
    "font.family": ["DejaVu Sans"],
    "path.simplify": True,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A drawn map: its panels, PNG bytes of `width` x `height` pixels, SVG text, and a function that makes its PDF.

    `failure` says why it could not be drawn, and is empty otherwise; a picture that failed has its panels alone.
    """

    name: str
    alt: str
    panels: tuple[MapPanel, ...]
    width: int = FAILED_WIDTH
    height: int = FAILED_WIDTH
    png: bytes = b""
    svg: str = ""
    pdf: Callable[[], bytes] = field(default=bytes, compare=False, repr=False)
    failure: str = ""

    @property
    def css_size(self) -> tuple[float, float]:
        """Width and height in CSS pixels, 96 to an inch."""
        return self.width * 96 / PNG_DPI, self.height * 96 / PNG_DPI


def pictures(panels: Sequence[MapPanel], measure: str) -> tuple[Picture, ...]:
    """The whole sweep in one figure, then a figure per method, all on one colour scale.

    `measure` is the label of the colour scale.
    """
    panels, limits = clipped(panels), scale(panels)
    whole = _picture("heatmap", panels, limits, measure)
    groups = {
        f"heatmap-{_file_name(method)}": tuple(group)
        for method, group in groupby(panels, key=lambda panel: panel.method)
    }
    if len(groups) == 1:
        return (whole, *(replace(whole, name=name) for name in groups))
    return (whole, *(_picture(name, group, limits, measure) for name, group in groups.items()))


def figure(panels: Sequence[MapPanel], limits: tuple[float, float], measure: str) -> Figure:
    """The panels as an Agg figure that pyplot does not know; `limits` are the colour scale's ends, in [0, 1].

    The figure has its canvas at the end: seaborn draws whatever canvas there is, once for each panel.
    """
    layout = lay_out(panels)
    colours, norm = mpl.colormaps[COLOURS], Normalize(100 * limits[0], 100 * limits[1])
    canvas = Figure(figsize=(layout.width, layout.height))
    sheet = _sheet(canvas, layout)
    for panel, place in zip(panels, layout.places, strict=True):
        _draw_panel(canvas, sheet, layout, panel, place, colours, norm)
    _draw_scale(canvas, sheet, layout, colours, norm, measure)
    for (x, y), entry in zip(layout.key_places, layout.key, strict=True):
        _draw_key_entry(sheet, x, y, entry)
    FigureCanvasAgg(canvas)
    return canvas


def _picture(name: str, panels: Sequence[MapPanel], limits: tuple[float, float], measure: str) -> Picture:
    """The map, or its panels with the reason why it could not be drawn."""
    alone = Picture(name=name, alt=_alt(panels), panels=tuple(panels))
    return drawn(lambda: _drawn_map(alone, limits, measure), lambda reason: replace(alone, failure=reason))


def _drawn_map(undrawn: Picture, limits: tuple[float, float], measure: str) -> Picture:
    with own_settings(STYLE, undrawn.name):
        canvas = figure(undrawn.panels, limits, measure)
        png, svg = io.BytesIO(), io.StringIO()
        canvas.savefig(png, format="png", dpi=PNG_DPI, facecolor="white", metadata={"Software": None})
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        canvas.savefig(svg, format="svg", transparent=True, metadata=no_metadata)
        width, height = (round(inches * PNG_DPI) for inches in canvas.get_size_inches())
    return replace(
        undrawn,
        width=width,
        height=height,
        png=png.getvalue(),
        svg=visible_lines(svg.getvalue()),
        pdf=cache(partial(pdf_of, canvas, STYLE)),
    )


def _sheet(canvas: Figure, layout: Layout) -> Axes:
    """Invisible axes over the whole figure, in inches."""
    sheet = canvas.add_axes((0, 0, 1, 1), label="sheet", zorder=-1)
    sheet.set(xlim=(0, layout.width), ylim=(0, layout.height))
    sheet.axis("off")
    return sheet


def _draw_panel(
    canvas: Figure, sheet: Axes, layout: Layout, panel: MapPanel, place: Place, colours: Colormap, norm: Normalize
) -> None:
    rows, columns = len(panel.down.values), len(panel.across.values)
    axes = canvas.add_axes(
        (
            place.x / layout.width,
            place.y / layout.height,
            place.width / layout.width,
            place.height / layout.height,
        )
    )
    values = np.full((rows, columns), math.nan)
    for (row, column), cell in panel.cells.items():
        if cell.state is State.FINISHED and cell.accuracy is not None:
            values[rows - 1 - row, column] = 100 * cell.accuracy
    line_width = 0.6 if place.annotated else 0
    colour_cells(axes, values, colours, norm, line_width=line_width, line_colour=marks.PAPER)
    _draw_ticks(axes, place, rows)
    for (row, column), cell in sorted(panel.cells.items(), key=lambda item: item[1].mark):
        _draw_cell(axes, column, rows - 1 - row, cell, place, colours, norm)
    _draw_titles(sheet, panel, place)


def _draw_ticks(axes: Axes, place: Place, rows: int) -> None:
    style: dict[str, Any] = {"fontsize": TICK_FONT, "color": marks.INK, "parse_math": False}
    across, down = place.shown_across, place.shown_down
    axes.set_xticks(
        [index + 0.5 for index in across],
        labels=[place.across_ticks[index] for index in across],
        rotation=90 if place.turned else 0,
        **style,
    )
    axes.set_yticks(
        [rows - index - 0.5 for index in down],
        labels=[place.down_ticks[index] for index in down],
        rotation=0,
        va="center",
        **style,
    )
    axes.tick_params(length=0, pad=2.2)


def _draw_titles(sheet: Axes, panel: MapPanel, place: Place) -> None:
    style: dict[str, Any] = {"parse_math": False, "va": "baseline"}
    y = place.y + place.height + 0.07
    for line in reversed(place.facet_lines):
        sheet.text(place.x, y, line, fontsize=TICK_FONT, color=marks.MUTED, **style)
        y += FACET_LINE
    for line in reversed(place.title_lines):
        sheet.text(place.x, y + 0.015, line, fontsize=TITLE_FONT, color=marks.INK, fontweight="bold", **style)
        y += TITLE_LINE
    middle = place.x + place.width / 2
    if panel.across.key is not None:
        sheet.text(
            middle, place.label_y, place.across_label, fontsize=LABEL_FONT, color=marks.INK, ha="center", **style
        )
    if panel.down.key is not None:
        sheet.text(
            place.label_x,
            place.y + place.height / 2,
            place.down_label,
            fontsize=LABEL_FONT,
            color=marks.INK,
            rotation=90,
            ha="left",
            va="center",
            parse_math=False,
        )


def _draw_cell(axes: Axes, x: int, y: int, cell: Cell, place: Place, colours: Colormap, norm: Normalize) -> None:
    ink = marks.ON_BLANK
    if cell.state is State.FINISHED and cell.accuracy is not None:
        ink = marks.legible(colours(norm(100 * cell.accuracy)))
        if place.annotated:
            has_interval = cell.low is not None and cell.high is not None
            marks.write(axes, x + 0.5, y + (0.42 if has_interval else 0.5), percent(cell.accuracy), CELL_FONT, ink)
            if cell.low is not None and cell.high is not None:
                marks.write(axes, x + 0.5, y + 0.78, half_width(cell.low, cell.high), SMALL_FONT, ink)
    else:
        marks.blank(axes, x, y, 1, 1, cell.state)
        if place.annotated:
            word = marks.write(axes, x + 0.5, y + 0.5, cell.state.value, SMALL_FONT, marks.word_ink(cell.state))
            if cell.state in marks.HATCHES:
                word.set_bbox({"facecolor": marks.BLANK, "edgecolor": "none", "pad": 0.8})
    if cell.runs > 1 and place.annotated:
        marks.write(axes, x + 0.16, y + 0.2, f"\N{MULTIPLICATION SIGN}{cell.runs}", SMALL_FONT, ink)
    if cell.mark is Mark.BELOW:
        marks.below(axes, x + 0.87, y + 0.2, ink)
    elif cell.mark is not Mark.NONE:
        marks.frame(axes, x, y, 1, 1, cell.mark)
    if cell.mark is Mark.BEST and place.annotated:
        marks.star(axes, x + 0.87, y + 0.2, ink)


def _draw_scale(canvas: Figure, sheet: Axes, layout: Layout, colours: Colormap, norm: Normalize, measure: str) -> None:
    """Draws the colour scale with numbers at both ends and in the middle."""
    if not layout.has_scale:
        return
    x, y, width, height = layout.scale_place
    bar = canvas.add_axes((x / layout.width, y / layout.height, width / layout.width, height / layout.height))
    bar.imshow([[step / 255 for step in range(256)]], cmap=colours, aspect="auto", extent=(0, 1, 0, 1))
    bar.set_axis_off()
    low, high = float(norm.vmin or 0), float(norm.vmax or 0)
    for place, align in ((0.0, "left"), (0.5, "center"), (1.0, "right")):
        text = percent((low + place * (high - low)) / 100)
        sheet.text(x + place * width, y - 0.04, text, fontsize=TICK_FONT, color=marks.INK, ha=align, va="top")
    sheet.text(
        x + width + 0.1,
        y + height / 2,
        measure,
        fontsize=TICK_FONT,
        color=marks.INK,
        va="center",
        parse_math=False,
    )


def _draw_key_entry(sheet: Axes, x: float, y: float, entry: State | Mark) -> None:
    """Draws a sample and its legend text."""
    width, height = KEY_SAMPLE
    if isinstance(entry, Mark):
        sheet.add_patch(Rectangle((x, y), width, height, facecolor=marks.BLANK, edgecolor="none"))
        if entry is Mark.BELOW:
            marks.below(sheet, x + width / 2, y + height / 2, marks.ON_BLANK)
        else:
            marks.frame(sheet, x, y, width, height, entry)
        if entry is Mark.BEST:
            marks.star(sheet, x + width / 2, y + height / 2, marks.ON_BLANK)
    else:
        marks.blank(sheet, x, y, width, height, entry)
    sheet.text(x + width + 0.06, y + height / 2, meaning(entry), fontsize=TICK_FONT, color=marks.INK, va="center")


def _alt(panels: Sequence[MapPanel]) -> str:
    def parts() -> Iterator[str]:
        for panel in panels:
            over = " and ".join(axis.label for axis in (panel.across, panel.down) if axis.key is not None)
            finished = [cell for cell in panel.cells.values() if cell.state is State.FINISHED]
            scores = [cell.accuracy for cell in finished if cell.accuracy is not None]
            span = f", scores from {percent(min(scores))} to {percent(max(scores))} percent" if scores else ""
            points = f"{count(len(panel.cells), 'point')}, {len(finished)} finished"
            yield f"{panel.name} over {over or 'nothing'}: {points}{span}"

    return f"Map of scores. {'. '.join(parts())}. The numbers are in the table below."


def _file_name(method: str) -> str:
    """A method's name with ASCII letters and digits only, so that no name leads out of the folder."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in method)
