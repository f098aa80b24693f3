"""A script hands back numbers and several labels: they are scored like those of a model, or refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dpsweep
from tests.randomized import TRAINS

pytestmark = TRAINS

TRAIN = """
import numpy as np

import dpsweep


class Accountant:
    def __init__(self):
        self.history = []


with dpsweep.attempt() as a:
    fault = a.hyperparameters.get("fault", "none")
    rng = np.random.default_rng()
    features, labels = (np.c_[a.train.features, np.ones(len(a.train.labels))], a.train.labels)
    labels = labels.reshape(len(labels), -1)
    weights, accountant = np.zeros((features.shape[1], a.classes)), Accountant()
    for _ in a.each_step():
        batch = rng.random(len(labels)) < a.sample_rate
        errors = features[batch] @ weights - labels[batch]
        norms = np.linalg.norm(errors, axis=1) * np.linalg.norm(features[batch], axis=1)
        factors = np.minimum(1, a.clip_norm / np.maximum(norms, 1e-12))
        total = features[batch].T @ (errors * factors[:, None])
        total += rng.normal(size=total.shape) * a.noise_multiplier * a.clip_norm
        weights -= a.hyperparameters["lr"] * total / a.batch_size
        accountant.history.append((a.noise_multiplier, a.sample_rate, 1))
    said = np.c_[a.score_features, np.ones(len(a.score_features))] @ weights
    assert (a.target, len(a.label_names)) in (((0.0, 10.0), 0), (None, 2)), (a.target, a.label_names)
    predictions = said[:, 0] if a.target else np.clip(said, 0, 1)
    if fault == "columns":
        predictions = said[:, :1]
    if fault == "range":
        predictions = said + 5 if a.label_names else np.full(len(said), np.nan)
    with open("weights.txt", "w") as stream:
        stream.write(str(weights.tolist()))
    a.report(event=accountant, predictions=predictions, files={"weights.txt": "weights.txt"})
"""
DATA = (
    *("dataset=table", "dataset.name=visits", "dataset.records=400", "dataset.shape=[2]"),
    "dataset.bounds={x: [0,1], y: [0,1]}",
)
NUMBERS = ("dataset.label=sum", "dataset.target=[0,10]", "dataset.classes=1", "loss=squared_error")
SEVERAL = (
    *("dataset.label=[left,right]", 'dataset.labels=["no","yes"]', "dataset.classes=2", "loss=binary_cross_entropy"),
)
TRAINING = (
    *("trainer=script", "script=train.py", "trainer.lr=0.5", "trainer.clip_norm=2", "steps=40", "accountant=rdp"),
    *("sampler.batch_size=100", "privacy.noise_multiplier=0.7", "privacy.delta=1e-3", "budget.delta=2e-3"),
    *("accountant.witnesses=[]", "compute.threads=1", "budget.epsilon=1000", "score.noise_std=0.5"),
)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))
    (tmp_path / "train.py").write_text(TRAIN)
    rows = np.random.default_rng(0).random((400, 2)).round(4)
    lines = [f"{x},{y},{5 * (x + y)},{'yes' if x > 0.5 else 'no'},{'yes' if y > 0.5 else 'no'}" for x, y in rows]
    (tmp_path / "visits.csv").write_text("\n".join(["x,y,sum,left,right", *lines]) + "\n")


def swept(tmp_path: Path, *words: str) -> dpsweep.SweepResults:
    return dpsweep.sweep([*DATA, f"dataset.file={tmp_path / 'visits.csv'}", *TRAINING, *words])


def test_numbers_of_a_script_are_scored_in_the_unit_of_the_target(tmp_path: Path) -> None:
    results = swept(tmp_path, *NUMBERS, "dataset.target_unit=cm")
    (row,) = results.trials.to_dict("records")
    assert row["state"] == "finished"
    low, error, high = (row[f"root_mean_squared_error{end}"] for end in ("_low", "", "_high"))
    assert row["below_noise"] == (error is None), (
        "the script finds the law, so that noise often drives its error below 0"
    )
    assert 0 <= low <= (low if error is None else error) <= high <= 10
    assert " cm" in (results.folder / "curator" / "report.html").read_text()


def test_several_labels_of_a_script_are_scored_by_the_share_of_right_ones(tmp_path: Path) -> None:
    results = swept(tmp_path, *SEVERAL, "page=false")
    (row,) = results.trials.to_dict("records")
    assert row["state"] == "finished"
    assert 0 <= row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"] <= 1


@pytest.mark.parametrize("fault", ["columns", "range"])
@pytest.mark.parametrize("kind", ["numbers", "several"])
def test_other_predictions_are_refused_and_stay_charged(kind: str, fault: str, tmp_path: Path) -> None:
    words = NUMBERS if kind == "numbers" else SEVERAL
    results = swept(tmp_path, *words, f"+trainer.hyperparameters.fault={fault}", "page=false")
    (path,) = results.folder.glob("trials/*/result.json")
    form = json.loads(path.read_text())
    assert form["status"] == "failed"
    assert form["score"] is None
    assert results.epsilon > 0
    (log,) = results.folder.glob("trials/*/script.log")
    expected = "finite floating-point numbers [" if kind == "numbers" else "numbers from 0 to 1 ["
    assert expected in log.read_text()
