"""Heatmaps of scores over a grid.

Sizes in inches follow from the number of cells and the length of the labels, so that nothing overlaps on any grid.
Drawing uses neither pyplot's figures nor any global style. A state is shown by hatch and word, the best cell by frame
and star, never by colour alone. Seaborn colours the cells, and only this module imports it: it uses scipy's statistics
for density estimates only, and has its own where they are missing. No map needs them, and they take longer to import
than seaborn and pandas together, so seaborn is imported as if they were missing.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import groupby
from textwrap import wrap
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from dpsweep.accounting.errors import BadInput
from dpsweep.reports.content.formatting import count_text
from dpsweep.reports.content.panels import (
    Cell,
    MapPanel,
    Mark,
    build_map_panels,
    colour_scale_ends,
    common_scale_of_panels,
    mark_cells_below_scale,
)
from dpsweep.reports.content.score_scale import ScoreScale
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.figures.drawing import BLANK, INK, MUTED, PAPER, Drawing, own_matplotlib_settings
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
    estimated_text_width_in_inches,
    lay_out_panels,
    legend_text_of_mark_or_state,
)


@contextmanager
def _hide_module_from_imports(name: str) -> Iterator[None]:
    """Within it this module cannot be imported, unless it was imported before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # the import system's own sign for a module that is missing
    try:
        yield
    finally:
        del sys.modules[name]


with _hide_module_from_imports("scipy.stats"):
    import seaborn as sns


PNG_DPI = 300
NO_LETTER = re.compile("[^a-zA-Z0-9]")
COLOURS = "viridis"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "hatch.linewidth": 0.45,
    "font.family": ["DejaVu Sans"],
    "path.simplify": True,
    "axes.unicode_minus": True,
}

ON_BLANK, HATCH = "#22242a", "#b3b7be"
STAR, TRIANGLE = "*", "v"
HATCHES: Mapping[State, str] = {
    State.DIVERGED: "////",
    State.FAILED: "xxxx",
    State.KILLED: "||||",
    State.NO_RESULT: "xxxx",
}

_LINES: Mapping[Mark, tuple[float, float, Any]] = {
    Mark.BEST: (2.4, 1.3, "solid"),
    Mark.CHOSEN: (2.4, 1.3, "solid"),
    Mark.BEST_OF_METHOD: (2.0, 0.9, (0, (2.2, 1.4))),
    Mark.AS_GOOD: (1.4, 0.5, "solid"),
}
"""Widths of the light and the dark line of a frame, and its dashes."""

SCREEN_DPI = 150
"""Pixels per inch in a notebook: figures have the size that they have in a paper."""

METHOD, SCORE, NOISE = "method", "accuracy", "noise_multiplier"
IN_NOTEBOOKS = "_repr_png_"
"""IPython's name of the method that shows a value as a picture; it has one for figures only after pyplot was used."""


def draw_joint_and_per_method_heatmaps(panels: Sequence[MapPanel], measure: str) -> tuple[Drawing, ...]:
    """The whole sweep in one figure, then a figure per method, all on one colour scale; none without panels.

    `measure` is the label of the colour scale.
    """
    if not panels:
        return ()
    panels, limits = mark_cells_below_scale(panels), colour_scale_ends(panels)
    whole = _drawing_or_failure_of_panels("heatmap", panels, limits, measure)
    groups = {
        f"heatmap-{NO_LETTER.sub('-', method)}": tuple(group)  # no name leads out of the folder
        for method, group in groupby(panels, key=lambda panel: panel.method)
    }
    if len(groups) == 1:
        return (whole, *(replace(whole, name=name) for name in groups))
    return (whole, *(_drawing_or_failure_of_panels(name, group, limits, measure) for name, group in groups.items()))


def draw_one_heatmap(name: str, panels: Sequence[MapPanel], measure: str) -> Drawing:
    """All panels in one figure of this name, on one colour scale with the label `measure`."""
    return _drawing_or_failure_of_panels(name, mark_cells_below_scale(panels), colour_scale_ends(panels), measure)


