"""Charts: curves, boxes and maps side by side, drawn without pyplot and without any global style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from dpsweep.reports.figures.drawing import BLANK, GRID, INK, MUTED, SERIES, Drawing

if TYPE_CHECKING:
    import pandas as pd

PNG_DPI = 200
WIDTH, HEIGHT = 4.3, 3.6
IN_A_ROW = 3
MARGINS = (0.62, 0.85, 0.16, 0.32)
"""Margins of each chart in inches (left, bottom, right, top), fixed so that labels fit without a layout search."""

LINES, LEGEND_LINE = 2, 0.17
"""Lines of the legend that fit into the bottom margin, and the inches that each further line needs."""

MOST_MARKERS = 200
"""Markers on a line at most: more of them overlap."""

_COLOURS = {"high": "viridis", "low": "viridis_r"}
MARKERS = ("o", "s", "^", "+", "D", "v", "P")
_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "font.family": ["DejaVu Sans"], "axes.unicode_minus": True}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A named series of points; `band` is an interval (lowest, highest) around each."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    lined: bool = True
    dashed: bool = False
    band: tuple[tuple[float, float], ...] = ()


def curves_of_columns(table: pd.DataFrame) -> tuple[Curve, ...]:
    """A curve for each column of a table of numbers, over its index; missing values are left out."""
    columns = {str(name): column.dropna() for name, column in table.items()}
    return tuple(
        Curve(label=name, x=tuple(map(float, column.index)), y=tuple(map(float, column)))
        for name, column in columns.items()
    )


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves over common axes; dashed lines mark the x values in `at` and the y values in `levels`."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = False
    at: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    ticks: tuple[str, ...] = ()
    """Names for x = 0, 1, 2, ... if x is categorical."""


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """Named groups of values: a box from quartile to quartile with its median, whiskers to the extremes."""

    title: str
    y_label: str
    groups: tuple[tuple[str, tuple[float, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class Map:
    """Values by row (bottom row first) and column, nan for missing ones; `white` cells are drawn white."""

    title: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    white: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def from_table(cls, title: str, x_label: str, y_label: str, table: pd.DataFrame) -> Map:
        """A table of values, by its index and its columns, which are numbers."""
        return cls(
            title=title,
            x_label=x_label,
            y_label=y_label,
            columns=tuple(f"{value:g}" for value in table.columns),
            rows=tuple(f"{value:g}" for value in table.index),
            values=tuple(tuple(map(float, line)) for line in table.to_numpy()),
        )


def draw_maps(name: str, alt: str, measure: str, *panels: Map, light: Literal["high", "low"] = "high") -> Drawing:
    """The maps side by side, at most `IN_A_ROW` in a row, on one colour scale; missing values are grey.

    `light` says which values have light colours: high ones, or low ones where these are better.
    """
    return render_figure_to_drawing(name, alt, partial(_maps_figure, measure, panels, _COLOURS[light]))


def _maps_figure(measure: str, panels: Sequence[Map], colours: str) -> Figure:
    finite = [value for panel in panels for row in panel.values for value in row if math.isfinite(value)]
    norm = Normalize(min(finite, default=0.0), max(finite, default=1.0))
    rows = math.ceil(len(panels) / IN_A_ROW)
    columns = math.ceil(len(panels) / rows)
    figure = Figure(figsize=(WIDTH * columns + 0.6, HEIGHT * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    places = [figure.add_subplot(rows, columns, place) for place in range(1, len(panels) + 1)]
    for axes, panel in zip(places, panels, strict=True):
        _draw_map(axes, panel, norm, colours)
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=places, shrink=0.8, pad=0.02)
    bar.set_label(measure, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7.5, colors=INK)
    bar.outline.set_edgecolor(MUTED)
    return figure


def _draw_map(axes: Axes, panel: Map, norm: Normalize, colours: str) -> None:
    axes.set_facecolor(BLANK)
    axes.imshow(panel.values, cmap=colours, norm=norm, origin="lower", aspect="auto", interpolation="none")
    for row, column in panel.white:
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="white", edgecolor=INK, linewidth=0.4))
    for axis, labels in ((axes.xaxis, panel.columns), (axes.yaxis, panel.rows)):
        every = math.ceil(len(labels) / 10)
        axis.set_ticks(range(0, len(labels), every), labels=list(labels[::every]))
    style_axes(axes, panel.title, panel.x_label, panel.y_label)
    axes.grid(visible=False)
    axes.tick_params(axis="x", rotation=45)


def draw_charts(name: str, alt: str, *panels: Chart | Boxes) -> Drawing:
    """The charts side by side, each with its own legend below."""
    return render_figure_to_drawing(name, alt, partial(_charts_figure, panels))


def _charts_figure(panels: Sequence[Chart | Boxes]) -> Figure:
    width = WIDTH * len(panels)
    left, bottom, right, top = MARGINS
    lines = max(
        (len(panel.curves) / _legend_column_count(panel) for panel in panels if isinstance(panel, Chart)), default=1
    )
    bottom, height = (length + LEGEND_LINE * max(0, math.ceil(lines) - LINES) for length in (bottom, HEIGHT))
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels):
        origin = ((place * WIDTH + left) / width, bottom / height)
        axes = figure.add_axes((*origin, (WIDTH - left - right) / width, (height - bottom - top) / height))
        _draw_box_plots(axes, panel) if isinstance(panel, Boxes) else _draw_curves(axes, panel)
    return figure


def _draw_curves(axes: Axes, chart: Chart) -> None:
    for place, curve in enumerate(chart.curves):
        axes.plot(
            curve.x,
            curve.y,
            label=curve.label,
            color=_series_colour(place),
            marker=MARKERS[place % len(MARKERS)],
            markersize=4 if len(curve.x) < 30 else 2,
            markevery=math.ceil(len(curve.x) / MOST_MARKERS) if curve.lined else 1,
            linewidth=1.2,
            linestyle=("dashed" if curve.dashed else "solid") if curve.lined else "none",
        )
        if curve.band:
            low, high = zip(*curve.band, strict=True)
            axes.fill_between(curve.x, low, high, color=_series_colour(place), alpha=0.15, linewidth=0)
    for x in chart.at:
        axes.axvline(x, color=MUTED, linewidth=0.8, linestyle="dashed", zorder=0)
    for level in chart.levels:
        axes.axhline(level, color=MUTED, linewidth=0.8, linestyle="dashed", zorder=0)
    if chart.log_x:
        axes.set_xscale("log")
        _set_plain_log_ticks(axes.xaxis, *axes.get_xlim())
    if chart.log_y:
        axes.set_yscale("log")
        _set_plain_log_ticks(axes.yaxis, *axes.get_ylim())
    if chart.ticks:
        axes.set_xticks(range(len(chart.ticks)), labels=list(chart.ticks))
        axes.set_xlim(-0.5, len(chart.ticks) - 0.5)
    style_axes(axes, chart.title, chart.x_label, chart.y_label)
    if len(chart.curves) > 1:
        ncols, below = _legend_column_count(chart), (0.5, -0.17)
        below_the_axes: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": below, "ncols": ncols}
        axes.legend(frameon=False, fontsize=7.5, labelcolor=INK, **below_the_axes)


def _legend_column_count(chart: Chart) -> int:
    """Columns of the legend: one per curve if the names are short, else two."""
    return max(1, len(chart.curves)) if sum(len(curve.label) for curve in chart.curves) < 45 else 2


def _series_colour(place: int) -> str:
    return SERIES[place % len(SERIES)]


def _draw_box_plots(axes: Axes, boxes: Boxes) -> None:
    line = {"color": INK, "linewidth": 1.0}
    artists = axes.boxplot(
        [list(values) for _, values in boxes.groups],
        tick_labels=[name for name, _ in boxes.groups],
        whis=(0, 100),
        widths=0.5,
        patch_artist=True,
        medianprops=line | {"linewidth": 1.6},
        whiskerprops=line,
        capprops=line,
    )
    for place, box in enumerate(artists["boxes"]):
        box.set(facecolor=to_rgba(_series_colour(place), 0.25), edgecolor=_series_colour(place))
    style_axes(axes, boxes.title, "", boxes.y_label)


def _set_plain_log_ticks(axis: Axis, low: float, high: float) -> None:
    """Ticks as plain numbers at the decades of a logarithmic axis, and at 2 and 5 times them on a short axis."""
    short = math.log10(high / low) < 2.5
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}".replace(",", "\N{THIN SPACE}")))


def render_figure_to_drawing(name: str, alt: str, figure: Callable[[], Figure]) -> Drawing:
    """The drawing with the files of the figure that the function makes, in the style of charts."""
    return Drawing(name=name, alt=alt).with_rendered_files(figure, _STYLE, PNG_DPI)


def style_axes(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Sets title, labels and grid lines in the style of all charts."""
    axes.set_title(title, y=1.0, fontsize=9.5, loc="left", color=INK, fontweight="bold")
    axes.set_xlabel(x_label, fontsize=8, color=INK)
    axes.set_ylabel(y_label, fontsize=8, color=INK)
    axes.tick_params(labelsize=7.5, colors=INK)
    axes.grid(visible=True, which="major", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(MUTED)
