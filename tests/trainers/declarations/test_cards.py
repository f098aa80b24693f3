"""Cards: what two tables tell, what one unit changes in them, and that each number's interval holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from sklearn.metrics import average_precision_score, balanced_accuracy_score, f1_score
from torch import nn

from dpsweep.accounting.records.card import SAME_ANSWER, Card
from dpsweep.trainers.data.records import Records, assign_units_and_cap_records
from dpsweep.trainers.declarations.cards import (
    AVERAGE_PRECISION,
    THRESHOLDED,
    CardDetails,
    Reading,
    count_card_cells,
    details_of_card,
    number_of_tables,
    numbers_of_card,
    threshold_with_largest,
)
from dpsweep.trainers.declarations.losses import (
    AbsoluteError,
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    Loss,
    NextToken,
    SquaredError,
)
from dpsweep.trainers.declarations.metrics import Auroc
from dpsweep.trainers.declarations.scores import PrivateHoldout
from tests.trainers.metric_samples import Coupled, Rounding, neighbours, tied

SCORE = PrivateHoldout(fraction=0.2, noise_std=1.0)
LOSSES: dict[int, Loss] = {1: SquaredError(cap=4.0), 2: CrossEntropy(), 7: CrossEntropy(), 12: CrossEntropy()}
EXACT = Reading(std=0.0, level=0.05, whole_units=True)


class Echo(nn.Module):
    """A model whose outputs are its inputs."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


def records_of(classes: int, count: int, generator: np.random.Generator, units: int = 0) -> Records:
    outputs = torch.from_numpy(generator.normal(scale=3.0, size=(count, classes)).astype(np.float32))
    labels = torch.from_numpy(generator.integers(classes, size=count))
    records = Records(features=outputs, labels=labels if classes > 1 else outputs[:, 0] + labels.float() + 0.5)
    if not units:
        return records
    names = [f"unit {place}".encode() for place in generator.integers(units, size=count)]
    return assign_units_and_cap_records(records, names, cap=count)


def table_of(records: Records, classes: int) -> tuple[NDArray[np.float64], CardDetails | None, Loss]:
    loss = LOSSES[classes]
    details = details_of_card(loss, SCORE, classes)
    return count_card_cells(Echo(), records, "cpu", loss, details, np.random.default_rng(0)), details, loss


@pytest.mark.parametrize("classes", LOSSES)
def test_exact_counts_tell_what_the_records_say(classes: int) -> None:
    records = records_of(classes, 4000, np.random.default_rng(classes))
    counts, details, loss = table_of(records, classes)
    numbers = {one.label: one for one in numbers_of_card(counts, loss, SCORE, details, EXACT)}
    outputs, labels = records.features.numpy(), records.labels.numpy()
    if classes == 1:
        errors = np.minimum(np.abs(outputs[:, 0] - labels), 2.0)
        expected = {"root mean squared error": math.sqrt((errors**2).mean()), "mean absolute error": errors.mean()}
        assert all(numbers[label].in_target_unit for label in expected)
    else:
        answers = outputs.argmax(axis=1)
        recalls = [(answers[labels == one] == one).mean() for one in range(classes)]
        expected = {
            "accuracy": (answers == labels).mean(),
            "balanced accuracy": np.mean(recalls),
            SAME_ANSWER: np.bincount(labels).max() / len(labels),
        }
    if classes == 2:
        right = ((answers == 1) & (labels == 1)).sum()
        expected |= {"sensitivity": recalls[1], "specificity": recalls[0]}
        expected |= {"F1": 2 * right / ((answers == 1).sum() + (labels == 1).sum())}
        area = average_precision_score(labels, outputs[:, 1] - outputs[:, 0])
        assert numbers[AVERAGE_PRECISION].value == pytest.approx(area, abs=0.02)
        assert numbers[AVERAGE_PRECISION].low < area < numbers[AVERAGE_PRECISION].high
    if classes > 2:
        expected |= {f"recall of class {place}": recall for place, recall in enumerate(recalls)}
    for label, value in expected.items():
        assert numbers[label].value == pytest.approx(value, abs=1e-4), label
        assert numbers[label].low <= value <= numbers[label].high
    assert ("AUROC" in numbers) is (classes == 2)


@pytest.mark.parametrize("loss", [SquaredError(cap=4.0), AbsoluteError(cap=2.0), Huber(cap=2.0)])
def test_a_regression_tells_both_errors_in_the_unit_of_its_target(loss: Loss) -> None:
    records = records_of(1, 4000, np.random.default_rng(1))
    errors = 50 * np.minimum(np.abs(records.features.numpy()[:, 0] - records.labels.numpy()), 2.0)
    details = details_of_card(loss, SCORE, 1)
    counts = count_card_cells(Echo(), records, "cpu", loss, details, np.random.default_rng(0))
    first, *others = numbers_of_card(counts, loss, SCORE, details, replace(EXACT, target_width=50.0))
    assert first.label == loss.quality_name
    truth = {"root mean squared error": math.sqrt((errors**2).mean()), "mean absolute error": errors.mean()}
    assert {one.label for one in others} == set(truth)
    for one in others:
        assert one.in_target_unit
        assert one.value == pytest.approx(truth[one.label], rel=1e-4)
        assert one.low <= one.value <= one.high