def matplotlib_figure_of_panels(panels: Sequence[MapPanel], limits: tuple[float, float], measure: str) -> Figure:
    """The panels as an Agg figure that pyplot does not know; `limits` are the colour scale's ends, in [0, 1].

    The figure has its canvas at the end: seaborn draws whatever canvas there is, once for each panel.
    """
    layout = lay_out_panels(panels)
    colours, norm = mpl.colormaps[COLOURS], Normalize(100 * limits[0], 100 * limits[1])
    canvas = Figure(figsize=(layout.width, layout.height))
    sheet = canvas.add_axes((0, 0, 1, 1), label="sheet", zorder=-1)  # invisible, over the whole figure, in inches
    sheet.set(xlim=(0, layout.width), ylim=(0, layout.height))
    sheet.axis("off")
    for panel, place in zip(panels, layout.places, strict=True):
        _draw_panel(canvas, sheet, layout, panel, place, colours, norm)
    _draw_colour_scale(canvas, sheet, layout, colours, norm, measure, common_scale_of_panels(panels))
    for (x, y), entry in zip(layout.key_places, layout.key, strict=True):
        _draw_legend_entry(sheet, x, y, entry)
    FigureCanvasAgg(canvas)
    return canvas


def _drawing_or_failure_of_panels(
    name: str, panels: Sequence[MapPanel], limits: tuple[float, float], measure: str
) -> Drawing:
    """The map, or its panels with the reason why it could not be drawn."""
    picture = Drawing(name=name, alt=_alt_text(panels), panels=tuple(panels))
    return picture.with_rendered_files(partial(matplotlib_figure_of_panels, panels, limits, measure), STYLE, PNG_DPI)


def _draw_panel(
    canvas: Figure, sheet: Axes, layout: Layout, panel: MapPanel, place: Place, colours: Colormap, norm: Normalize
) -> None:
    rows, columns = len(panel.down.values), len(panel.across.values)
    axes = canvas.add_axes(
        (place.x / layout.width, place.y / layout.height, place.width / layout.width, place.height / layout.height)
    )
    values = np.full((rows, columns), math.nan)
    for (row, column), cell in panel.cells.items():
        if cell.state is State.FINISHED and cell.accuracy is not None:
            values[rows - 1 - row, column] = 100 * cell.accuracy
    limits = {"vmin": norm.vmin, "vmax": norm.vmax}
    lines = {"linewidths": 0.6 if place.annotated else 0, "linecolor": PAPER}
    without = dict.fromkeys(("cbar", "xticklabels", "yticklabels"), False)
    sns.heatmap(values, ax=axes, cmap=colours, **limits, **lines, **without)
    axes.set(xlabel="", ylabel="")
    _draw_ticks(axes, place, rows)
    for (row, column), cell in sorted(panel.cells.items(), key=lambda item: item[1].mark):
        _draw_cell(axes, column, rows - 1 - row, cell, panel.scale, place, colours, norm)
    _draw_titles(sheet, panel, place)


def _draw_ticks(axes: Axes, place: Place, rows: int) -> None:
    style: dict[str, Any] = {"fontsize": TICK_FONT, "color": INK, "parse_math": False}
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
        sheet.text(place.x, y, line, fontsize=TICK_FONT, color=MUTED, **style)
        y += FACET_LINE
    for line in reversed(place.title_lines):
        sheet.text(place.x, y + 0.015, line, fontsize=TITLE_FONT, color=INK, fontweight="bold", **style)
        y += TITLE_LINE
    left, below = place.label_place
    middle = place.x + place.width / 2
    if panel.across.key is not None:
        sheet.text(middle, below, place.across_label, fontsize=LABEL_FONT, color=INK, ha="center", **style)
    if panel.down.key is not None:
        turned = style | {"rotation": 90, "ha": "left", "va": "center"}
        middle = place.y + place.height / 2
        sheet.text(left, middle, place.down_label, fontsize=LABEL_FONT, color=INK, **turned)


def _draw_cell(
    axes: Axes, x: int, y: int, cell: Cell, scale: ScoreScale, place: Place, colours: Colormap, norm: Normalize
) -> None:
    ink = ON_BLANK
    if cell.state is State.FINISHED and cell.accuracy is not None:
        ink = legible_ink(colours(norm(100 * cell.accuracy)))
        if place.annotated:
            has_interval = cell.low is not None and cell.high is not None
            write_centred_text(
                axes, x + 0.5, y + (0.42 if has_interval else 0.5), scale.text(cell.accuracy), CELL_FONT, ink
            )
            if cell.low is not None and cell.high is not None:
                spread = scale.spread_text(cell.accuracy, cell.low, cell.high)
                write_centred_text(axes, x + 0.5, y + 0.78, spread, SMALL_FONT, ink)
    else:
        draw_blank_cell(axes, x, y, 1, 1, cell.state)
        if place.annotated:
            ink_of_word = ON_BLANK if cell.state in HATCHES else MUTED
            word = write_centred_text(axes, x + 0.5, y + 0.5, cell.state.value, SMALL_FONT, ink_of_word)
            if cell.state in HATCHES:
                word.set_bbox({"facecolor": BLANK, "edgecolor": "none", "pad": 0.8})
    if cell.runs > 1 and place.annotated:
        write_centred_text(axes, x + 0.16, y + 0.2, f"\N{MULTIPLICATION SIGN}{cell.runs}", SMALL_FONT, ink)
    if cell.mark is Mark.BELOW:
        draw_star_or_triangle(axes, x + 0.87, y + 0.2, TRIANGLE, ink)
    elif cell.mark is not Mark.NONE:
        draw_cell_frame(axes, x, y, 1, 1, cell.mark)
    if cell.mark is Mark.BEST and place.annotated:
        draw_star_or_triangle(axes, x + 0.87, y + 0.2, STAR, ink)


