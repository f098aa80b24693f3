"""Marks that distinguish the cells of a map without colour: hatches, frames, the star, and the inks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from dpsweep.reports.content.panels import Mark
from dpsweep.reports.content.sweep_table import State

INK, MUTED, PAPER, GRID = "#1b1c20", "#6b7079", "#fefefd", "#e2e4e9"
SERIES = ("#23617a", "#b4551d", "#4c7a34", "#7a4a8c", "#8a6d00", "#5d636e", "#a3171f")
"""Colours of curves, in order; pages replace them by lighter ones in dark mode."""

BLANK, ON_BLANK, HATCH = "#dcdee2", "#22242a", "#b3b7be"
HATCHES: Mapping[State, str] = {
    State.DIVERGED: "////",
    State.FAILED: "xxxx",
    State.KILLED: "||||",
    State.NO_RESULT: "xxxx",
}

_LINES: Mapping[Mark, tuple[float, float, Any]] = {
    Mark.BEST: (2.4, 1.3, "solid"),
    Mark.BEST_OF_METHOD: (2.0, 0.9, (0, (2.2, 1.4))),
    Mark.AS_GOOD: (1.4, 0.5, "solid"),
}
"""Widths of the light and the dark line of a frame, and its dashes."""


def blank(axes: Axes, x: float, y: float, width: float, height: float, state: State) -> None:
    """Draws a cell without a score: hatched if a run started, an empty dashed box if none did."""
    if state in HATCHES:
        style: dict[str, Any] = {
            "facecolor": BLANK,
            "edgecolor": HATCH,
            "hatch": HATCHES[state],
            "linewidth": 0,
        }
    else:
        style = {"facecolor": "none", "edgecolor": MUTED, "linewidth": 0.5, "linestyle": (0, (2, 2))}
    axes.add_patch(Rectangle((x, y), width, height, zorder=2, **style))
    if state in HATCHES:
        axes.add_patch(Rectangle((x, y), width, height, zorder=2, facecolor="none", edgecolor=PAPER, linewidth=0.6))


def frame(axes: Axes, x: float, y: float, width: float, height: float, mark: Mark) -> None:
    """Draws a dark line on a light one, visible on every colour: dashed for a method's best, thin for AS_GOOD."""
    thick, thin, dashes = _LINES[mark]
    for line, colour, dash in ((thick, "#ffffff", "solid"), (thin, "#000000", dashes)):
        axes.add_patch(
            Rectangle(
                (x, y),
                width,
                height,
                facecolor="none",
                edgecolor=colour,
                linewidth=line,
                linestyle=dash,
                zorder=4,
                clip_on=False,
            )
        )


def below(axes: Axes, x: float, y: float, ink: str) -> None:
    """Draws a triangle that points down: the score is below the colour scale."""
    axes.add_line(Line2D([x], [y], marker="v", markersize=2.4, color=ink, markeredgewidth=0, zorder=5, clip_on=False))


def star(axes: Axes, x: float, y: float, ink: str) -> None:
    """Draws the star of the best cell, in addition to its frame."""
    axes.add_line(Line2D([x], [y], marker="*", markersize=4, color=ink, markeredgewidth=0, zorder=5, clip_on=False))


def write(axes: Axes, x: float, y: float, text: str, size: float, ink: str) -> Text:
    """Writes text centred at a point; a dollar sign does not start a formula."""
    return axes.text(x, y, text, fontsize=size, color=ink, ha="center", va="center", zorder=3, parse_math=False)


def word_ink(state: State) -> str:
    """The colour of a state's name on its cell."""
    return ON_BLANK if state in HATCHES else MUTED


def legible(colour: Sequence[float]) -> str:
    """Black or white, whichever contrasts more: 4.5 to 1 or better on any colour (WCAG 2.1)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "#ffffff"
