"""Training on arrays on disk: the weights are, bit by bit, those of the same records in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.arrays_on_disk import RowFile
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.sets.own_arrays import Arrays, Npz
from dpsweep.trainers.declarations.batch_sampling import FixedSize, Poisson, Sampler, Shuffle
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
from dpsweep.trainers.declarations.scores import quality_per_record
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training import gradient_sums
from dpsweep.trainers.training.gradient_sums import StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run
from tests.trainers.loops import RUN, flat
from tests.trainers.single_run import train

COUNT, SHAPE, CLASSES = 120, (2, 3), 3
GIVEN: dict[str, Any] = {
    **{"name": "own", "records": COUNT, "test_records": 0, "shape": SHAPE, "classes": CLASSES, "unit": "record"},
    **{"features": "x", "labels": "y", "bounds": (0, 200)},
}
PATIENTS: dict[str, Any] = {"unit": "patient", "unit_column": "who", "units": 40, "contribution_cap": 4}


def both(folder: Path, **declared: Any) -> tuple[Records, Records]:
    rng = np.random.default_rng(3)
    arrays = {
        "x": rng.uniform(-9, 209, (COUNT, *SHAPE)).astype(np.float32),
        "y": rng.integers(0, CLASSES, COUNT),
        "who": rng.integers(0, 40, COUNT),
    }
    np.savez(folder / "own.npz", **arrays)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    disk, _ = Arrays(path=str(folder), **GIVEN | declared).load(None)
    memory, _ = Npz(path=str(folder / "own.npz"), **GIVEN | declared).load(None)
    chosen = np.random.default_rng(1).permutation(len(disk))[: len(disk) - 10]
    return disk.select(chosen), memory.select(chosen)


def trained(run: Run, records: Records) -> Tensor:
    model = build_model_with_seeded_weights(lambda: logistic(SHAPE, CLASSES), 11)
    train(run, model, Opacus(), records, reproducible_streams(5, "run"), device="cpu")
    return torch.cat([flat(model), torch.from_numpy(quality_per_record(model, records, "cpu", CROSS_ENTROPY))])


@pytest.mark.parametrize("declared", [{}, PATIENTS], ids=["records", "patients"])
@pytest.mark.parametrize("sampler", [Poisson(batch_size=30), FixedSize(batch_size=30), Shuffle(batch_size=30)])
def test_weights_and_scores_are_those_of_records_in_memory(
    tmp_path: Path, sampler: Sampler, declared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[int] = []
    ask = RowFile.read_ahead
    monkeypatch.setattr(RowFile, "read_ahead", lambda file, rows: (ahead.append(len(rows)), ask(file, rows))[1])
    disk, memory = both(tmp_path, **declared)
    run = replace(RUN, sampler=sampler, steps=6, train_records=36 if declared else 90)
    if isinstance(sampler, FixedSize):
        run = replace(run, adjacency=Adjacency.REPLACE_ONE)
    assert torch.equal(trained(run, disk), trained(run, memory))
    assert len(ahead) == run.steps - 1, "the last step has none after it"


def test_stacked_runs_are_those_of_records_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_sums, "_HELD", 0)
    monkeypatch.setattr(gradient_sums, "_GATHERED", 0)
    weights = []
    for records in both(tmp_path):
        models = [build_model_with_seeded_weights(lambda: logistic(SHAPE, CLASSES), seed) for seed in (1, 2)]
        sums = StackedSums(stack=Stack.from_model(models[0], CROSS_ENTROPY), records=records, device="cpu")
        streams = [reproducible_streams(5, f"run {place}") for place in range(2)]
        train_together([RUN, RUN], models, sums, records, streams, device="cpu")
        weights.append(torch.cat([flat(model) for model in models]))
    assert torch.equal(*weights)
