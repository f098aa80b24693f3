"""Results of a search as figures read them: kept in a file, looked at in the course of training, tuned by loss."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.reproduction.learning_curves import family_of_clipping_method, runs_with_curves
from dpsweep.reports.reproduction.processor_time import FILE, read_processor_time, record_processor_time
from dpsweep.reports.reproduction.results import (
    RunCurve,
    RunPrice,
    SearchResults,
    TrainingFacts,
    read_results,
    rows_at_evenly_spaced_steps,
    rows_of_first_recorded_step,
    table_with_row_per_recorded_step,
    write_results,
)
from dpsweep.reports.statistics.point_scores import CLIP, LR, STEPS

FACTS = TrainingFacts(
    account="digits",
    records=1797,
    runs=4,
    points=4,
    batch_sizes=(360,),
    steps=(20,),
    noise_multipliers=(2.0,),
    epsilon="1.5",
    delta=1e-5,
    adjacency="add_or_remove_one",
    began="2026-11-24T00:00:00+00:00",
    ended="2026-11-24T00:01:00+00:00",
    commits=("0123456789",),
    core_minutes=0.5,
    versions={"torch": "2.0"},
)


def course(*losses: float | None) -> RunCurve:
    return tuple(
        {"step": 10 * place, "training_loss": loss, "training_accuracy": 0.1 * place, "mean_factor": 1.0}
        for place, loss in enumerate(losses, start=1)
    )


def results(curves: dict[str, RunCurve], steps: int | None = None) -> SearchResults:
    """Two clip norms at two learning rates; by default without a column for the number of steps."""
    table = pd.DataFrame(
        {
            "trial": ["a", "b", "c", "d"],
            "method": "dpsgd",
            LR: [0.1, 1.0, 0.1, 1.0],
            CLIP: [1.0, 1.0, 2.0, 2.0],
            "noise_multiplier": 2.0,
            "state": [State.FINISHED, State.FINISHED, State.FINISHED, State.DIVERGED],
            "accuracy": [0.5, 1 / 3, 0.7, None],
            "accuracy_low": [0.4, 0.3, 0.6, None],
            "accuracy_high": [0.6, 0.4, 0.8, None],
            "folder": "trials/x",
        }
    )
    return SearchResults(
        table=table if steps is None else table.assign(**{STEPS: steps}),
        curves=curves,
        axes=(LR, CLIP),
        quality="accuracy",
        measure="accuracy",
        prices=(RunPrice(noise_multiplier=2.0, papers="no bound", ours="0.5"),),
        facts=FACTS,
    )


CURVES = {"a": course(2.0, 1.0), "b": course(2.0, 0.5), "c": course(2.0, 0.25), "d": course(2.0, None)}


def test_a_file_gives_back_what_figures_read(tmp_path: Path) -> None:
    given = results(CURVES, steps=20)
    write_results(given, tmp_path / "new" / "results.json.xz")
    kept = read_results(tmp_path / "new" / "results.json.xz")
    assert (kept.axes, kept.prices, kept.facts) == (given.axes, given.prices, FACTS)
    assert list(kept.table["trial"]) == ["1", "2", "3", "4"]
    assert "folder" not in kept.table
    scores = pd.to_numeric(kept.table["accuracy"])
    np.testing.assert_allclose(scores, pd.to_numeric(given.table["accuracy"]), rtol=1e-5)
    assert kept.table["accuracy"][1] == 0.333333, "six digits"
    assert list(kept.table["state"]) == list(given.table["state"])
    assert kept.curve_of_run("4")[1] == {"step": 20, "training_loss": None, "training_accuracy": 0.2}
    assert kept.curve_of_run("5") == ()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["results.json.xz"]


def test_a_file_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results.json.xz"
    monkeypatch.setattr("dpsweep.reports.reproduction.results.SCHEMA", 2)
    write_results(results(CURVES), file)
    monkeypatch.undo()
    with pytest.raises(BadInput, match=r"Expected schema in .*=2 to be 1\."):
        read_results(file)


@pytest.mark.parametrize("steps", [None, 20], ids=["steps are no axis", "steps are a column"])
def test_looks_are_rows(steps: int | None) -> None:
    rows = table_with_row_per_recorded_step(results(CURVES, steps=steps))
    assert list(rows[STEPS]) == [10, 20] * 4
    assert list(rows["accuracy"][:2]) == [0.1, 0.2]
    assert rows["accuracy"][6:].isna().all(), "a diverged run has no score at any step"
    assert rows["accuracy_low"].isna().all(), "the interval of the last score is not that of a look"
    assert set(rows_of_first_recorded_step(rows)[STEPS]) == {10}
    assert set(rows_at_evenly_spaced_steps(rows, count=1)[STEPS]) == {20}


def test_a_run_without_a_curve_has_no_looks() -> None:
    assert list(table_with_row_per_recorded_step(results({"a": CURVES["a"]}))["trial"]) == ["a", "a"]


def test_each_bound_is_read_at_its_best_learning_rate() -> None:
    family = family_of_clipping_method("dpsgd")
    assert family.tuned_learning_rate_by_bound(runs_with_curves(results(CURVES))) == {1.0: 1.0, 2.0: 0.1}, (
        "a loss that is no number is the worst"
    )
    (courses,) = family.tuned_learning_curves(runs_with_curves(results(CURVES))).values()
    assert {value: one["training_loss"].iloc[-1] for value, one in courses.items()} == {1.0: 0.5, 2.0: 0.25}


def test_processor_time_is_that_of_the_pieces_that_trained(tmp_path: Path) -> None:
    assert read_processor_time(tmp_path).seconds is None
    for piece in ("first", "second", ""):
        with record_processor_time(tmp_path):
            subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
            if piece:
                (tmp_path / "sweeps" / "plan" / "trials" / piece).mkdir(parents=True)
    assert len((tmp_path / FILE).read_text().splitlines()) == 2, "a piece without a run is none"
    assert 0 < (read_processor_time(tmp_path).seconds or 0) < 60
    with (tmp_path / FILE).open("a") as file:
        file.write('{"seconds": null, "commit": "0123456789"}\n')
    assert read_processor_time(tmp_path).seconds is None, "a piece that was killed before it was measured"
    assert "0123456789" in read_processor_time(tmp_path).commits
