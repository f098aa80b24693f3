"""Training curves of a page: medians of the runs that were looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.exhibits.training_measurements import training_curves_exhibit

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4, 0.8), "trainer.clip_norm": (0.5, 1)}}
FATES = {1: "failed", 3: "diverged", 4: "killed", 6: "not run"}
ADD = Adjacency.ADD_OR_REMOVE_ONE
SweepOf = Callable[..., Any]


def column(sheet: Sheet, name: str) -> list[Any]:
    place = sheet.columns.index(name)
    return [row[place].text if row[place].key is None else row[place].key for row in sheet.rows]


def test_the_course_of_training_is_the_median_of_the_runs_that_were_looked_at(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates={0: "failed"})
    looks = {1: (0.2, 0.5), 2: (0.3, 0.9), 3: (0.7, None)}
    for place, (first, last) in looks.items():
        path = made.folder / "trials" / made.plan.trials[place].id / "result.json"
        form = json.loads(path.read_text())
        form["curator"]["curve"] = [{"step": 40, "test_accuracy": first}, {"step": 80, "test_accuracy": last}]
        path.write_text(json.dumps(form))
    shown = training_curves_exhibit(table.read_sweep(made.folder, made.ledger))
    assert shown is not None
    (sheet,) = shown.sheets
    found = zip(*(column(sheet, name) for name in ("steps", "runs", "least", "median", "most")), strict=True)
    assert list(found) == [(40, 3, 0.2, 0.3, 0.7), (80, 2, 0.5, 0.7, 0.9)]


def test_runs_that_nobody_looked_at_have_no_course(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    assert training_curves_exhibit(table.read_sweep(made.folder, made.ledger)) is None
