"""Predictions are scored as the model that made them: same counts, same noise, same refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.data.split import Split
from dpsweep.trainers.declarations.losses import BinaryCrossEntropy, CrossEntropy, SquaredError
from dpsweep.trainers.declarations.scores import OnTraining, PrivateHoldout, PublicTest, scored_records_of_split
from dpsweep.trainers.scripts.handover_files import require_valid_predictions
from dpsweep.trainers.scripts.prediction_table import MOST, LookedUp, records_with_row_numbers

CLASSES = 3


def records(many: int, *, units: bool = False) -> Records:
    rng = np.random.default_rng(many)
    of = np.sort(rng.permutation(np.concatenate([np.arange(5), rng.integers(0, 5, size=many - 5)]))) if units else None
    return Records(
        features=torch.from_numpy(rng.random((many, 4), dtype=np.float32)),
        labels=torch.from_numpy(rng.integers(0, CLASSES, size=many)),
        units=None if of is None else Units(names=tuple(bytes([name]) for name in range(5)), of=of),
    )


def model(outputs: int = CLASSES) -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(4, outputs)


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy", "f1", "auroc"])
@pytest.mark.parametrize("kind", [PrivateHoldout, PublicTest, OnTraining])
def test_a_model_and_its_predictions_have_the_same_score(kind: type, metric: str, units: bool) -> None:
    classes = 2 if metric == "auroc" else CLASSES
    part = records(57, units=units)
    part = replace(part, labels=part.labels % classes)
    split = Split(train=part, holdout=part if kind is PrivateHoldout else None, test=part)
    score = (
        PrivateHoldout(fraction=0.2, noise_std=2.0, metric=metric) if kind is PrivateHoldout else kind(metric=metric)
    )
    net = model(classes)
    with torch.no_grad():
        table = net(part.features).softmax(dim=1).double().numpy()
    rows = records_with_row_numbers(scored_records_of_split(score, split))
    same = Split(train=rows, holdout=rows, test=rows)
    forms = [table] if metric == "auroc" else [table, table.argmax(axis=1)]
    expected = score.measure(net, split, np.random.default_rng(5), "cpu", CrossEntropy())
    for form in forms:
        looked_up = LookedUp(require_valid_predictions(form, len(part), classes), classes)
        assert score.measure(looked_up, same, np.random.default_rng(5), "cpu", CrossEntropy()) == expected


def test_numbers_are_scored_as_a_model_of_numbers() -> None:
    part = replace(records(20), labels=torch.linspace(0, 1, 20))
    net = model(1)
    with torch.no_grad():
        numbers = net(part.features)[:, 0].numpy()
    score, rows = PublicTest(), records_with_row_numbers(part)
    ours, theirs = (
        score.measure(one, Split(train=part, test=test), np.random.default_rng(0), "cpu", SquaredError(cap=4.0))
        for one, test in ((net, part), (LookedUp(require_valid_predictions(numbers, 20, 1), 1), rows))
    )
    assert ours == theirs


@pytest.mark.parametrize("units", [False, True])
def test_several_labels_are_scored_as_a_model_of_several_labels(units: bool) -> None:
    part = records(57, units=units)
    part = replace(part, labels=(part.features[:, :CLASSES] > 0.4).float())
    net = model()
    with torch.no_grad():
        odds = net(part.features).double()
    score, rows = PrivateHoldout(fraction=0.2, noise_std=2.0), records_with_row_numbers(part)
    expected = score.measure(
        net, Split(train=part, holdout=part), np.random.default_rng(5), "cpu", BinaryCrossEntropy()
    )
    for form in (odds.sigmoid().numpy(), (odds > 0).numpy(), (odds > 0).numpy().astype(np.int64)):
        table = require_valid_predictions(form, len(part), CLASSES, several_labels=True)
        looked_up = LookedUp(table, CLASSES, several_labels=True)
        split = Split(train=rows, holdout=rows)
        found = score.measure(looked_up, split, np.random.default_rng(5), "cpu", BinaryCrossEntropy())
        assert found == expected


@pytest.mark.parametrize(
    "predictions",
    [
        np.zeros(5),
        np.zeros((5, 2)),
        np.full((5, 3), 1.5),
        np.full((5, 3), -1),
        np.full((5, 3), np.nan),
        np.full((5, 3), "yes"),
        np.zeros((5, 3), dtype=np.complex128),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_other_several_labels_are_refused_in_one_sentence(predictions: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=r"^Expected predictions=.* to be numbers from 0 to 1 \[5, 3\], a column"):
        require_valid_predictions(predictions, 5, 3, several_labels=True)


def test_an_empty_holdout_is_scored_too() -> None:
    part = records(7)
    nothing = part.select(np.zeros(7, dtype=np.bool_))
    split = Split(train=part, holdout=records_with_row_numbers(nothing))
    score = PrivateHoldout(fraction=0.2, noise_std=2.0, metric="f1")
    looked_up = LookedUp(require_valid_predictions(np.zeros(0, dtype=np.int64), 0, CLASSES), CLASSES)
    assert 0 <= score.measure(looked_up, split, np.random.default_rng(0), "cpu", CrossEntropy()).value <= 1


def test_rows_are_told_apart_as_far_as_float32_counts() -> None:
    assert int(torch.tensor(MOST - 1, dtype=torch.float32)) == MOST - 1
    assert int(torch.tensor(MOST + 1, dtype=torch.float32)) != MOST + 1


@pytest.mark.parametrize(
    "predictions",
    [
        np.zeros(4, dtype=np.int64),
        np.zeros((5, 2)),
        np.zeros((5, 3)),
        np.full((5, 3), np.nan),
        np.array([[2.0, -1.0, 0.0]] * 5),
        np.array([0, 1, 2, 3, 0]),
        np.array([0, 1, 2, -1, 0]),
        np.array(0.99),
        np.array(["cat"] * 5),
        np.array([True] * 5),
        np.array([0.0, 1.0, 2.0, 0.0, 0.0]),
        np.array([None] * 5, dtype=object),
        np.zeros(5, dtype=np.complex128),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_other_predictions_are_refused_in_one_sentence(predictions: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=r"^Expected predictions=.* to be .*\.$") as refusal:
        require_valid_predictions(predictions, 5, 3)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("numbers", [np.array([1.0, np.inf]), np.array([1, 2]), np.array([[1.0], [2.0]])])
def test_other_numbers_are_refused(numbers: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=r"to be finite floating-point numbers \[2\]\.$"):
        require_valid_predictions(numbers, 2, 1)
