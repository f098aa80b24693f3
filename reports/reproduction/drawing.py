"""Charts for reproductions: curves and boxes side by side, drawn without pyplot and without any global style."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from reports import marks

PNG_DPI = 160
WIDTH, HEIGHT = 4.3, 3.6
COLOURS = ("#23617a", "#b4551d", "#4c7a34", "#7a4a8c", "#8a6d00", "#6b7079", "#a3171f")
MARKERS = ("o", "s", "^", "+", "D", "v", "P")
_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "font.family": ["DejaVu Sans"], "axes.unicode_minus": True}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A drawn picture: what it shows in words, PNG bytes, and SVG text."""

    name: str
    alt: str
    png: bytes
    svg: str


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points that belong together, and their name."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    lined: bool = True


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves over common axes; `at` are values of x that a dashed line marks."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = False
    at: tuple[float, ...] = ()
    ticks: tuple[str, ...] = ()
    """Names for x = 0, 1, 2, ..., where x is no number."""


def charts(name: str, alt: str, panels: Sequence[Chart]) -> Drawing:
    """The charts side by side, each with its own legend below."""
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        drawn = Figure(figsize=(WIDTH * len(panels), HEIGHT), layout="constrained")
        FigureCanvasAgg(drawn)
        for place, panel in enumerate(panels, start=1):
            _draw(drawn.add_subplot(1, len(panels), place), panel)
        return finish(drawn, name, alt)


def finish(drawn: Figure, name: str, alt: str) -> Drawing:
    """The figure as bytes that are the same whenever the numbers are."""
    png, svg = io.BytesIO(), io.StringIO()
    drawn.savefig(png, format="png", dpi=PNG_DPI, facecolor="white", metadata={"Software": None})
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawn.savefig(svg, format="svg", facecolor="white", metadata=nothing)
    drawn.clear()
    return Drawing(name=name, alt=alt, png=png.getvalue(), svg=svg.getvalue())


def _draw(axes: Axes, chart: Chart) -> None:
    for place, curve in enumerate(chart.curves):
        axes.plot(
            curve.x,
            curve.y,
            label=curve.label,
            color=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            markersize=4 if len(curve.x) < 30 else 2,
            linewidth=1.2,
            linestyle="solid" if curve.lined else "none",
        )
    for where in chart.at:
        axes.axvline(where, color=marks.MUTED, linewidth=0.8, linestyle="dashed", zorder=0)
    if chart.log_x:
        axes.set_xscale("log")
        _plain_steps(axes.xaxis, *axes.get_xlim())
    if chart.log_y:
        axes.set_yscale("log")
        _plain_steps(axes.yaxis, *axes.get_ylim())
    if chart.ticks:
        axes.set_xticks(range(len(chart.ticks)), labels=list(chart.ticks))
        axes.set_xlim(-0.5, len(chart.ticks) - 0.5)
    style(axes, chart.title, chart.x_label, chart.y_label)
    if len(chart.curves) > 1:
        columns = len(chart.curves) if sum(len(curve.label) for curve in chart.curves) < 45 else 2
        axes.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns)


def _plain_steps(axis: Axis, low: float, high: float) -> None:
    """Decades on a logarithmic axis, and 2 and 5 between them where there are few, as plain numbers."""
    few = math.log10(high / low) < 2.5
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}".replace(",", "\N{THIN SPACE}")))


def style(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Titles, labels and grid lines as on every chart."""
    axes.set_title(title, fontsize=9.5, loc="left", color=marks.INK, fontweight="bold")
    axes.set_xlabel(x_label, fontsize=8, color=marks.INK)
    axes.set_ylabel(y_label, fontsize=8, color=marks.INK)
    axes.tick_params(labelsize=7.5, colors=marks.INK)
    axes.grid(visible=True, which="major", color=marks.BLANK, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