def _draw_colour_scale(
    canvas: Figure,
    sheet: Axes,
    layout: Layout,
    colours: Colormap,
    norm: Normalize,
    measure: str,
    scale: ScoreScale,
) -> None:
    """Draws the colour scale with numbers at both ends and in the middle."""
    if not layout.has_scale:
        return
    x, y, width, height = layout.scale_place
    bar = canvas.add_axes((x / layout.width, y / layout.height, width / layout.width, height / layout.height))
    bar.imshow([[step / 255 for step in range(256)]], cmap=colours, aspect="auto", extent=(0, 1, 0, 1))
    bar.set_axis_off()
    low, high = float(norm.vmin or 0), float(norm.vmax or 0)
    for place, align in ((0.0, "left"), (0.5, "center"), (1.0, "right")):
        text = scale.text((low + place * (high - low)) / 100)
        sheet.text(x + place * width, y - 0.04, text, fontsize=TICK_FONT, color=INK, ha=align, va="top")
    room = max(8, int((layout.width - x - width - 0.1) / estimated_text_width_in_inches("0", TICK_FONT)))
    label = "\n".join(wrap(measure, room))
    sheet.text(x + width + 0.1, y + height / 2, label, fontsize=TICK_FONT, color=INK, va="center", parse_math=False)


def _draw_legend_entry(sheet: Axes, x: float, y: float, entry: State | Mark) -> None:
    """Draws a sample and its legend text."""
    width, height = KEY_SAMPLE
    if isinstance(entry, Mark):
        sheet.add_patch(Rectangle((x, y), width, height, facecolor=BLANK, edgecolor="none"))
        if entry is Mark.BELOW:
            draw_star_or_triangle(sheet, x + width / 2, y + height / 2, TRIANGLE, ON_BLANK)
        else:
            draw_cell_frame(sheet, x, y, width, height, entry)
        if entry is Mark.BEST:
            draw_star_or_triangle(sheet, x + width / 2, y + height / 2, STAR, ON_BLANK)
    else:
        draw_blank_cell(sheet, x, y, width, height, entry)
    sheet.text(
        x + width + 0.06,
        y + height / 2,
        legend_text_of_mark_or_state(entry),
        fontsize=TICK_FONT,
        color=INK,
        va="center",
    )


def _alt_text(panels: Sequence[MapPanel]) -> str:
    def panel_sentences() -> Iterator[str]:
        for panel in panels:
            over = " and ".join(axis.label for axis in (panel.across, panel.down) if axis.key is not None)
            finished = [cell for cell in panel.cells.values() if cell.state is State.FINISHED]
            scores = [cell.accuracy for cell in finished if cell.accuracy is not None]
            ends = [panel.scale.text(score) for score in (min(scores), max(scores))] if scores else []
            span = f", scores from {' to '.join(ends)} {panel.scale.in_words.removeprefix('in ')}" if scores else ""
            points = f"{count_text(len(panel.cells), 'point')}, {len(finished)} finished"
            yield f"{panel.name} over {over or 'nothing'}: {points}{span}"

    return f"Map of scores. {'. '.join(panel_sentences())}. The numbers are in the table below."


def draw_blank_cell(axes: Axes, x: float, y: float, width: float, height: float, state: State) -> None:
    """Draws a cell without a score: hatched if a run started, an empty dashed box if none did."""
    if state in HATCHES:
        style: dict[str, Any] = {"facecolor": BLANK, "edgecolor": HATCH, "hatch": HATCHES[state], "linewidth": 0}
    else:
        style = {"facecolor": "none", "edgecolor": MUTED, "linewidth": 0.5, "linestyle": (0, (2, 2))}
    axes.add_patch(Rectangle((x, y), width, height, zorder=2, **style))
    if state in HATCHES:
        axes.add_patch(Rectangle((x, y), width, height, zorder=2, facecolor="none", edgecolor=PAPER, linewidth=0.6))


