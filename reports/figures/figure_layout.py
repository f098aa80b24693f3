"""Layout of a figure in inches, computed from cell counts and label lengths before drawing."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from dpsweep.reports.content.formatting import shorten_text
from dpsweep.reports.content.panels import MapPanel, Mark
from dpsweep.reports.content.sweep_table import State

CELL = (0.41, 0.30)
LARGEST_PLOT = (5.4, 5.4)
SMALLEST_ANNOTATED = (0.33, 0.23)
CELL_FONT, SMALL_FONT, TICK_FONT, LABEL_FONT, TITLE_FONT = 6.5, 5.0, 6.5, 7.0, 8.0
"""A map of seven columns is as wide as a column of a two-column paper, with texts of 5 points or more."""

MARGIN = 0.08
GAP = 0.26
LONGEST_TICK = 18
WIDEST_FIGURE = 11.6
SCALE = (1.5, 0.10)
KEY_LINE = 0.20
KEY_SAMPLE = (0.18, 0.13)
TITLE_LINE, FACET_LINE, LABEL_LINE = 0.15, 0.125, 0.16
_EM = 0.66 / 72
"""A letter's width per point of font size, in inches: an upper estimate of the average letter."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The layout of one panel in inches: its cells, the texts around them, and where it is in the figure.

    `left` and `bottom` is the space of the ticks and labels beside the plot; `x` and `y` are the plot's lower left
    corner, seen from that of the figure.
    """

    panel: MapPanel
    cell: tuple[float, float]
    left: float
    bottom: float
    turned: bool
    across_ticks: tuple[str, ...]
    down_ticks: tuple[str, ...]
    title_lines: tuple[str, ...]
    facet_lines: tuple[str, ...]
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """The width of the plot."""
        return self.cell[0] * len(self.panel.across.values)

    @property
    def height(self) -> float:
        """The height of the plot."""
        return self.cell[1] * len(self.panel.down.values)

    @property
    def height_above_plot(self) -> float:
        """The height of the titles."""
        return 0.11 + TITLE_LINE * len(self.title_lines) + FACET_LINE * len(self.facet_lines)

    @property
    def whole_width(self) -> float:
        """The width of the plot with all its texts."""
        texts = [estimated_text_width_in_inches(line, TITLE_FONT, bold=1.1) for line in self.title_lines]
        texts += [estimated_text_width_in_inches(line, TICK_FONT) for line in self.facet_lines]
        label = (self.width + estimated_text_width_in_inches(self.across_label, LABEL_FONT)) / 2
        return self.left + max(self.width, label, *texts)

    @property
    def annotated(self) -> bool:
        """Whether scores are written into the cells."""
        return self.cell[0] >= SMALLEST_ANNOTATED[0] and self.cell[1] >= SMALLEST_ANNOTATED[1]

    @property
    def shown_across(self) -> tuple[int, ...]:
        """The indices of the labelled ticks of the columns."""
        return _indices_of_labelled_ticks(len(self.across_ticks), self.cell[0])

    @property
    def shown_down(self) -> tuple[int, ...]:
        """The indices of the labelled ticks of the rows."""
        return _indices_of_labelled_ticks(len(self.down_ticks), self.cell[1])

    @property
    def across_label(self) -> str:
        """The name of the columns."""
        return shorten_text(self.panel.across.label, LONGEST_TICK)

    @property
    def down_label(self) -> str:
        """The name of the rows."""
        return shorten_text(self.panel.down.label, LONGEST_TICK)

    @property
    def label_place(self) -> tuple[float, float]:
        """Where the name of the rows begins from the left, and that of the columns from below."""
        return self.x - self.left, self.y - self.bottom + 0.06


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of a figure: its size, its panels in order, the colour scale, and the legend of the marks."""

    width: float
    height: float
    places: tuple[Place, ...]
    has_scale: bool
    scale_place: tuple[float, float, float, float]
    key: tuple[State | Mark, ...]
    key_places: tuple[tuple[float, float], ...]


def estimated_text_width_in_inches(text: str, points: float, bold: float = 1.0) -> float:
    """An upper estimate of a text's width."""
    return len(text) * points * _EM * bold


def lay_out_panels(panels: Sequence[MapPanel]) -> Layout:
    """Computes the layout: rows of panels, a row per method if one has several, then colour scale and legend."""
    slots = [_slot_for_panel(panel) for panel in panels]
    rows = _arrange_slots_in_rows(slots)
    key = marks_and_states(panels)
    has_scale = any(cell.state is State.FINISHED for panel in panels for cell in panel.cells.values())
    widest = max(sum(slot.whole_width for slot in row) + GAP * (len(row) - 1) for row in rows)
    width = _round_up_to_twentieth_inch(max(widest + 2 * MARGIN, 2.9))
    key_rows = _legend_x_positions_by_line(key, width - 2 * MARGIN)
    footer = MARGIN + KEY_LINE * len(key_rows) + (0.34 if has_scale else 0) + 0.06
    heights = [_row_height(row) for row in rows]
    height = _round_up_to_twentieth_inch(footer + sum(heights) + GAP / 2 * (len(rows) - 1) + MARGIN)
    places: list[Place] = []
    top = height - MARGIN
    for row, row_height in zip(rows, heights, strict=True):
        places.extend(_place_panels_of_row(row, top))
        top -= row_height + GAP / 2
    scale_y = footer - 0.06 - SCALE[1]
    return Layout(
        width=width,
        height=height,
        places=tuple(places),
        has_scale=has_scale,
        scale_place=(MARGIN, scale_y, *SCALE),
        key=key,
        key_places=tuple(
            (x, MARGIN + KEY_LINE * (len(key_rows) - 1 - line)) for line, xs in enumerate(key_rows) for x in xs
        ),
    )


