"""Intervals of metrics: they hold their value, and cover the truth as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpsweep.trainers.data.split import Split
from dpsweep.trainers.declarations.estimates import noisy_accuracy
from dpsweep.trainers.declarations.metrics import Auroc, Metric, Sensitivity, metric_of
from dpsweep.trainers.declarations.scores import PrivateHoldout
from dpsweep.trainers.randomness import secret_streams
from tests.margins import FALSE_ALARM
from tests.trainers.metric_samples import NAMES, rng, scored


def test_one_ratio_has_the_interval_of_an_accuracy() -> None:
    counts = np.array([0.0, 0.0, 31.0, 290.0])
    for noise_std in (0.0, 1.0, 9.0):
        one, other = Sensitivity().estimate(counts, noise_std), noisy_accuracy(290.0, 31.0, noise_std)
        assert one.value == pytest.approx(other.value)
        assert one.low <= other.low + 1e-9
        assert one.high >= other.high - 1e-9
        assert one.high - one.low == pytest.approx(other.high - other.low, rel=0.03)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("noise_std", [0.0, 1.0, 1e3])
def test_intervals_hold_their_value_and_stay_in_range(name: str, noise_std: float) -> None:
    metric = metric_of(name)
    assert metric is not None
    generator = rng()
    for scale in (0.0, 1.0, 30.0, 1e4):
        for _ in range(20):
            counts = scale * generator.random(metric.number_of_cells(2)) + noise_std * generator.standard_normal(
                metric.number_of_cells(2)
            )
            estimate = metric.estimate(counts, noise_std)
            assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
            if scale < noise_std:
                assert (estimate.low, estimate.high) == (0, 1)


SETTINGS = [(30, 0.0), (100, 4.0), (300, 22.0), (1000, 4.0)]
"""Records of a class, and noise."""


def hits(metric: Metric, tables: np.ndarray, noise_std: float, truth: float, generator: np.random.Generator) -> float:
    noisy = tables + noise_std * generator.standard_normal(tables.shape)
    found = [metric.estimate(counts, noise_std) for counts in noisy]
    return float(np.mean([one.low <= truth <= one.high for one in found]))


@pytest.mark.parametrize(("records", "noise_std"), SETTINGS)
@pytest.mark.parametrize("recall", [0.6, 0.9, 0.99])
@pytest.mark.parametrize(("classes", "name"), [(2, "balanced_accuracy"), (2, "f1"), (2, "sensitivity"), (4, "f1")])
def test_intervals_of_ratios_cover(classes: int, name: str, recall: float, records: int, noise_std: float) -> None:
    """By simulation; the seed is fixed, and 1000 intervals tell 7 % misses from 10 %."""
    metric, generator, times = metric_of(name), rng(), 1000
    assert metric is not None
    rates = np.full((classes, classes), (1 - recall) / (classes - 1))
    np.fill_diagonal(rates, recall)
    sizes = np.full(classes, records)
    sizes[0] *= 3
    tables = np.stack([generator.multinomial(size, row, times) for size, row in zip(sizes, rates, strict=True)], axis=1)
    expected = sizes[:, None] * rates
    each = 2 * np.diag(expected) / (expected.sum(axis=0) + expected.sum(axis=1))
    truth = {"f1": each[1] if classes == 2 else each.mean()}.get(name, recall)
    right = np.diagonal(tables, axis1=1, axis2=2)
    pairs = np.stack([tables.sum(axis=2) - right, right], axis=2)
    cells = (pairs if name == "balanced_accuracy" else tables).reshape(times, -1)
    assert hits(metric, cells, noise_std, truth, generator) > 0.92


def drawn(kind: str, truth: float, size: tuple[int, int], generator: np.random.Generator) -> np.ndarray:
    """Decision values [*size, 2] of negatives and positives whose true area is `truth`."""
    if kind == "normal":
        apart = math.sqrt(2) * norm.ppf(truth)
        values = generator.standard_normal((*size, 2)) + np.array([-apart / 2, apart / 2])
        return np.asarray(1 / (1 + np.exp(-values)))
    negatives = generator.uniform(0, 0.5, size)
    outlier = generator.random(size) > 2 * truth - 1
    positives = np.where(outlier, generator.uniform(0, 0.5, size), generator.uniform(0.6, 0.9, size))
    return np.stack([negatives, positives], axis=2)


@pytest.mark.parametrize(("records", "noise_std"), SETTINGS)
@pytest.mark.parametrize("truth", [0.5, 0.8, 0.97])
@pytest.mark.parametrize("kind", ["normal", "outliers"])
@pytest.mark.parametrize("bins", [20, 200])
def test_intervals_of_areas_cover_the_area_before_binning(
    bins: int, kind: str, truth: float, records: int, noise_std: float
) -> None:
    generator, times = rng(), 600
    values = drawn(kind, truth, (times, records), generator)
    places = np.minimum((values * bins).astype(np.int64), bins - 1)
    tables = np.array([[np.bincount(one, minlength=bins) for one in pair.T] for pair in places]).reshape(times, -1)
    assert hits(Auroc(bins=bins), tables, noise_std, truth, generator) > 0.92


RUNS, LEAST_COVER = 4000, 0.94
"""Intervals that are drawn in secret, and the share of them that is known to hold the truth at least.

Of 20000 simulated intervals of each metric in the test below, 94.7 % or more did.
"""


@pytest.mark.randomized(
    draws="noise of 4000 tables of counts, and the predictions that they count",
    bound="a binomial quantile at a coverage of 94 %, which simulation finds to be more",
    false_alarm=FALSE_ALARM,
)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in ("auroc", "f1"))) for name in NAMES]
)
def test_intervals_cover_with_secret_noise(name: str) -> None:
    """A share below this quantile says that noise is larger than declared, or that the interval forgets a part."""
    score = PrivateHoldout(fraction=0.2, noise_std=6, metric=name)
    metric = score.measured
    assert metric is not None
    secret, recall, size = secret_streams().score, 0.8, 250
    truth = {"f1": recall, "auroc": recall}.get(name, recall)
    covered = 0
    for _ in range(RUNS):
        right = secret.random(2 * size) < recall
        labels = np.repeat([0, 1], size)
        probability = np.where(right == (labels == 1), 0.55, 0.45) + secret.uniform(-0.04, 0.04, 2 * size)
        model, records = scored(probability, labels)
        estimate = score.measure(model, Split(train=records, holdout=records), secret, "cpu")
        covered += estimate.low <= truth <= estimate.high
    assert covered >= binom.ppf(FALSE_ALARM, RUNS, LEAST_COVER)
