"""How a cell is told from others without its colour: inks, hatches, frames, the star."""

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
"""Colours of curves, in their order; pages have lighter ones of the same names for the night."""

BLANK, ON_BLANK, HATCH = "#dcdee2", "#22242a", "#b3b7be"
HATCHES: Mapping[State, str] = {
    State.DIVERGED: "////",
    State.FAILED: "xxxx",
    State.KILLED: "||||",
    State.NO_RESULT: "xxxx",
}

_LINES: Mapping[Mark, tuple[float, float, Any]] = {
    Mark.BEST: (3.2, 1.7, "solid"),
    Mark.BEST_OF_METHOD: (2.6, 1.2, (0, (2.2, 1.4))),
    Mark.AS_GOOD: (1.8, 0.6, "solid"),
}
"""Widths of the light and the dark line of a frame, and its dashes."""


def blank(axes: Axes, x: float, y: float, width: float, height: float, state: State) -> None:
    """A cell without a score: hatched where something ran, an empty dashed box where nothing did."""
    if state in HATCHES:
        style: dict[str, Any] = {
            "facecolor": BLANK,
            "edgecolor": HATCH,
            "hatch": HATCHES[state],
            "linewidth": 0,
        }
    else:
        style = {"facecolor": "none", "edgecolor": MUTED, "linewidth": 0.6, "linestyle": (0, (2, 2))}
    axes.add_patch(Rectangle((x, y), width, height, zorder=2, **style))
    if state in HATCHES:
        axes.add_patch(Rectangle((x, y), width, height, zorder=2, facecolor="none", edgecolor=PAPER, linewidth=0.8))


def frame(axes: Axes, x: float, y: float, width: float, height: float, mark: Mark) -> None:
    """A dark line on a light one, seen over every colour: dashed for the best of a method, thin for as good ones."""
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
    """A pointer downwards: the score lies below the colour scale."""
    axes.add_line(Line2D([x], [y], marker="v", markersize=3, color=ink, markeredgewidth=0, zorder=5, clip_on=False))


def star(axes: Axes, x: float, y: float, ink: str) -> None:
    """The best cell's second sign beside its frame."""
    axes.add_line(Line2D([x], [y], marker="*", markersize=5, color=ink, markeredgewidth=0, zorder=5, clip_on=False))


def write(axes: Axes, x: float, y: float, text: str, size: float, ink: str) -> Text:
    """Text in the middle of a place; dollar signs are dollar signs."""
    return axes.text(x, y, text, fontsize=size, color=ink, ha="center", va="center", zorder=3, parse_math=False)


def word_ink(state: State) -> str:
    """The ink of a state's word on its cell."""
    return ON_BLANK if state in HATCHES else MUTED


def legible(colour: Sequence[float]) -> str:
    """Black or white, whichever contrasts more: 4.5 to 1 or better on any colour (WCAG 2.1)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "#ffffff"
