"""The page's maps: each cell says its row of the table, in its colour, at any size of the grid."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dpsweep.reports.content import tables as sheets
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.panels import build_map_panels
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.content.tables import Item
from dpsweep.reports.figures.page_figures import PageMaps, page_maps_of_panels
from dpsweep.reports.pages.comparison import ComparisonPage, MeasuredMaps, page_of_record, record_of_comparison
from dpsweep.reports.pages.templates import TEMPLATES
from tests.reports.figures.test_heatmap import panels_of, steps

STATES = {"diverged", "failed", "killed", "not_run"}
COLUMNS = ("state", "accuracy", "interval")


def text_of(row: tuple[Item, ...]) -> tuple[frozenset[str], str]:
    """The settings and the result of a row of the table of all points, as a cell says them."""
    _, _, lr, clip_norm, regularizer, state, score, interval = (item.text for item in row)
    settings = {"lr": lr, "clip_norm": clip_norm, "regularizer": regularizer}
    result = f"{score} ({interval})" if state == "finished" else state
    return frozenset(f"{name} {value}" for name, value in settings.items() if value), result


def maps_of(troubled: Any) -> PageMaps:
    sweep = read_sweep(troubled.folder, troubled.ledger)
    maps = page_maps_of_panels(build_map_panels(sweep.map_rows, sweep.swept_keys), "accuracy, %")
    assert maps is not None
    return maps


def maps_over(*sizes: tuple[int, int]) -> PageMaps:
    """Maps of so many learning rates and clip norms."""
    panels = [
        panel
        for columns, rows in sizes
        for panel in panels_of({"dpsgd": {"trainer.lr": steps(columns, 1.15), "trainer.clip_norm": steps(rows, 1.15)}})
    ]
    maps = page_maps_of_panels(panels, "accuracy, %")
    assert maps is not None
    return maps


def test_every_cell_says_its_row_of_the_table(troubled: Any) -> None:
    sweep = read_sweep(troubled.folder, troubled.ledger)
    rows = sorted(map(text_of, sheets.runs_sheet(sweep, COLUMNS).rows), key=str)
    cells = [cell for one in maps_of(troubled).maps for cell in one.cells if cell]
    said = (
        (frozenset(cell.settings.split(", ")), re.sub(r", (best|not significantly worse)$", "", cell.result))
        for cell in cells
    )
    assert sorted(said, key=str) == rows
    assert sum(cell.result.endswith(", best") for cell in cells) == 1
    assert all(cell.result.startswith(cell.text) for cell in cells)


def test_a_page_shows_them_and_nothing_else_there(troubled: Any) -> None:
    html = (troubled.folder / "curator" / "report.html").read_text()
    cells = [cell for one in maps_of(troubled).maps for cell in one.cells if cell]
    shown = re.findall(r'<input type="radio" name="[^"]*"><span>(.*?) <b>(.*?)</b></span><i [^>]*><b>(.*?)</b>', html)
    assert shown == [(cell.settings, cell.result, cell.text) for cell in cells]
    groups = re.findall(r'role="radiogroup" aria-label="([^"]*)"', html)
    assert len(groups) == len(set(groups)) == 2


def test_states_and_marks_are_looks_with_a_legend(troubled: Any) -> None:
    maps = maps_of(troubled)
    looks = {cell.look for one in maps.maps for cell in one.cells if cell} - {"none"}
    assert looks == {look for look, _ in maps.looks}
    assert {"best", "best_of_method", "diverged", "failed", "killed", "not_run"} <= looks
    style = (TEMPLATES / "style.css.j2").read_text()
    assert all(re.search(rf"\.{look}\b", style) for look in looks)
    assert [len(one.cells) for one in maps.maps] == [35, 35]
    assert all((cell.colour == "") == (cell.look in STATES) for one in maps.maps for cell in one.cells if cell)


@pytest.mark.parametrize(("rows", "height", "labels"), [(1, 96, 1), (2, 96, 2), (5, 64, 5), (18, 46, 18), (60, 14, 30)])
def test_rows_are_neither_flat_nor_taller_than_a_screen(rows: int, height: int, labels: int) -> None:
    (one,) = maps_over((3, rows)).maps
    assert one.row_height == height
    assert len(one.down_ticks) == rows
    assert sum(map(bool, one.down_ticks)) == labels


def test_rows_of_maps_are_full_where_they_can_be() -> None:
    most = [maps_over(*[(2, 1)] * several).most_beside for several in range(1, 9)]
    assert most == [1, 2, 3, 2, 3, 3, 3, 2]
    assert maps_over((2, 1), (7, 5)).columns == 7


def test_a_page_of_1600_points_is_small() -> None:
    """Its maps, with all texts and tables, are half of the two megabytes that a page of so many points may have."""
    page = ComparisonPage(
        audience=Audience.CURATOR,
        banner="",
        title="digits",
        command="",
        totals=(),
        sweeps=(),
        maps=(MeasuredMaps(measure="accuracy", before=0, maps=maps_over((40, 40))),),
        no_maps=(),
        failed_maps=(),
    )
    html = page_of_record(record_of_comparison(page))
    assert html.count("<label") == 1600
    assert len(html.encode()) < 1_000_000
