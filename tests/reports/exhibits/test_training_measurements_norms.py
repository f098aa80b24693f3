"""The exhibit of gradient norms: medians of the last measurements by bound, and which clip norms bind."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.exhibits.training_measurements import gradient_norms_exhibit
from tests.reports.conftest import CLIP, LR, Made

SweepOf = Callable[..., Made]
GRID = {"dpsgd": {LR: (0.1, 0.2, 0.4), CLIP: (1.0, 2.0)}}


def measure(made: Made, shares: dict[float, float]) -> None:
    """Gives each run two measurements; the last has its place as median norm, and its clip norm's share."""
    for place, trial in enumerate(made.plan.trials):
        path = made.folder / "trials" / trial.id / "result.json"
        form = json.loads(path.read_text())
        norms = {"gradient_norm_q10": 0.5 * place, "gradient_norm_q50": 1.0 * place, "gradient_norm_q90": 2.0 * place}
        looks = [{"step": 40, **dict.fromkeys(norms, 99.0), "shortened": 0.5}]
        form["curator"]["curve"] = [*looks, {"step": 80, **norms, "shortened": shares[trial.axes[CLIP]]}]
        path.write_text(json.dumps(form))


def test_each_bound_has_the_medians_of_its_runs_and_is_judged(sweep_of: SweepOf) -> None:
    made = sweep_of(GRID)
    assert gradient_norms_exhibit(table.read_sweep(made.folder, made.ledger)) is None
    measure(made, {1.0: 0.95, 2.0: 0.05})
    shown = gradient_norms_exhibit(table.read_sweep(made.folder, made.ledger))
    assert shown is not None
    (sheet,) = shown.sheets
    clips = [trial.axes[CLIP] for trial in made.plan.trials]
    for row in sheet.rows:
        places = sorted(place for place, clip in enumerate(clips) if clip == row[1].key)
        medians = [share * places[1] for share in (0.5, 1.0, 2.0)]
        assert [item.key for item in row[2:6]] == pytest.approx([3, *medians])
    assert [row[1].text for row in sheet.rows] == ["clip_norm 1", "clip_norm 2"]
    assert [sentence.split(" of the")[0] for sentence in shown.findings] == [
        "DP-SGD: clip_norm 1 shortens at least 90%",
        "DP-SGD: clip_norm 2 shortens at most 10%",
    ]


def test_bounds_between_are_not_judged(sweep_of: SweepOf) -> None:
    made = sweep_of(GRID)
    measure(made, {1.0: 0.5, 2.0: 0.4})
    shown = gradient_norms_exhibit(table.read_sweep(made.folder, made.ledger))
    assert shown is not None
    assert shown.findings == ()
