"""A point's score is one number on the map, in the headline, the statement and Python, for any repeats and rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import fmean, median
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.records.plan import REPEAT
from dpsweep.reports.content.panels import Mark, build_map_panels
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.content.tables import panel_sheet, runs_sheet
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.commands.python_api import SweepResults

COMPARES = {"composition": fmean, "median_of_repeats": median}


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("rule", COMPARES)
@pytest.mark.parametrize("repeats", [1, 3, 4])
def test_a_points_score_is_one_number_everywhere(sweep_of: Callable[..., Any], rule: str, repeats: int) -> None:
    points = 4
    scores = np.random.default_rng(repeats).integers(500, 900, (points, repeats)) / 1000
    axes = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4, 0.8), REPEAT: tuple(range(repeats))}}
    form = {"kind": rule} | ({"repeats": repeats} if rule == "median_of_repeats" else {})
    made = sweep_of(axes, rule=form, accuracy=lambda place: float(scores.flat[place]))
    compared = [COMPARES[rule](own) for own in scores.tolist()]
    place = int(np.argmax(compared))
    chose, own = f"{100 * compared[place]:.1f}", f"{100 * scores[place, 0]:.1f}"

    sweep = read_sweep(made.folder, made.ledger)
    (panel,) = build_map_panels(sweep.map_rows, sweep.swept_keys, sweep.rule.name_of_point_score)
    (best,) = (cell for cell in panel.cells.values() if cell.mark in (Mark.BEST, Mark.CHOSEN))
    assert best.compared in (None, compared[place])
    (shown,) = (item.text for row in panel_sheet(panel).rows for item in row if item.marked)
    assert chose in shown
    sheet = runs_sheet(sweep, ["accuracy"])
    assert sheet.columns[0] == ("run" if repeats > 1 else "point"), "a table of runs has one row for each run"
    assert [row[-1].text for row in sheet.rows if row[0].marked] == [own]

    told = SweepResults(sweep).best
    assert told is not None
    assert told["accuracy"] == pytest.approx(compared[place])
    assert told.get("runs", 1) == repeats
    assert told.get("accuracy_of_model", told["accuracy"]) == pytest.approx(scores[place, 0])

    page = write_release(made.folder, made.ledger)
    assert f"{points} points of DP-SGD{f', {repeats} runs each' if repeats > 1 else ''}" in page.read_text()
    report = json.loads(page.with_name("report.json").read_text())
    statement = page.with_name("statement.html").read_text()
    headline = report["best"][0]["score"]
    kind = f"{sweep.rule.name_of_point_score} score of its {repeats} runs, chosen" if repeats > 1 else "score chosen"
    for text in (headline, page.read_text()):
        assert f"{chose} % is the {kind} among" in text
        assert (f"The run whose model is handed over has {own} %." in text) is (repeats > 1)
    assert f"the {kind} among" in statement
    assert "is the score chosen" not in statement or repeats == 1
