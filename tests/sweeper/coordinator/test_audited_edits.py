"""Edits of a paid folder that `verify` finds: the promise of its plan, its final run, and an outcome of no attempt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.stored_draw import SearchOutcome
from dpsweep.accounting.selection.interface import Draw
from tests.randomized import SEARCHES
from tests.sweeper import proposing
from tests.sweeper.search_programs import GRID, SELECTION, Place, work

pytestmark = SEARCHES

Places = Callable[..., Place]


def edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def finished(here: Place) -> Place:
    """Every point has run, and the final run if the plan has one."""
    proposing.go_on(here, here.begin())
    verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    return here


def test_a_plan_that_calls_private_data_public(place: Places) -> None:
    here = finished(place(GRID))
    edited(here.folder.plan_path, budget={"epsilon": "infinity", "delta": 1e-5})
    with pytest.raises(ContractBroken, match="says that its data were declared public, unlike"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_another_final_run_than_the_one_that_was_started(place: Places) -> None:
    here = finished(place((*GRID, "final=true")))
    point = json.loads(here.folder.final_point_path.read_text())["point"]
    edited(here.folder.final_point_path, point=(point + 1) % len(here.plan.final_runs))
    with pytest.raises(ContractBroken, match=r"final\.json names another final run than was started"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_an_outcome_of_an_attempt_that_was_never_made(place: Places) -> None:
    here = place(SELECTION)
    work(here.plant(Draw(tries=(0, 1, 2))), {0: 0.5, 1: 0.4, 2: 0.7})
    verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    SearchOutcome(attempt=2, winner=2).write(here.folder.outcome_path)
    with pytest.raises(ContractBroken, match="one of an attempt that was never made"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)