def draw_cell_frame(axes: Axes, x: float, y: float, width: float, height: float, mark: Mark) -> None:
    """Draws a dark line on a light one, visible on every colour: dashed for a method's best, thin for AS_GOOD."""
    thick, thin, dashes = _LINES[mark]
    for line, colour, dash in ((thick, "#ffffff", "solid"), (thin, "#000000", dashes)):
        box = Rectangle((x, y), width, height, facecolor="none", edgecolor=colour, zorder=4, clip_on=False)
        box.set(linewidth=line, linestyle=dash)
        axes.add_patch(box)


def draw_star_or_triangle(axes: Axes, x: float, y: float, shape: str, ink: str) -> None:
    """Draws the star of the best cell, in addition to its frame, or a triangle: the score is below the scale."""
    size = {STAR: 4.0, TRIANGLE: 2.4}[shape]
    axes.add_line(
        Line2D([x], [y], marker=shape, markersize=size, color=ink, markeredgewidth=0, zorder=5, clip_on=False)
    )


def write_centred_text(axes: Axes, x: float, y: float, text: str, size: float, ink: str) -> Text:
    """Writes text centred at a point; a dollar sign does not start a formula."""
    return axes.text(x, y, text, fontsize=size, color=ink, ha="center", va="center", zorder=3, parse_math=False)


def legible_ink(colour: Sequence[float]) -> str:
    """Black or white, whichever contrasts more: 4.5 to 1 or better on any colour (WCAG 2.1)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "#ffffff"


def matplotlib_figure_for_notebooks(panels: Sequence[MapPanel], measure: str) -> Figure:
    """The panels as one figure on one colour scale, which is labelled with `measure` and the unit of the scores."""
    panels = mark_cells_below_scale(panels)
    heading = common_scale_of_panels(panels).heading(measure)
    with own_matplotlib_settings(STYLE):
        map_of_scores = matplotlib_figure_of_panels(panels, colour_scale_ends(panels), heading)

    def png_bytes_of_figure() -> bytes:
        content = BytesIO()
        with own_matplotlib_settings(STYLE):
            map_of_scores.savefig(content, format="png", dpi=SCREEN_DPI, bbox_inches="tight")
        return content.getvalue()

    setattr(map_of_scores, IN_NOTEBOOKS, png_bytes_of_figure)
    return map_of_scores


def heatmap(table: pd.DataFrame, axes: Sequence[str], *, score: str = SCORE) -> Figure:
    """A map of results from elsewhere: a row of `table` for each run, a column for each hyperparameter in `axes`.

    The column `score` holds shares of one; a score that is missing or not finite is a run that diverged. Columns named
    `score` with `_low` and `_high` are the ends of its interval, `method` gives each method a panel of its own, and
    `noise_multiplier` each noise. Rows with equal hyperparameters are shown as their mean. Raises `BadInput` for a
    table without such columns or with scores outside [0, 1].
    """
    missing = [name for name in (*axes, score) if name not in table]
    if missing or not axes:
        raise BadInput(
            f"Expected columns {', '.join(missing) or 'for axes'} in the table; it has {', '.join(map(str, table))}."
        )
    scores = pd.to_numeric(table[score], errors="coerce")
    outside = scores[(scores < 0) | (scores > 1)]
    if not outside.empty:
        raise BadInput(f"Expected {score}={outside.iloc[0]:g} to be a share of one, between 0 and 1.")
    columns = {
        METHOD: table.get(METHOD, pd.Series("runs", index=table.index)),
        NOISE: table.get(NOISE),
        "state": scores.notna().map({True: State.FINISHED, False: State.DIVERGED}),
        SCORE: scores,
        f"{SCORE}_low": table.get(f"{score}_low"),
        f"{SCORE}_high": table.get(f"{score}_high"),
        **{axis: table[axis] for axis in axes if axis not in (METHOD, NOISE)},
    }
    rows = pd.DataFrame(columns, index=table.index).astype(object).reset_index(drop=True)
    return matplotlib_figure_for_notebooks(
        build_map_panels(rows.where(rows.notna(), None), [axis for axis in axes if axis != METHOD]), score
    )