@pytest.mark.parametrize("units", [0, 40])
def test_several_labels_are_told_one_by_one_from_a_vector_of_norm_1(units: int) -> None:
    generator, loss = np.random.default_rng(3), BinaryCrossEntropy()
    outputs = generator.normal(size=(400, 3)).astype(np.float32)
    labels = (outputs + generator.normal(scale=[0.5, 1.0, 2.0], size=(400, 3)) > 0).astype(np.float32)
    records = Records(features=torch.from_numpy(outputs), labels=torch.from_numpy(labels))
    if units:
        names = [f"unit {place}".encode() for place in generator.integers(units, size=400)]
        records = assign_units_and_cap_records(records, names, cap=400)
    details = details_of_card(loss, SCORE, 3, label_names=("fever", "cough", "rash"))
    assert details is not None
    counts = count_card_cells(Echo(), records, "cpu", loss, details, np.random.default_rng(0))
    reading = replace(EXACT, whole_units=False)
    first, *others = numbers_of_card(counts, loss, SCORE, details, reading)
    right = (records.inputs(slice(None), "cpu").numpy() > 0) == (records.labels.numpy() > 0.5)
    weights = records.weight_of_each_record_in_unit / records.number_of_units
    assert first.label == "share of right labels"
    assert first.value == pytest.approx(float(weights @ right.mean(axis=1)))
    assert [one.label for one in others] == ["accuracy of fever", "accuracy of cough", "accuracy of rash"]
    for place, one in enumerate(others):
        assert one.value == pytest.approx(float(weights @ right[:, place]))
        assert one.low < one.value < one.high
    one_unit = records.select(records.units.of == 0) if records.units is not None else records.select(slice(0, 1))
    change = details.count(Echo(), one_unit, torch.device("cpu"), np.random.default_rng(0))
    assert np.linalg.norm(change) <= 1 + 1e-9
    assert units or np.linalg.norm(change) == pytest.approx(1)
    likely = numbers_of_card((360.0, 40.0, *details.likely_counts([400 / 3] * 3, 0.9)), loss, SCORE, details, reading)
    assert [round(one.value, 6) for one in likely] == [0.9] * 4


def test_predicted_probabilities_are_compared_with_what_was_observed() -> None:
    generator = np.random.default_rng(0)
    odds = generator.normal(scale=3.0, size=20_000)
    labels = generator.random(20_000) < 1 / (1 + np.exp(-odds))
    features = torch.from_numpy(np.stack([np.zeros_like(odds), odds], axis=1).astype(np.float32))
    records = Records(features=features, labels=torch.from_numpy(labels.astype(np.int64)))
    counts, details, loss = table_of(records, 2)
    numbers = [one for one in numbers_of_card(counts, loss, SCORE, details, EXACT) if "predicted" in one.label]
    assert len(numbers) == 5
    for number in numbers[1:-1]:
        low, high = (float(text.rstrip("%")) / 100 for text in number.label.split()[2:5:2])
        assert low < number.value < high, "the model is calibrated"


