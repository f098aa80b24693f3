"""Intervals that cover the choice: the winner's interval holds its true score as often as it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import betaincinv

from dpsweep.trainers.declarations import covering_intervals
from dpsweep.trainers.declarations.covering_intervals import (
    NoisyCount,
    _log_noisy_binomial_tail,
    _log_noisy_hoeffding_tail,
    share_interval,
)
from dpsweep.trainers.declarations.metrics import metric_of
from dpsweep.trainers.declarations.scores import PrivateHoldout

SURE, LEAST, TRUST = 0.05, 0.94, 0.01


@pytest.mark.parametrize(("right", "wrong"), [(90, 10), (0, 12), (12, 0), (1, 1), (500, 3)])
@pytest.mark.parametrize("level", [0.05, 0.05 / 32])
def test_without_noise_the_interval_is_that_of_clopper_and_pearson(right: int, wrong: int, level: float) -> None:
    low, high = share_interval(NoisyCount(value=right, std=0.0), NoisyCount(value=wrong, std=0.0), level)
    assert low == pytest.approx(0.0 if not right else betaincinv(right, wrong + 1, level / 2), abs=3e-5)
    assert high == pytest.approx(1.0 if not wrong else betaincinv(right + 1, wrong, 1 - level / 2), abs=3e-5)


@pytest.mark.parametrize("whole_units", [True, False])
def test_an_interval_grows_with_noise_with_certainty_and_with_fractions(whole_units: bool) -> None:
    def width(std: float, level: float) -> float:
        low, high = share_interval(
            NoisyCount(value=870.0, std=std), NoisyCount(value=130.0, std=std), level, whole_units=whole_units
        )
        assert 0 <= low < 0.87 < high <= 1
        return high - low

    assert width(0.0, 0.05) < width(4.0, 0.05) < width(8.0, 0.05) < width(8.0, 0.05 / 32)


def test_units_with_fractions_have_wider_intervals() -> None:
    right, wrong = NoisyCount(value=870.0, std=4.0), NoisyCount(value=130.0, std=4.0)
    (low, high), (least, most) = (share_interval(right, wrong, 0.01, whole_units=whole) for whole in (True, False))
    assert least < low < high < most


@pytest.mark.parametrize("counts", [(-3.0, -2.0), (0.0, 0.0), (-40.0, 3.0), (3.0, -40.0), (2.0, 1.0)])
def test_counts_that_are_noise_alone_say_nothing(counts: tuple[float, float]) -> None:
    right, wrong = (NoisyCount(value=count, std=30.0) for count in counts)
    assert share_interval(right, wrong, 0.05) == (0.0, 1.0)


@pytest.mark.parametrize("tail", [_log_noisy_binomial_tail, _log_noisy_hoeffding_tail])
@pytest.mark.parametrize("std", [0.5, 4.0, 30.0])
def test_a_tail_is_largest_at_the_largest_number_of_units(
    tail: Callable[[int, float, float, float], float], std: float
) -> None:
    """So an upper bound on the number of units bounds the tail, wherever it is small."""
    for share in (0.02, 0.3, 0.8, 0.97):
        for deviation in (1.0, 5.0, 20.0, 80.0):
            logs = [tail(units, share, deviation, std) for units in range(5, 900, 11)]
            small = [one for one in logs if -18 < one < math.log(0.025)]
            assert all(after >= before - covering_intervals.LATTICE for before, after in pairwise(small))


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "f1", "sensitivity", "specificity", "auroc"])
@pytest.mark.parametrize("classes", [2, 5])
def test_every_metric_has_an_interval_around_its_value(name: str, classes: int) -> None:
    if classes > 2 and name not in ("balanced_accuracy", "f1"):
        return
    score, generator = PrivateHoldout(fraction=0.2, noise_std=2.0, metric=name), np.random.default_rng(0)
    metric = metric_of(name)
    counts = 300 * generator.random(2 if metric is None else metric.number_of_cells(classes))
    found = score.intervals_at_level(tuple(counts), 0.01, whole_units=True)
    if metric is None:
        assert found["accuracy"][0] < counts[0] / counts.sum() < found["accuracy"][1]
        return
    estimate = metric.estimate(counts, 2.0)
    assert tuple(found) == (metric.label, *estimate.also)
    for value, (low, high) in zip((estimate, *estimate.also.values()), found.values(), strict=True):
        assert 0 <= low <= value.low + 0.02
        assert value.high - 0.02 <= high <= 1


@dataclass(frozen=True, kw_only=True)
class Case:
    """A search of models of known truth; `mean` is the mean of a Poisson law of tries, None where every point runs."""

    name: str
    metric: str = "accuracy"
    records: int = 1000
    positives: float = 0.5
    noise: float = 4.0
    points: int = 32
    mean: float | None = None
    alike: bool = False
    recalls: tuple[float, float] = (0.7, 0.95)
    fractions: bool = False


CASES = (
    Case(name="one point", points=1),
    Case(name="six points at epsilon 3", points=6, noise=3.4),
    Case(name="32 points at epsilon 3", noise=7.9),
    Case(name="100 points at epsilon 1", points=100, noise=30.0),
    Case(name="32 points without noise", noise=0.0),
    Case(name="150 records", records=150, noise=1.4, points=12),
    Case(name="150 records, much noise", records=150, noise=12.0, points=12),
    Case(name="50,000 records", records=50_000, noise=7.9),
    Case(name="models that err on the same records", alike=True),
    Case(name="equal models", recalls=(0.9, 0.9)),
    Case(name="nearly perfect models", recalls=(0.995, 1.0), noise=2.0),
    Case(name="models no better than chance", recalls=(0.45, 0.55)),
    Case(name="patients with several records", fractions=True, points=12),
    Case(name="three repeats of ten points", points=30, recalls=(0.85, 0.87)),
    Case(name="balanced, half positive", metric="balanced_accuracy"),
    Case(name="balanced, one in ten", metric="balanced_accuracy", positives=0.1),
    Case(name="balanced, one in fifty", metric="balanced_accuracy", positives=0.02, records=5000, noise=1.4),
    Case(name="sensitivity of one in fifty", metric="sensitivity", positives=0.02, records=5000, noise=1.4),
    Case(name="F1, one in ten", metric="f1", positives=0.1),
    Case(name="F1, one in fifty", metric="f1", positives=0.02, records=5000, noise=1.4),
    Case(name="about eight tries of 32 points", mean=8.0, noise=1.4),
    Case(name="less than one try", mean=0.4, noise=1.4),
    Case(name="balanced, about three tries", mean=3.0, metric="balanced_accuracy", positives=0.1, noise=1.4),
)


def tables(case: Case, runs: int, generator: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The confusion tables [runs, 4] of models on the same records, and the true recalls [runs, 2] of both classes."""
    true = generator.uniform(*case.recalls, (runs, 2))
    if case.positives == 0.5 and case.metric == "accuracy":
        true[:, 1] = true[:, 0]
    positives = generator.binomial(case.records, case.positives)
    sizes = np.array([case.records - positives, positives])
    if case.alike:
        thresholds = [np.sort(generator.random(size)) for size in sizes]
        right = np.stack([np.searchsorted(one, true[:, row]) for row, one in enumerate(thresholds)], axis=1)
    else:
        right = generator.binomial(sizes, true)
    rights = right.astype(float)
    if case.fractions:  # each unit adds the share of its records that are right, between 0 and 1
        spread = np.minimum(true, 1 - true)
        noise = generator.uniform(-1, 1, (runs, 2)) * np.sqrt(sizes) * spread
        rights = sizes * true + noise
    wrongs = sizes - rights
    return np.stack([rights[:, 0], wrongs[:, 0], wrongs[:, 1], rights[:, 1]], axis=1), true