def _slot_for_panel(panel: MapPanel) -> Place:
    columns, rows = len(panel.across.values), len(panel.down.values)
    down_label = shorten_text(panel.down.label, LONGEST_TICK)
    cell = (
        min(CELL[0], LARGEST_PLOT[0] / columns),
        min(max(CELL[1], estimated_text_width_in_inches(down_label, LABEL_FONT) / rows), LARGEST_PLOT[1] / rows),
    )
    across = tuple(shorten_text(tick, LONGEST_TICK) for tick in panel.across.ticks)
    down = tuple(shorten_text(tick, LONGEST_TICK) for tick in panel.down.ticks)
    longest = max(estimated_text_width_in_inches(tick, TICK_FONT) for tick in across)
    turned = longest > 0.97 * cell[0]
    wrap = max(24, int(cell[0] * columns / (TICK_FONT * _EM)))
    return Place(
        panel=panel,
        cell=cell,
        left=max(estimated_text_width_in_inches(tick, TICK_FONT) for tick in down)
        + (0.06 + LABEL_LINE if panel.down.key else 0.0),
        bottom=(longest if turned else 0.11) + 0.06 + (LABEL_LINE if panel.across.key else 0.0),
        turned=turned,
        across_ticks=across,
        down_ticks=down,
        title_lines=tuple(textwrap.wrap(shorten_text(panel.label, 60), wrap)) or ("",),
        facet_lines=tuple(shorten_text(line, 34) for line in panel.facet),
    )


def _arrange_slots_in_rows(slots: Sequence[Place]) -> list[list[Place]]:
    """A row per method, or one for all if each method has one panel; long rows are split evenly."""
    groups = [list(group) for _, group in groupby(slots, key=lambda slot: slot.panel.method)]
    if all(len(group) == 1 for group in groups):
        groups = [list(slots)]
    rows: list[list[Place]] = []
    for group in groups:
        fit = max(1, int((WIDEST_FIGURE + GAP) / (max(slot.whole_width for slot in group) + GAP)))
        length = math.ceil(len(group) / math.ceil(len(group) / fit))
        rows.extend(group[start : start + length] for start in range(0, len(group), length))
    return rows


def _row_height(row: Sequence[Place]) -> float:
    return max(slot.height_above_plot for slot in row) + max(slot.height + slot.bottom for slot in row)


def _place_panels_of_row(row: Sequence[Place], top: float) -> Iterator[Place]:
    x, y = MARGIN, top - max(slot.height_above_plot for slot in row)
    for slot in row:
        yield replace(slot, x=x + slot.left, y=y - slot.height)
        x += slot.whole_width + GAP


def _indices_of_labelled_ticks(steps: int, spacing: float) -> tuple[int, ...]:
    """The indices of labelled ticks: all, or every n-th if the labels would touch."""
    return tuple(range(0, steps, math.ceil(0.12 / spacing)))


def legend_text_of_mark_or_state(entry: State | Mark) -> str:
    """The legend text of a mark or a state."""
    words = {
        Mark.NONE: "",
        Mark.CHOSEN: "chosen, but not told apart from any other",
        Mark.BEST: "best of its search",
        Mark.BEST_OF_METHOD: "best of its method",
        Mark.AS_GOOD: "not significantly worse than the best",
        Mark.BELOW: "below the colour scale",
    }
    return words[entry] if isinstance(entry, Mark) else entry.value


def marks_and_states(panels: Sequence[MapPanel]) -> tuple[State | Mark, ...]:
    """The marks that occur, best first, then the states that occur."""
    cells = [cell for panel in panels for cell in panel.cells.values()]
    marks = [mark for mark in sorted(Mark, reverse=True) if mark and any(cell.mark is mark for cell in cells)]
    states = [state for state in State if state is not State.FINISHED and any(cell.state is state for cell in cells)]
    return (*marks, *states)


def _legend_x_positions_by_line(key: Sequence[State | Mark], width: float) -> list[list[float]]:
    """Horizontal positions of the legend's entries, line by line."""
    rows: list[list[float]] = []
    x = math.inf
    for entry in key:
        needed = (
            KEY_SAMPLE[0] + 0.06 + estimated_text_width_in_inches(legend_text_of_mark_or_state(entry), TICK_FONT) + 0.1
        )
        if x + needed > width + MARGIN:
            rows.append([])
            x = MARGIN
        rows[-1].append(x)
        x += needed
    return rows


def _round_up_to_twentieth_inch(inches: float) -> float:
    """Rounds up to the next twentieth of an inch, so that sizes in pixels are whole numbers."""
    return math.ceil(inches * 20) / 20
