"""The program on the real data sets, where `DPSWEEP_DATA` names a folder that holds them; for `make test-long`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import Status, TrialResult
from tests.sweeper.digits_sweeps import folder_of

Program = Callable[..., subprocess.CompletedProcess[str]]
DATA = os.environ.get("DPSWEEP_DATA")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not DATA, reason="DPSWEEP_DATA names no folder with the official files"),
]


def results(program: Program, dataset: str, *line: str) -> list[TrialResult]:
    done = program(f"dataset={dataset}", f"data='{DATA}'", *line, timeout=1500)
    if "to have" in done.stderr or "is not in" in done.stderr:
        pytest.skip(f"{dataset} is not in {DATA}")
    assert done.returncode == 0, done.stderr
    folder = folder_of(done)
    plan = Plan.read(folder / "plan.json")
    found = [TrialResult.read(folder / "trials" / trial.id) for trial in plan.trials]
    return [result for result in found if result is not None]


@pytest.mark.parametrize(
    ("dataset", "grid", "accuracy"),
    [
        ("mnist", ("trainer=dpsgd", "trainer.lr=0.8,3.2", "trainer.clip_norm=1.6"), 0.86),
        ("mnist", ("trainer=dpnsgd", "trainer.lr=3.2", "trainer.regularizer=0.01,1"), 0.85),
        ("mnist", ("trainer=dpadam", "trainer.lr=0.003,0.01", "trainer.clip_norm=1.6"), 0.8),
        ("adult", ("trainer=dpnsgd", "trainer.lr=2,8", "trainer.regularizer=0.1"), 0.8),
        ("cifar10", ("trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=3.2"), 0.74),
        ("sst2", ("trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=3.2"), 0.74),
        ("fashion_mnist", ("trainer=dpsgd", "trainer.lr=0.5,2", "trainer.clip_norm=1"), 0.7),
    ],
)
def test_private_training_learns_at_the_default_budget(
    program: Program, ledger: Ledger, dataset: str, grid: tuple[str, ...], accuracy: float
) -> None:
    """Thresholds several points below what single runs reached, with a seed so that the noise decides nothing."""
    found = results(program, dataset, *grid, "seed=1")
    assert {result.status for result in found} == {Status.FINISHED}
    assert max(result.score["value"] for result in found if result.score) > accuracy
    assert reserved_amounts(ledger.statement(dataset))[0] <= 8.0


def test_resnet20_on_cifar10_to_the_end(program: Program, ledger: Ledger) -> None:
    """2 x 2 points, a few steps: the path of the papers' experiment, not its accuracy."""
    grid = ("trainer=dpnsgd", "trainer.lr=0.4,1.6", "trainer.regularizer=0.01,1", "steps=2", "seed=1")
    found = results(program, "cifar10", "model=resnet20", *grid)
    assert [result.status for result in found] == [Status.FINISHED] * 4
    assert all(result.steps == 2 for result in found)
    assert len(ledger.statement("cifar10").charges) == 1