def counts_and_truth(
    case: Case, runs: int, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The noisy counts of each run as its metric orders them, and the true metric of each run."""
    confusion, true = tables(case, runs, generator)
    share = case.positives
    if case.metric == "accuracy":
        counts = np.stack([confusion[:, 0] + confusion[:, 3], confusion[:, 1] + confusion[:, 2]], axis=1)
        truth = (1 - share) * true[:, 0] + share * true[:, 1]
    elif case.metric == "balanced_accuracy":
        counts, truth = confusion[:, [1, 0, 2, 3]], true.mean(axis=1)
    elif case.metric == "sensitivity":
        counts, truth = confusion, true[:, 1]
    else:
        hits, misses, alarms = share * true[:, 1], share * (1 - true[:, 1]), (1 - share) * (1 - true[:, 0])
        counts, truth = confusion, 2 * hits / (2 * hits + misses + alarms)
    return counts + case.noise * generator.standard_normal(counts.shape), truth


def misses(case: Case, simulations: int, generator: np.random.Generator) -> int:
    """How many of so many searches have a winner whose interval misses its true score."""
    score = PrivateHoldout(fraction=0.2, noise_std=case.noise or 1e-12, metric=case.metric)
    metric, missed = score.measured, 0
    level = SURE / (case.points if case.mean is None else max(1.0, case.mean))
    for _ in range(simulations):
        runs = case.points if case.mean is None else int(generator.poisson(case.mean))
        if not runs:
            continue
        counts, truth = counts_and_truth(case, runs, generator)
        if metric is None:
            values = counts[:, 0] / counts.sum(axis=1)
        else:
            own = next(iter(metric.ratios_by_label(4).values()))  # type: ignore[attr-defined]
            values = np.array([np.divide(*own.numerators_and_denominators(one)).mean() for one in counts])
        best = int(values.argmax())
        low, high = next(iter(score.intervals_at_level(counts[best], level, whole_units=not case.fractions).values()))
        missed += not low <= truth[best] <= high
    return missed


def lower_bound(hits: int, trials: int) -> float:
    """The exact lower bound on a probability, wrong with probability `TRUST`."""
    return float(betaincinv(hits, trials - hits + 1, TRUST)) if hits else 0.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("simulations", [60, pytest.param(10_000, marks=pytest.mark.long)])
def test_the_winner_is_covered(case: Case, simulations: int) -> None:
    missed = misses(case, simulations, np.random.default_rng(len(case.name)))
    if simulations == 10_000:
        assert lower_bound(simulations - missed, simulations) >= LEAST, missed
    else:
        assert missed <= 12, "4 in 60 are expected at most"


def test_a_level_for_one_run_misses_the_winner_of_many() -> None:
    """What the division of the level is for."""
    case = Case(name="equal models", recalls=(0.9, 0.9), noise=7.9, points=100)
    generator, score = np.random.default_rng(1), PrivateHoldout(fraction=0.2, noise_std=case.noise)
    missed = 0
    for _ in range(40):
        counts, truth = counts_and_truth(case, case.points, generator)
        best = int((counts[:, 0] / counts.sum(axis=1)).argmax())
        low, high = score.intervals_at_level(counts[best], SURE, whole_units=True)["accuracy"]
        missed += not low <= truth[best] <= high
    assert missed > 20
