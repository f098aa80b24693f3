"""The record of what ran: where it lies, and who may look into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.sweeper.coordinator.study import record_results_in_study, require_reachable_study
from tests.sweeper.search_programs import GRID, SELECTION, Place, Program, result_of

NOWHERE = "postgresql://me:secret@localhost:1/studies"


def test_results_are_recorded_once_where_the_user_says(place: Callable[..., Place], tmp_path: Path) -> None:
    here, address = place(GRID), f"sqlite:///{tmp_path / 'shared.db'}"
    trials = here.plan.trials
    results = [result_of(trial, fate) for trial, fate in zip(trials, (0.5, 0.7, "failed", "diverged"), strict=True)]
    record_results_in_study(here.plan, here.folder, trials, results[:2], address)
    record_results_in_study(here.plan, here.folder, trials, results, address)
    study = optuna.load_study(study_name=f"digits-{here.plan.id}", storage=address)
    assert [(trial.state.name, trial.value) for trial in study.trials] == [
        ("COMPLETE", 0.5),
        ("COMPLETE", 0.7),
        ("FAIL", None),
        ("COMPLETE", 0.0),
    ]
    assert [trial.params["trainer.lr"] for trial in study.trials] == [trial.axes["trainer.lr"] for trial in trials]
    assert not here.folder.optuna_study_path.exists()


def test_axes_of_lists_are_recorded_as_text(place: Callable[..., Place], tmp_path: Path) -> None:
    widths = ("model=mlp", "model.widths=[3],[3,4]")
    here, address = place((*GRID, *widths)), f"sqlite:///{tmp_path / 'shared.db'}"
    trials = here.plan.trials
    record_results_in_study(here.plan, here.folder, trials, [result_of(trial, 0.5) for trial in trials], address)
    study = optuna.load_study(study_name=f"digits-{here.plan.id}", storage=address)
    assert {trial.params["model.widths"] for trial in study.trials} == {"[3, 4]", "[3]"}


@pytest.mark.parametrize("address", [NOWHERE, "no address", "sqlite:////nowhere/at/all.db"])
def test_a_study_that_can_not_be_reached_is_one_sentence_without_a_password(
    place: Callable[..., Place], address: str
) -> None:
    here = place(GRID)
    with pytest.raises(
        BadInput, match=r"^Expected hydra\.sweeper\.study=.* to be a study that can be written"
    ) as refusal:
        require_reachable_study(here.plan, here.folder, address)
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("line", "address", "reason"),
    [
        (GRID, NOWHERE, "to be a study that can be written"),
        (SELECTION, "sqlite:///shared.db", "sees how many tries there were"),
    ],
    ids=["nowhere", "hidden"],
)
def test_a_study_that_may_not_be_is_refused_before_the_charge(
    program: Program, ledger: Ledger, tmp_path: Path, line: tuple[str, ...], address: str, reason: str
) -> None:
    refused = program(*line, f"hydra.sweeper.study='{address}'")
    assert refused.returncode == 2
    assert reason in refused.stderr
    assert "secret" not in refused.stderr
    assert ledger.account_names() == ()
    assert not (tmp_path / "shared.db").exists()
