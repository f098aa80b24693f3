"""Metrics of tables of counts: their numbers in closed form, and what one unit changes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import norm
from torch import nn

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import are_same_events, gaussian, noise_std_of_noisy_table
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.reports.content.formatting import metric_label
from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.data.split import Split
from dpsweep.trainers.declarations.estimates import Estimate, binned_auroc
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, SquaredError
from dpsweep.trainers.declarations.metrics import (
    F1,
    Auroc,
    BalancedAccuracy,
    Metric,
    Sensitivity,
    Specificity,
    metric_of,
)
from dpsweep.trainers.declarations.scores import (
    OnTraining,
    PrivateHoldout,
    PublicTest,
    check_metric_fits_classes,
    count_right_and_wrong_units,
    count_units_in_metric_cells,
    number_of_noisy_counts,
)
from dpsweep.trainers.randomness import FINE, add_gaussian_noise_on_lattice
from tests.trainers.metric_samples import NAMES, answering, rng, scored

CONFUSION = np.array([[50.0, 10.0], [5.0, 35.0]])
"""True classes down, predicted ones across."""


def confused(confusion: np.ndarray) -> tuple[nn.Module, Records]:
    """A model and records with this confusion table."""
    pairs = [(i, j) for (i, j), many in np.ndenumerate(confusion) for _ in range(int(many))]
    labels, predicted = np.array(pairs).reshape(-1, 2).T
    return answering(np.eye(len(confusion))[predicted], labels)


def exact(metric: Metric, model: nn.Module, records: Records) -> Estimate:
    return metric.estimate(count_units_in_metric_cells(model, records, "cpu", metric, rng()), 0.0)


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (BalancedAccuracy(), (50 / 60 + 35 / 40) / 2),
        (Sensitivity(), 35 / 40),
        (Sensitivity(positive=0), 50 / 60),
        (Specificity(), 50 / 60),
        (Specificity(positive=0), 35 / 40),
        (F1(), 2 * 35 / (2 * 35 + 10 + 5)),
        (F1(positive=0), 2 * 50 / (2 * 50 + 10 + 5)),
    ],
)
def test_two_classes_in_closed_form(metric: Metric, value: float) -> None:
    estimate = exact(metric, *confused(CONFUSION))
    assert estimate.value == pytest.approx(value, abs=1e-12)
    assert estimate.low < estimate.value < estimate.high


@pytest.mark.parametrize("name", ["balanced_accuracy", "f1", "sensitivity", "specificity"])
def test_counts_of_two_classes_tell_sensitivity_and_specificity_besides(name: str) -> None:
    metric = metric_of(name)
    assert metric is not None
    estimate = exact(metric, *confused(CONFUSION))
    known = {name: estimate.value} | {other: one.value for other, one in estimate.also.items()}
    assert known["sensitivity"] == pytest.approx(35 / 40)
    assert known["specificity"] == pytest.approx(50 / 60)
    assert all(one.low < one.value < one.high for one in estimate.also.values())
    if name == "balanced_accuracy":
        assert estimate.value == pytest.approx((known["sensitivity"] + known["specificity"]) / 2)
    else:
        turned = metric_of(name, positive=0)
        assert turned is not None
        also = exact(turned, *confused(CONFUSION)).also
        expected = {"sensitivity": 50 / 60, "specificity": 35 / 40}
        assert {key: one.value for key, one in also.items()} == pytest.approx({key: expected[key] for key in also})


def test_more_classes_in_closed_form() -> None:
    confusion = np.array([[8, 1, 1], [2, 5, 3], [0, 4, 16]])
    recalls, precisions = (np.diag(confusion) / confusion.sum(axis=axis) for axis in (1, 0))
    f1 = 2 * precisions * recalls / (precisions + recalls)
    assert exact(BalancedAccuracy(), *confused(confusion)).value == pytest.approx(recalls.mean(), abs=1e-12)
    assert exact(F1(), *confused(confusion)).value == pytest.approx(f1.mean(), abs=1e-12)


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    """The chance that a positive record has a higher score than a negative one, of all pairs."""
    higher = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    return float((higher > 0).mean() + (higher == 0).mean() / 2)


@pytest.mark.parametrize("bins", [2, 20, 200])
def test_the_area_of_binned_scores_is_that_of_all_pairs(bins: int) -> None:
    labels = (rng().random(400) < 0.3).astype(np.int64)
    scores = np.clip(0.35 + 0.3 * labels + 0.15 * rng(4).standard_normal(400), 0.01, 0.99)
    estimate = exact(Auroc(bins=bins), *scored(scores, labels))
    log_odds = np.log(scores / (1 - scores))
    binned = (np.floor((log_odds + 6) / 12 * bins) + 0.5) / bins
    assert estimate.value == pytest.approx(area(binned, labels), abs=1e-12)
    other = exact(Auroc(bins=bins, positive=0), *scored(scores, 1 - labels))
    assert other.value == pytest.approx(1 - area(1 - binned, 1 - labels), abs=0.02), "bins of 1 - p have other ends"
    assert estimate.low <= area(scores, labels) <= estimate.high


def test_pairs_within_a_bin_widen_the_interval_by_half_their_share_on_either_side() -> None:
    """With many records what is left of the interval is what the bins hide."""
    negatives, positives = np.array([6e8, 4e8]), np.array([2e8, 8e8])
    ties = 0.6 * 0.2 + 0.4 * 0.8
    estimate = binned_auroc(negatives, positives, 0.0)
    assert estimate.value == pytest.approx(0.6 * 0.8 + ties / 2)
    assert (estimate.low, estimate.high) == pytest.approx((0.6 * 0.8, 0.6 * 0.8 + ties), abs=1e-4)


def test_perfect_inverted_and_useless_scores() -> None:
    labels = np.repeat([0, 1], 500)
    for scores, value in ((0.2 + 0.5 * labels, 1.0), (0.7 - 0.5 * labels, 0.0), (np.full(1000, 0.5), 0.5)):
        estimate = exact(Auroc(), *scored(scores, labels))
        assert estimate.value == pytest.approx(value)
    assert (estimate.low, estimate.high) == pytest.approx((0, 1), abs=0.01), "equal scores hide everything"


def test_outputs_that_are_no_numbers_have_a_cell() -> None:
    for name in NAMES:
        metric = metric_of(name)
        assert metric is not None
        model, records = answering(np.full((3, 2), np.nan), np.array([0, 1, 1]))
        counts = count_units_in_metric_cells(model, records, "cpu", metric, rng())
        assert counts.sum() == 3
        assert len(counts) == metric.number_of_cells(2)


@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_its_size_whatever_the_records(name: str) -> None:
    """That a class, or every record, is missing must not be seen from the number of counts."""
    metric = metric_of(name)
    assert metric is not None
    model, records = confused(CONFUSION)
    for index in (slice(0, 0), slice(0, 1), slice(0, 100)):
        counts = count_units_in_metric_cells(model, records.select(index), "cpu", metric, rng())
        assert len(counts) == metric.number_of_cells(2)
        assert counts.sum() == len(range(100)[index])
    score = PrivateHoldout(fraction=0.2, noise_std=5, metric=name)
    estimate = score.measure(model, Split(train=records, holdout=records.select(slice(0, 0))), rng(), "cpu")
    assert (estimate.low, estimate.high) == (0, 1)
    assert 0 <= estimate.value <= 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [(1,), (7,), (1, 3, 100)])
def test_one_unit_changes_a_table_by_at_most_1_in_norm(name: str, sizes: tuple[int, ...]) -> None:
    metric = metric_of(name)
    assert metric is not None
    units = (4, 2, *sizes)
    of = np.repeat(np.arange(len(units)), units)
    outputs, labels = rng().standard_normal((len(of), 2)), rng(5).integers(0, 2, len(of))
    model, records = answering(outputs, labels)
    by_unit = replace(records, units=Units(names=tuple(f"{one}".encode() for one in range(len(units))), of=of))
    tables = [
        count_units_in_metric_cells(model, by_unit.select(of <= last), "cpu", metric, rng())
        for last in range(1, len(units))
    ]
    for before, after in pairwise(tables):
        assert np.linalg.norm(after - before) <= 1 + 1e-12
        assert (after - before).sum() == pytest.approx(1)
        assert (after - before).min() >= -1e-12


@pytest.mark.parametrize("name", NAMES)
def test_replacing_one_record_moves_a_table_by_the_square_root_of_2(name: str) -> None:
    metric = metric_of(name)
    assert metric is not None
    distances = []
    for seed in range(40):
        outputs, labels = rng(seed).standard_normal((2, 2)), rng(100 + seed).integers(0, 2, 2)
        one, other = (
            count_units_in_metric_cells(*answering(outputs[[k]], labels[[k]]), "cpu", metric, rng()) for k in (0, 1)
        )
        distances.append(float(np.linalg.norm(one - other)))
    assert max(distances) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("name", NAMES)
def test_a_table_costs_what_two_counts_cost(name: str) -> None:
    score, accuracy = (PrivateHoldout(fraction=0.2, noise_std=9, metric=one) for one in (name, "accuracy"))
    assert are_same_events(score.event(Adjacency.ADD_OR_REMOVE_ONE), gaussian(noise_multiplier=9))
    for adjacency in Adjacency:
        assert are_same_events(score.event(adjacency), accuracy.event(adjacency))


@pytest.mark.parametrize(("adjacency", "sensitivity"), [("add_or_remove_one", 1.0), ("replace_one", math.sqrt(2))])
@pytest.mark.parametrize("accountant", [Pld(), Rdp()], ids=["PLD", "RDP"])
def test_the_price_is_that_of_the_sensitivity_of_a_table(
    adjacency: str, sensitivity: float, accountant: Pld | Rdp
) -> None:
    """One Gaussian mechanism of this sensitivity, by its exact privacy profile (Balle and Wang 2018, Theorem 8)."""
    event = PrivateHoldout(fraction=0.2, noise_std=9, metric="f1").event(Adjacency(adjacency))
    epsilon, shift = accountant.epsilon(event, 1e-5, Adjacency(adjacency)), sensitivity / 9
    spent = norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
    assert spent <= 1e-5 * (1 + 1e-9), "never below the truth"
    if isinstance(accountant, Pld):
        assert spent == pytest.approx(1e-5, rel=0.01)
    assert noise_std_of_noisy_table(event) == 9


SCORES = tuple(sorted((Path(__file__).parents[3] / "conf" / "score").glob("*.yaml")))
KINDS = [(output, label) for output in ([3.0, -2.0], [-1.0, 0.5], [math.nan, 1.0]) for label in (0, 1)]
"""Records of both labels, predicted rightly, wrongly and by no number."""


@pytest.mark.parametrize("path", SCORES, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", ["accuracy", *NAMES])
def test_no_neighbours_of_small_tables_are_farther_apart_than_is_priced(path: Path, name: str) -> None:
    """All tables of up to 3 records of 6 kinds, with all their neighbours: the largest distance is the priced one."""
    config = {key: value for key, value in yaml.safe_load(path.read_text()).items() if key != "_target_"}
    if path.stem != "private":
        score = {"public": PublicTest, "training": OnTraining}[path.stem](**{**config, "metric": name, "bins": 20})
        assert all(score.event(adjacency) is None for adjacency in Adjacency), "it reads no private record"
        return
    metric, rows = metric_of(name), {}
    for size in range(4):
        for kinds in combinations_with_replacement(range(len(KINDS)), size):
            model, records = answering(
                np.array([KINDS[kind][0] for kind in kinds]).reshape(size, 2),
                np.array([KINDS[kind][1] for kind in kinds], dtype=np.int64),
            )
            rows[kinds] = (
                count_right_and_wrong_units(model, records, "cpu", rng())
                if metric is None
                else count_units_in_metric_cells(model, records, "cpu", metric, rng())
            )
    farthest = dict.fromkeys(Adjacency, 0.0)
    for kinds, row in rows.items():
        for place in range(len(kinds)):
            others = kinds[:place] + kinds[place + 1 :]
            pairs = [(Adjacency.ADD_OR_REMOVE_ONE, others)]
            pairs += [(Adjacency.REPLACE_ONE, tuple(sorted((*others, kind)))) for kind in range(len(KINDS))]
            for adjacency, neighbour in pairs:
                farthest[adjacency] = max(farthest[adjacency], float(np.linalg.norm(row - rows[neighbour])))
    for adjacency, distance in farthest.items():
        event = PrivateHoldout(**{**config, "metric": name, "noise_std": 9.0}).event(adjacency)
        step = events.as_gaussian_step(event, adjacency)
        assert step is not None
        priced = (2 if adjacency is Adjacency.REPLACE_ONE else 1) * 9 / step[1]
        assert distance <= priced * (1 + 1e-12)
        assert distance == pytest.approx(priced), "and no farther"


@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_is_made_of_noisy_counts_alone(name: str) -> None:
    model, records = confused(10 * CONFUSION)
    score = PrivateHoldout(fraction=0.2, noise_std=7, metric=name)
    metric = score.measured
    assert metric is not None
    same = rng()
    counts = count_units_in_metric_cells(model, records, "cpu", metric, same)
    noisy = add_gaussian_noise_on_lattice(counts, 7, same, FINE)
    assert score.measure(model, Split(train=records, holdout=records), rng(), "cpu") == metric.estimate(noisy, 7)


@pytest.mark.parametrize(("name", "classes", "numbers"), [("accuracy", 7, 2), ("f1", 3, 9), ("auroc", 2, 40)])
def test_how_many_noisy_numbers_are_released_is_known_beforehand(name: str, classes: int, numbers: int) -> None:
    assert number_of_noisy_counts(PrivateHoldout(fraction=0.2, noise_std=7, metric=name), classes) == numbers


def test_a_public_score_is_exact_and_counts_records() -> None:
    model, records = confused(CONFUSION)
    units = replace(records, units=Units(names=(b"one",), of=np.zeros(100, dtype=np.int64)))
    for test in (records, units):
        estimate = PublicTest(metric="balanced_accuracy").measure(model, Split(train=records, test=test), rng(), "cpu")
        assert estimate == exact(BalancedAccuracy(), model, records)


def test_a_measurement_leaves_the_model_in_its_mode() -> None:
    for training in (True, False):
        model, records = confused(CONFUSION)
        model.train(training)
        count_units_in_metric_cells(model, records, "cpu", F1(), rng())
        assert model.training is training


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"metric": "acuracy"}, "Expected score.metric=acuracy to be one of accuracy, auroc, balanced_accuracy, f1, "),
        ({"metric": "dp_sgd"}, "Expected score.metric=dp_sgd to be one of accuracy, auroc, "),
        ({"metric": ["f1"]}, "to be one of accuracy"),
        ({"metric": "f1", "positive": -1}, "Expected score.positive=-1 to be an integer >= 0."),
        ({"metric": "f1", "positive": True}, "Expected score.positive=True to be an integer >= 0."),
        ({"metric": "auroc", "bins": 1}, "Expected score.bins=1 >= 2."),
        ({"metric": "auroc", "bins": 2.5}, "Expected score.bins=2.5 to be an integer >= 0."),
        ({"metric": "f1", "bins": 10}, "Expected score.bins=10 to be left out with score.metric=f1."),
        ({"positive": 0}, "Expected score.positive=0 to be left out with score.metric=accuracy."),
        (
            {"metric": "balanced_accuracy", "positive": 0},
            "Expected score.positive=0 to be left out with score.metric=balanced_accuracy.",
        ),
    ],
)
def test_what_is_no_metric_is_refused(given: dict[str, object], sentence: str) -> None:
    for make in (lambda: PrivateHoldout(fraction=0.2, **given), lambda: PublicTest(**given)):
        with pytest.raises(ValueError, match="Expected score") as refusal:
            make()
        assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "classes", "sentence"),
    [
        ({"metric": "sensitivity"}, 3, "Expected dataset.classes=3 == 2 with score.metric=sensitivity"),
        ({"metric": "specificity"}, 3, "Expected dataset.classes=3 == 2 with score.metric=specificity"),
        ({"metric": "auroc"}, 10, "Expected dataset.classes=10 == 2 with score.metric=auroc"),
        ({"metric": "auroc", "positive": 2}, 2, "Expected score.positive=2 to be 0 or 1 with score.metric=auroc."),
        ({"metric": "f1", "positive": 2}, 2, "Expected score.positive=2 to be 0 or 1 with score.metric=f1."),
        ({"metric": "f1", "positive": 0}, 3, "Expected score.positive=0 to be left out with dataset.classes=3"),
        ({"metric": "f1"}, 1, "Expected score.metric=f1 to be accuracy where the label is a number."),
    ],
)
def test_a_metric_that_the_data_do_not_have_is_refused(given: dict[str, object], classes: int, sentence: str) -> None:
    loss = SquaredError() if classes == 1 else CROSS_ENTROPY
    with pytest.raises(ValueError, match="Expected") as refusal:
        check_metric_fits_classes(PrivateHoldout(fraction=0.2, **given), classes, loss)
    assert sentence in str(refusal.value)


def test_what_the_data_have_is_taken() -> None:
    for given, classes in (({}, 1), ({}, 10), ({"metric": "balanced_accuracy"}, 10), ({"metric": "f1"}, 10)):
        check_metric_fits_classes(
            PrivateHoldout(fraction=0.2, **given), classes, SquaredError() if classes == 1 else CROSS_ENTROPY
        )
    for name in NAMES:
        check_metric_fits_classes(PrivateHoldout(fraction=0.2, metric=name), 2, CROSS_ENTROPY)


@pytest.mark.parametrize("name", NAMES)
def test_trainers_and_reports_call_a_metric_alike(name: str) -> None:
    metric = metric_of(name)
    assert metric is not None
    assert metric.label == metric_label(name)
    for score in (PrivateHoldout(fraction=0.2, noise_std=1, metric=name), PublicTest(metric=name)):
        assert score.statement.lower().startswith(metric.label.lower())
