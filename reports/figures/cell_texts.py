"""The texts of a map's cells for readers who point at them, laid over the picture cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsweep.reports.content.panels import MapPanel
from dpsweep.reports.content.tables import cell_item
from dpsweep.reports.figures.figure_layout import Layout, Place, lay_out


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


def cell_texts(panels: Sequence[MapPanel]) -> tuple[PanelTexts, ...]:
    """The texts of all panels of a figure."""
    layout = lay_out(panels)
    return tuple(_panel(layout, place, panel) for place, panel in zip(layout.places, panels, strict=True))


def _panel(layout: Layout, place: Place, panel: MapPanel) -> PanelTexts:
    return PanelTexts(
        name=panel.name,
        left=place.x / layout.width,
        top=1 - (place.y + place.height) / layout.height,
        width=place.width / layout.width,
        height=place.height / layout.height,
        columns=len(panel.across.values),
        rows=len(panel.down.values),
        cells=tuple(_cells(layout, place, panel)),
    )


def _cells(layout: Layout, place: Place, panel: MapPanel) -> Iterator[CellText | None]:
    columns = len(panel.across.values)
    for row in reversed(range(len(panel.down.values))):
        for column in range(columns):
            cell = panel.cells.get((row, column))
            middle = place.x + place.width * (column + 0.5) / columns
            yield (
                None
                if cell is None
                else CellText(
                    settings=_settings(panel, row, column),
                    result=cell_item(cell).text,
                    right=2 * middle > layout.width,
                )
            )


def _settings(panel: MapPanel, row: int, column: int) -> str:
    places = ((panel.across, column), (panel.down, row))
    return ", ".join(f"{axis.label} {axis.ticks[place]}" for axis, place in places if axis.key is not None)