@pytest.mark.parametrize("threshold", [0.5, 0.1])
def test_a_row_of_the_calibration_counts_what_its_label_says(threshold: float) -> None:
    """Probabilities beyond the bins, and outputs that are no numbers, are in a row that names them."""
    odds = torch.tensor([math.nan, -1e30, -9.0, 0.0, 0.1, 9.0, 1e30])
    labels = torch.tensor([1, 0, 0, 0, 1, 1, 1])
    records = Records(features=torch.stack([torch.zeros(7), odds], dim=1), labels=labels)
    details = details_of_card(CrossEntropy(), SCORE, 2, threshold)
    counts = count_card_cells(Echo(), records, "cpu", CrossEntropy(), details, np.random.default_rng(0))
    numbers = numbers_of_card(counts, CrossEntropy(), SCORE, details, EXACT)
    rows = [one for one in numbers if "predicted" in one.label]
    shift = math.log(threshold / (1 - threshold))
    edges = [f"{1 / (1 + math.exp(6 - shift - 2.4 * place)):.1%}" for place in range(1, 5)]
    assert [one.label for one in rows] == [
        f"observed where less than {edges[0]}, or no number, was predicted",
        *(f"observed where {low} to {high} was predicted" for low, high in pairwise(edges)),
        f"observed where {edges[-1]} or more was predicted",
    ]
    assert rows[0].value == pytest.approx(1 / 3)
    assert rows[-1].value == pytest.approx(1.0)


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.9])
def test_a_threshold_decides_in_every_number(threshold: float) -> None:
    records = records_of(2, 4000, np.random.default_rng(2))
    details = details_of_card(CrossEntropy(), SCORE, 2, threshold)
    counts = count_card_cells(Echo(), records, "cpu", CrossEntropy(), details, np.random.default_rng(0))
    numbers = {one.label: one for one in numbers_of_card(counts, CrossEntropy(), SCORE, details, EXACT)}
    outputs, labels = records.features.double(), records.labels.numpy()
    answers = (outputs.softmax(dim=1)[:, 1] >= threshold).numpy()
    expected = {
        "accuracy": (answers == labels).mean(),
        "sensitivity": answers[labels == 1].mean(),
        "specificity": (~answers[labels == 0]).mean(),
    }
    for label, value in expected.items():
        assert numbers[label].value == pytest.approx(value, abs=1e-4), label
    plain = {one.label: one for one in numbers_of_card(table_of(records, 2)[0], CrossEntropy(), SCORE, details, EXACT)}
    assert numbers["AUROC"].value == pytest.approx(plain["AUROC"].value, abs=0.02), "the order is the same"
    odds = threshold / (1 - threshold)
    end = next(label for label in numbers if "predicted" in label).split()[4].rstrip("%,")
    assert float(end) / 100 == pytest.approx(1 / (1 + math.exp(3.6) / odds), abs=1e-3)


@pytest.mark.parametrize("metric", THRESHOLDED)
@pytest.mark.parametrize("share", [0.5, 0.03])
def test_a_threshold_follows_from_the_table_of_an_area(metric: str, share: float) -> None:
    generator = np.random.default_rng(3)
    labels = generator.random(20_000) < share
    odds = 2 * labels + np.log(share / (1 - share)) - 1 + generator.normal(size=20_000)
    table = Auroc()
    outputs = torch.from_numpy(np.stack([np.zeros_like(odds), odds], axis=1))
    cells = table.cell_indices(outputs, torch.from_numpy(labels.astype(np.int64))).numpy()
    counts = np.bincount(cells, minlength=40).astype(float)
    score = balanced_accuracy_score if metric == "balanced_accuracy" else f1_score
    edges = 1 / (1 + np.exp(6 - 0.6 * np.arange(1, 20)))
    best = edges[np.argmax([score(labels, 1 / (1 + np.exp(-odds)) >= edge) for edge in edges])]
    assert threshold_with_largest(metric, counts.tolist(), table) == pytest.approx(best)


@pytest.mark.parametrize("classes", LOSSES)
@pytest.mark.parametrize("units", [0, 40])
def test_one_unit_changes_each_table_by_1_at_most(classes: int, units: int) -> None:
    records = records_of(classes, 200, np.random.default_rng(classes), units)
    whole, details, _ = table_of(records, classes)
    for unit in range(20):
        kept = np.arange(200) != unit if records.units is None else records.units.of != unit
        change = whole - table_of(records.select(np.flatnonzero(kept)), classes)[0]
        for part in (change[:2], change[2:]):
            assert np.linalg.norm(part) <= 1 + 1e-6
        assert np.linalg.norm(change) <= math.sqrt(number_of_tables(details)) + 1e-6


@pytest.mark.parametrize(("classes", "loss"), [*LOSSES.items(), (3, BinaryCrossEntropy())])
@pytest.mark.parametrize("units", [0, 25])
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
def test_an_added_unit_changes_no_prediction_of_another(classes: int, loss: Loss, units: int, first: bool) -> None:
    """The places of the others have the same law; with the same draws all of their predictions are the same."""
    records = tied(100, units, classes)
    if loss.several_labels:
        records = replace(records, labels=(torch.arange(300).view(100, 3) % 2).float())
    elif classes == 1:
        records = replace(records, labels=records.labels.float())
    details = details_of_card(loss, SCORE, classes)
    for seed in range(10):
        before, after = (
            count_card_cells(Rounding(), part, "cpu", loss, details, Coupled(seed, skip))
            for part, skip in neighbours(records, first=first)
        )
        for part in (slice(0, 2), slice(2, None)):
            change = (after - before)[part]
            assert change.min() > -1e-5, "no other prediction has changed"
            assert np.linalg.norm(change) <= 1 + 1e-5


