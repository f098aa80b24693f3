"""Two files that differ by one patient, through all that stands between a file and a sum or a count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.sets.own_tables import Table
from dpsweep.trainers.data.split import Split
from dpsweep.trainers.declarations.scores import PrivateHoldout, count_right_and_wrong_units
from dpsweep.trainers.engines.interface import Task
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.methods.named_methods import DpAdam, DpNsgd, DpSgd
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from tests.trainers.gradients import units_of_sizes

TABLE = Table(
    name="visits",
    records=200,
    shape=(2,),
    classes=2,
    unit="patient",
    file="visits.csv",
    label="ill",
    labels=("no", "yes"),
    bounds={"age": (18, 90), "weight": (40, 150)},
    unit_column="patient",
    units=60,
    contribution_cap=250,
)
SOME = [
    f"P{patient},{18 + (7 * patient + visit) % 70},{45 + patient},{'yes' if patient % 3 else 'no'}"
    for patient in range(60)
    for visit in range(1 + patient % 5)
]
TRAINED, HELD_OUT = "P1000", "P1001"
"""Two identifiers that the public hash puts into different parts."""


def loaded(folder: Path, rows: list[str], cap: int) -> Split:
    (folder / "visits.csv").write_text("\n".join(["patient,age,weight,ill", *rows]) + "\n")
    private, test = replace(TABLE, contribution_cap=cap).load(folder)
    return PrivateHoldout(fraction=0.3).split(private, test, Adjacency.ADD_OR_REMOVE_ONE)


def parts(split: Split) -> tuple[Records, Records]:
    assert split.holdout is not None
    return split.train, split.holdout


def rows_of(records: Records) -> dict[bytes, list[list[float]]]:
    assert records.units is not None
    found: dict[bytes, list[list[float]]] = {}
    rows = records.stored_features().tolist()
    for unit, features, label in zip(records.units.of, rows, records.labels.tolist(), strict=True):
        found.setdefault(records.units.names[unit], []).append([*features, label])
    return found


@pytest.mark.parametrize("cap", [2, 250])
@pytest.mark.parametrize("patient", [TRAINED, HELD_OUT])
@pytest.mark.parametrize(
    "trainer",
    [DpSgd(lr=1, clip_norm=0.05), DpNsgd(lr=1, regularizer=0.01), DpAdam(lr=1, clip_norm=0.05)],
    ids=lambda trainer: trainer.label,
)
def test_one_more_patient_with_many_extreme_records_is_bounded_everywhere(tmp_path, trainer, patient, cap) -> None:
    extreme = [f"{patient},{10**6},-1e300,no"] * 200 + [f"{patient},90,150,yes"]
    without = parts(loaded(tmp_path, SOME, cap))
    joined = parts(loaded(tmp_path, [*SOME[:50], *extreme, *SOME[50:]], cap))
    model = build_model_with_seeded_weights(lambda: one_hidden((2,), 2, width=8), 3).double()

    def total(train: Records) -> torch.Tensor:
        assert train.units is not None
        index = np.argsort(train.units.of, kind="stable")
        inputs, targets = train.inputs(index, "cpu").double(), train.targets(index, "cpu")
        units = units_of_sizes(inputs, targets, train.units.records_per_unit.tolist())
        return Opacus().bounded_gradient_sum_and_norms(model, units, Task(transform=trainer.transform, chunk=40))[0]

    moved = float((total(joined[0]) - total(without[0])).norm())
    counts = [count_right_and_wrong_units(model.float(), holdout, "cpu") for _, holdout in (without, joined)]
    assert moved <= trainer.transform.norm_bound * (1 + 1e-9)
    assert np.linalg.norm(counts[1] - counts[0]) <= 1 + 1e-12
    assert (moved > 0) == (patient == TRAINED)
    assert np.array_equal(*counts) == (patient == TRAINED)
    for ours, theirs in zip(without, joined, strict=True):
        assert {name: rows for name, rows in rows_of(theirs).items() if name != patient.encode()} == rows_of(ours)
