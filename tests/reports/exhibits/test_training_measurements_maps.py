"""Maps besides that of the scores: training losses, bounded gradients, how often each point is the best."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.exhibits.training_measurements import (
    clipping_effect_exhibit,
    how_often_best_exhibit,
    training_losses_exhibit,
)
from dpsweep.reports.pages.curator_page import write_report
from tests.reports.conftest import CLIP, LR, Made

SweepOf = Callable[..., Made]
GRID = {"dpsgd": {LR: (0.1, 0.2, 0.4), CLIP: (1.0, 2.0)}}
AGAIN = {"dpsgd": {LR: (0.1, 0.2), "repeat": (1, 2, 3, 4)}}


def numbers(sheet: Sheet) -> list[float]:
    return [float(item.key) for row in sheet.rows for item in row[1:] if item.key is not None]


def of(made: Made) -> table.Sweep:
    return table.read_sweep(made.folder, made.ledger)


def test_the_scores_have_one_map(sweep_of: SweepOf) -> None:
    made = sweep_of(GRID)
    write_report(made.folder, made.ledger)
    assert {path.stem for path in (made.folder / "curator").glob("*.png")} == {
        *("heatmap", "heatmap-dpsgd", "collapse-1", "privacy", "rivals"),
    }


def test_training_losses_are_those_of_the_last_look_at_data_declared_public(sweep_of: SweepOf) -> None:
    made = sweep_of(GRID)
    assert training_losses_exhibit(of(made)) is None
    for place, trial in enumerate(made.plan.trials):
        path = made.folder / "trials" / trial.id / "result.json"
        form = json.loads(path.read_text())
        form["curator"]["curve"] = [{"step": 40, "training_loss": 9.0}, {"step": 80, "training_loss": 10.0**-place}]
        path.write_text(json.dumps(form))
    shown = training_losses_exhibit(of(made))
    assert shown is not None
    (sheet,) = shown.sheets
    assert sorted(numbers(sheet)) == pytest.approx([-5, -4, -3, -2, -1, 0])
    assert sheet.columns == ("clip_norm", "lr 0.1", "lr 0.2", "lr 0.4")
    assert [row[0].text for row in sheet.rows] == ["2", "1"], "as in the picture, the larger above"


def test_what_is_left_of_gradients_is_that_of_the_last_look(sweep_of: SweepOf) -> None:
    made = sweep_of(GRID)
    assert clipping_effect_exhibit(of(made)) is None
    for place, trial in enumerate(made.plan.trials):
        path = made.folder / "trials" / trial.id / "result.json"
        form = json.loads(path.read_text())
        form["curator"]["curve"] = [{"step": 80, "mean_factor": 0.1 * (place + 1), "shortened": 0.5}]
        path.write_text(json.dumps(form))
    shown = clipping_effect_exhibit(of(made))
    assert shown is not None
    factors, shares, rates = map(numbers, shown.sheets)
    assert sorted(factors) == pytest.approx([math.log10(0.1 * (place + 1)) for place in range(6)])
    assert shares == [0.5] * 6
    lrs = [trial.axes[LR] for trial in made.plan.trials]
    assert sorted(rates) == pytest.approx(sorted(math.log10(lr * 0.1 * (i + 1)) for i, lr in enumerate(lrs)))


def test_how_often_a_point_is_the_best_of_its_repetition(sweep_of: SweepOf) -> None:
    """Over four repetitions: the first point alone, the second alone, a tie, and once the first has failed."""
    scores = [0.9, 0.2, 0.5, 0.9, 0.1, 0.3, 0.5, 0.1]
    shown = how_often_best_exhibit(of(sweep_of(AGAIN, accuracy=scores.__getitem__, fates={3: "failed"})))
    assert shown is not None
    (sheet,) = shown.sheets
    (row,) = sheet.rows
    wins = [item.key for item in row[1:]]
    assert wins == [pytest.approx(1.5 / 4), pytest.approx(2.5 / 4)]


def test_without_repetitions_nothing_is_said_of_luck(sweep_of: SweepOf) -> None:
    assert how_often_best_exhibit(of(sweep_of(GRID))) is None


def test_the_page_shows_them(sweep_of: SweepOf) -> None:
    made = sweep_of(AGAIN)
    page = write_report(made.folder, made.ledger).read_text()
    assert '<h2 id="how-often-best">' in page
    shown: dict[str, Any] = json.loads((Path(made.folder) / "curator" / "report.json").read_text())["exhibits"]
    assert "how-often-best" in shown