def test_a_text_has_one_table() -> None:
    assert details_of_card(NextToken(), SCORE, 50) is None
    assert Card(noise_std=2.0).noise_std_of_counts(1) == 2.0
    two = number_of_tables(details_of_card(CrossEntropy(), SCORE, 2))
    assert Card(noise_std=2.0).noise_std_of_counts(two) ** 2 == pytest.approx(8.0)


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy", "auroc", "f1"])
def test_the_first_number_is_the_metric_of_the_sweep(metric: str) -> None:
    score = PrivateHoldout(fraction=0.2, noise_std=1.0, metric=metric)
    details = details_of_card(CrossEntropy(), score, 2)
    counts = (80.0, 20.0, *[5.0] * 40)
    first = numbers_of_card(counts, CrossEntropy(), score, details, EXACT)[0].label
    assert first.lower().replace(" ", "_") == metric


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model of known truth: the share of each class, the recall of each, the units, and the noise of each count."""

    shares: tuple[float, ...]
    recall: float
    units: int
    std: float


CASES = (
    Case(shares=(0.5, 0.5), recall=0.8, units=150, std=1.97),
    Case(shares=(0.5, 0.5), recall=0.97, units=5000, std=5.3),
    Case(shares=(0.9, 0.1), recall=0.9, units=1000, std=1.97),
    Case(shares=(0.98, 0.02), recall=0.7, units=4000, std=0.85),
    Case(shares=(0.3, 0.2, 0.2, 0.2, 0.05, 0.05), recall=0.6, units=800, std=5.3),
)


def counts_and_truth(case: Case, generator: np.random.Generator) -> tuple[NDArray[np.float64], dict[str, float]]:
    """The noisy counts of a model that gives each unit its class with probability `recall`, else another one."""
    classes = len(case.shares)
    labels = generator.choice(classes, p=case.shares, size=case.units)
    right = generator.random(case.units) < case.recall
    others = (labels + generator.integers(1, classes, size=case.units)) % classes
    answers = np.where(right, labels, others)
    if classes == 2:
        size = generator.exponential(2.0, size=case.units)
        place = np.clip(((np.where(answers == 1, size, -size) + 6) / 12 * 20).astype(int), 0, 19)
        table = np.bincount(20 * labels + place, minlength=40)
    elif classes <= 10:
        table = np.bincount(classes * labels + answers, minlength=classes**2)
    else:
        table = np.bincount(2 * labels + right, minlength=2 * classes)
    exact = np.array([right.sum(), (~right).sum(), *table], dtype=np.float64)
    truth = {"accuracy": case.recall, "balanced accuracy": case.recall, SAME_ANSWER: max(case.shares)}
    if classes == 2:
        caught = case.shares[1] * case.recall
        missed, wrong = case.shares[1] - caught, case.shares[0] * (1 - case.recall)
        truth |= {
            "sensitivity": case.recall,
            "specificity": case.recall,
            "F1": 2 * caught / (2 * caught + missed + wrong),
        }
        positive = _area(case.recall)
        truth |= {"AUROC": positive, AVERAGE_PRECISION: _mean_precision(case)}
    else:
        truth |= {f"recall of class {place}": case.recall for place in range(classes)}
    return exact + generator.normal(scale=case.std, size=len(exact)), truth


def _area(recall: float) -> float:
    """The area of log-odds of random size, of the right sign with probability `recall`.

    Both right: ordered. Both wrong: misordered. One right, one wrong: two sizes of one law on one side, half the pairs.
    """
    return recall**2 + recall * (1 - recall)


def _mean_precision(case: Case) -> float:
    """The mean over all recalls of the precision there.

    Down to a log-odds of 0 the share of wrong ones among the negatives grows with the recall, and then up to 1.
    """
    recalls = np.linspace(0, 1, 100_001)[1:]
    fallouts = np.interp(recalls, [0, case.recall, 1], [0, 1 - case.recall, 1])
    caught, alarms = case.shares[1] * recalls, case.shares[0] * fallouts
    return float((caught / (caught + alarms)).mean())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case.shares)} classes, {case.units}, {case.std}")
@pytest.mark.parametrize("simulations", [10, pytest.param(10_000, marks=pytest.mark.long)])
def test_each_number_holds_at_95_percent(case: Case, simulations: int) -> None:
    generator, missed = np.random.default_rng(case.units), dict[str, int]()
    details = details_of_card(CrossEntropy(), SCORE, len(case.shares))
    reading = Reading(std=case.std, level=0.05, whole_units=True)
    for _ in range(simulations):
        counts, truth = counts_and_truth(case, generator)
        numbers = numbers_of_card(counts, CrossEntropy(), SCORE, details, reading)
        for number in numbers:
            if number.label in truth:
                miss = not number.low <= truth[number.label] <= number.high
                missed[number.label] = missed.get(number.label, 0) + miss
    assert set(missed) == set(truth)
    for label, count in missed.items():
        if simulations > 1000:
            least = beta.ppf(0.01, simulations - count, count + 1)
            assert least >= 0.94, f"{label}: {count} of {simulations} missed"
        else:
            assert count <= 5, label
