"""What pages make of each kind of search: of tries that nobody may see they compare nothing and count nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.reports.content.panels import build_map_panels
from dpsweep.reports.content.sweep_table import Sweep, read_sweep
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps
from tests.freezing import LEDGER, restored


def sweep_of_kind(name: str, folder: Path) -> Sweep:
    return read_sweep(restored(name, folder), Ledger(folder / LEDGER))


@pytest.mark.parametrize("name", ["private_selection", "best_of_grid", "noisy_max", "private_selection_final"])
def test_secret_tries_form_no_grid_and_have_no_best_of_a_method(name: str, tmp_path: Path) -> None:
    sweep = sweep_of_kind(name, tmp_path)
    assert len(sweep.table) > 0
    assert (sweep.compared_rows.empty, sweep.map_rows.empty, sweep.winner_id_by_method) == (True, True, {})
    assert draw_joint_and_per_method_heatmaps(build_map_panels(sweep.map_rows, sweep.swept_keys), "accuracy, %") == ()
    shown = sweep.shown
    assert (shown.compared, shown.adds_up, shown.to_come, shown.charge) == (False, False, 0, "the search")


@pytest.mark.parametrize("name", ["private_selection", "poisson_selection", "threshold"])
def test_words_for_secret_tries_are_the_same_whatever_their_number(name: str, tmp_path: Path) -> None:
    shown = sweep_of_kind(name, tmp_path).shown
    words = (shown.charged, shown.charge, shown.note, *shown.covered, *shown.not_covered)
    assert not any(letter.isdigit() for letter in "".join((*words, *shown.bounds, shown.among, shown.outcome)))


@pytest.mark.parametrize(("name", "adds_up"), [("composition", True), ("shared_subsample", False), ("repeats", True)])
def test_runs_of_a_grid_are_compared_and_share_the_bill(name: str, adds_up: bool, tmp_path: Path) -> None:
    sweep = sweep_of_kind(name, tmp_path)
    assert sweep.compared_rows.equals(sweep.table)
    assert sweep.winner_id in sweep.winner_id_by_method.values()
    assert (sweep.shown.compared, sweep.shown.adds_up, sweep.shown.to_come) == (True, adds_up, 0)


def test_proposals_that_are_not_made_yet_are_runs_to_come(tmp_path: Path) -> None:
    sweep = sweep_of_kind("proposed", tmp_path)
    assert sweep.shown.among == "3 runs proposed among "
    assert sweep.shown.to_come == 0
    (sweep.folder / "proposals.json").unlink()
    assert read_sweep(sweep.folder, Ledger(tmp_path / LEDGER)).shown.to_come == 3
