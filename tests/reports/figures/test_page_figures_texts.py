"""What a cell says to who points at it: the row of the table, its settings included."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dpsweep.reports.content import tables as sheets
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.panels import build_map_panels, colour_scale_ends
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps, matplotlib_figure_of_panels
from dpsweep.reports.figures.page_figures import cell_texts_by_panel
from dpsweep.reports.pages.comparison import Beside
from dpsweep.reports.pages.curator_page import figure_per_method_from_pictures
from dpsweep.reports.pages.templates import fill_template
from tests.reports.figures.test_heatmap import panels_of, steps

COLUMNS = ("state", "accuracy", "interval")


def text_of(row: tuple[Item, ...]) -> tuple[frozenset[str], str]:
    """The settings and the result of a row of the table of all points, as a cell says them."""
    _, _, lr, clip_norm, regularizer, state, score, interval = (item.text for item in row)
    settings = {"lr": lr, "clip_norm": clip_norm, "regularizer": regularizer}
    result = f"{score} ({interval})" if state == "finished" else state
    return frozenset(f"{name} {value}" for name, value in settings.items() if value), result


@pytest.mark.long
def test_every_cell_says_its_row_of_the_table(troubled: Any) -> None:
    sweep = read_sweep(troubled.folder, troubled.ledger)
    rows = sorted(map(text_of, sheets.runs_sheet(sweep, COLUMNS).rows), key=str)
    cells = [
        cell
        for panel in cell_texts_by_panel(build_map_panels(sweep.map_rows, sweep.swept_keys))
        for cell in panel.cells
        if cell
    ]
    said = (
        (frozenset(cell.settings.split(", ")), re.sub(r", (best|not significantly worse)$", "", cell.result))
        for cell in cells
    )
    assert sorted(said, key=str) == rows
    assert sum(cell.result.endswith(", best") for cell in cells) == 1


def test_a_page_says_them_and_nothing_else_there(troubled: Any) -> None:
    sweep = read_sweep(troubled.folder, troubled.ledger)
    html = (troubled.folder / "curator" / "report.html").read_text()
    shown = re.findall(r'<input type="radio" name="[^"]*"><span>(.*?) <b>(.*?)</b></span>', html)
    cells = [
        cell
        for panel in cell_texts_by_panel(build_map_panels(sweep.map_rows, sweep.swept_keys))
        for cell in panel.cells
        if cell
    ]
    assert shown == [(cell.settings, cell.result) for cell in cells]
    groups = re.findall(r'role="radiogroup" aria-label="([^"]*)"', html)
    assert len(groups) == len(set(groups)) == 2


def test_texts_lie_where_the_cells_are_drawn(troubled: Any) -> None:
    sweep = read_sweep(troubled.folder, troubled.ledger)
    panels = build_map_panels(sweep.table, sweep.swept_keys)
    maps = [
        axes
        for axes in matplotlib_figure_of_panels(panels, colour_scale_ends(panels), "accuracy, %").axes
        if axes.collections
    ]
    assert len(maps) == len(panels) == 2
    for axes, texts in zip(maps, cell_texts_by_panel(panels), strict=True):
        left, bottom, width, height = axes.get_position().bounds
        assert (left, 1 - bottom - height) == pytest.approx((texts.left, texts.top))
        assert (width, height) == pytest.approx((texts.width, texts.height))
        assert axes.collections[0].get_array().shape == (texts.rows, texts.columns)
        assert len(texts.cells) == texts.columns * texts.rows == 35


def test_a_page_of_1600_points_is_small() -> None:
    """Its maps, with all texts and tables, are half of the two megabytes that a page of so many points may have."""
    panels = panels_of({"dpsgd": {"trainer.lr": steps(40, 1.15), "trainer.clip_norm": steps(40, 1.15)}})
    page = Beside(
        audience=Audience.CURATOR,
        title="digits",
        together=(),
        sweeps=Sheet(caption="none", columns=("none",), rows=()),
        figures=figure_per_method_from_pictures(draw_joint_and_per_method_heatmaps(panels, "accuracy, %")),
        measure="accuracy",
    )
    html = fill_template("beside.html.j2", page=page)
    assert html.count("<label") == 1600
    assert len(html.encode()) < 1_000_000
