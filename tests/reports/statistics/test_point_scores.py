"""Points' errors, intervals of statistics, and shares of variance: against definitions and made-up truths."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from numpy.random import Generator, Philox

from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.statistics.point_scores import (
    CLIP,
    LR,
    point_scores,
    weighted_mean_of_ordered_scores,
    weights_of_best,
    weights_of_mean_best,
    weights_of_median,
    weights_of_worst,
)
from dpsweep.reports.statistics.score_grid import (
    log_rate_at_peak_of_each_row,
    score_grid,
    variance_shares,
)
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict, joint_verdict, unknown_estimate

HOLDS, MISSED, REFUTED, UNDECIDED = Verdict
RATES, CLIPS = tuple(np.geomspace(0.01, 100, 9)), tuple(np.geomspace(0.1, 10, 5))


def table(means: np.ndarray, repeats: int, std: float | np.ndarray, seed: int, error: float = math.nan) -> pd.DataFrame:
    """Runs of a grid [clip norms, rates] whose scores have these means; `std` is one number, or one a rate."""
    generator = Generator(Philox(seed))
    stds = np.broadcast_to(std, len(RATES))
    rows = [
        {
            "method": "dpsgd",
            CLIP: clip,
            LR: rate,
            "repeat": repeat,
            "accuracy": means[i, j] + stds[j] * generator.normal(),
        }
        for (i, clip), (j, rate), repeat in itertools.product(enumerate(CLIPS), enumerate(RATES), range(repeats))
    ]
    frame = pd.DataFrame(rows).assign(state=State.FINISHED)
    half = 1.959964 * error
    return frame.assign(accuracy_low=frame["accuracy"] - half, accuracy_high=frame["accuracy"] + half)


FLAT = np.full((5, 9), 0.8)


def test_errors_of_repeated_points_are_their_spread_and_those_of_single_ones_what_scoring_gives() -> None:
    repeated = point_scores(table(FLAT, 6, 0.02, seed=1, error=0.3))
    assert repeated.errors == pytest.approx(0.02 / math.sqrt(6), rel=0.2), "whatever the scoring"
    assert repeated.draws.std(axis=0).mean() == pytest.approx(0.02 / math.sqrt(6), rel=0.2)
    single = point_scores(table(FLAT, 1, 0.02, seed=1, error=0.03))
    assert single.errors == pytest.approx(0.03, rel=1e-5)
    assert not point_scores(table(FLAT, 1, 0.02, seed=1)).has_known_errors


def test_runs_far_below_the_best_do_not_widen_its_interval() -> None:
    """The runs of a third of the rates differ by .002 and score best; the others' differ by ten times as much."""
    high = np.arange(9) > 5
    covered, margins = 0, []
    for seed in range(100):
        points = point_scores(table(FLAT + 0.1 * high, 3, np.where(high, 0.002, 0.02), seed))
        assert points.degrees_of_freedom == 20
        one = weighted_mean_of_ordered_scores(points, weights_of_best).estimate("best")
        covered += one.low <= 0.9 <= one.high
        margins.append(one.high - one.low)
    assert covered >= 90
    assert np.median(margins) < 0.005


def test_equal_scores_whose_runs_differ_by_more_or_less_have_wide_intervals() -> None:
    """Every other rate's runs differ by .002, the others' by .05: nothing but a run's own spread says so."""
    stds, covered = np.where(np.arange(9) % 2, 0.05, 0.002), 0
    for seed in range(100):
        one = weighted_mean_of_ordered_scores(point_scores(table(FLAT, 3, stds, seed)), weights_of_best).estimate(
            "best"
        )
        covered += one.low <= FLAT.max() <= one.high
    assert covered >= 80


def test_points_are_pooled_with_those_of_the_nearest_means_whatever_their_numbers_of_runs() -> None:
    rows = table(FLAT + 0.1 * np.arange(9), 3, np.where(np.arange(9) < 5, 0.001, 0.02), seed=1)
    uneven = rows[(rows["repeat"] < 2) | (rows[CLIP] > 1)]
    points = point_scores(uneven[(uneven["repeat"] < 1) | (uneven[CLIP] > CLIPS[0])])
    assert sorted(set(points.runs)) == [1, 2, 3]
    low, high = (points.mask_of_points_with_settings(**{LR: rates}) for rates in (RATES[:3], RATES[-2:]))
    stds = points.errors * np.sqrt(points.runs)
    assert stds[low] == pytest.approx(0.001, rel=0.6)
    assert stds[high] == pytest.approx(0.02, rel=0.6)
    assert points.draws.std(axis=0) == pytest.approx(points.errors * points.student_inflation_factor, rel=0.2)


def test_two_repeats_of_two_points_are_too_few_for_their_spread() -> None:
    rows = table(FLAT, 2, 0.02, seed=1, error=0.3)
    few = point_scores(rows[rows[LR] == RATES[0]].iloc[:4])
    assert few.errors == pytest.approx(0.3 / math.sqrt(2), rel=1e-5)


def test_equal_tables_have_equal_draws_and_methods_independent_ones() -> None:
    rows = table(FLAT, 3, 0.02, seed=1)
    one, again, other = (point_scores(frame) for frame in (rows, rows, rows.assign(method="dpadam")))
    assert (one.draws == again.draws).all()
    assert abs(np.corrcoef((one.draws - one.means).ravel(), (other.draws - other.means).ravel())[0, 1]) < 0.05


def test_points_that_differ_by_noise_seldom_seem_to_vary() -> None:
    assert sum(point_scores(table(FLAT, 3, 0.02, seed)).has_significant_differences for seed in range(100)) <= 2
    assert point_scores(table(FLAT + np.linspace(0, 0.1, 9), 3, 0.02, seed=1)).has_significant_differences


@pytest.mark.parametrize("repeats", [1, 3])
def test_intervals_of_a_maximum_cover_it(repeats: int) -> None:
    """With one clear best point and with many equal ones, whose noisy maximum is too high."""
    for means in (FLAT, FLAT + 0.05 * (np.arange(9) == 4)):
        covered = 0
        for seed in range(100):
            points = point_scores(table(means, repeats, 0.01, seed, error=0.01 if repeats == 1 else math.nan))
            one = weighted_mean_of_ordered_scores(points, weights_of_best).estimate("best")
            covered += one.low <= means.max() <= one.high
        assert covered >= 90


@pytest.mark.parametrize("repeats", [1, 3])
def test_shares_of_variance_are_unbiased_and_covered(repeats: int) -> None:
    """Of a plane whose noise is as large as its interaction-free effects, and of its shares without noise."""
    i, j = np.arange(5)[:, None] - 2, np.arange(9)[None, :] - 4
    means = 0.8 + 0.003 * i + 0.004 * j
    truth = np.array([0.004**2 * (j**2).mean(), 0.003**2 * (i**2).mean(), 0.0])
    truth /= truth.sum()
    values, covered = [], 0
    for seed in range(100):
        grid = score_grid(table(means, repeats, 0.006, seed, error=0.006 if repeats == 1 else math.nan), CLIP)
        assert grid is not None
        shares = variance_shares(grid)
        assert shares is not None
        one = shares.total_share_of_parts("lr", 0)
        values.append(shares.values)
        covered += one.low <= truth[0] <= one.high
    assert np.mean(values, axis=0) == pytest.approx(truth, abs=0.05)
    assert covered >= 88


def test_the_peak_is_the_vertex_of_a_parabola_on_uneven_rates() -> None:
    rates = np.array([0.0, 0.7, 1.0, 2.0, 2.2])
    for vertex in (0.8, 1.2, 1.9):
        assert log_rate_at_peak_of_each_row(rates, -((rates - vertex) ** 2)[None, :]) == pytest.approx(vertex)
    assert log_rate_at_peak_of_each_row(rates, rates[None, :]) == pytest.approx(2.2), "at the end"


def test_the_mean_of_the_best_is_that_over_all_draws() -> None:
    values = np.array([0.3, 0.9, 0.5, 0.5, 0.1])
    for draws in range(1, 6):
        ways = [max(chosen) for chosen in itertools.combinations(values, draws)]
        assert np.sort(values) @ weights_of_mean_best(5, draws) == pytest.approx(np.mean(ways))
    assert [
        float(np.sort(values) @ weights(5)) for weights in (weights_of_best, weights_of_worst, weights_of_median)
    ] == [0.9, 0.1, 0.5]
    assert weights_of_median(1) == weights_of_best(1) == weights_of_worst(1) == 1


def test_verdicts_are_three_valued() -> None:
    one = IntervalEstimate(name="gap", value=1.0, low=0.5, high=1.5)
    assert (
        one.verdict_that_value_is_between(0.5, 1.5),
        one.verdict_that_value_is_between(least=1.0),
        one.verdict_that_value_is_between(most=0.4),
    ) == (HOLDS, UNDECIDED, REFUTED)
    assert unknown_estimate("gap", 1.0).verdict_that_value_is_between(least=-100.0) is UNDECIDED
    assert joint_verdict([]) is UNDECIDED
    assert [joint_verdict(pair) for pair in ((HOLDS, HOLDS), (HOLDS, UNDECIDED), (REFUTED, UNDECIDED))] == [
        HOLDS,
        UNDECIDED,
        REFUTED,
    ]


def test_variances_are_drawn_together_only_as_far_as_they_scatter_no_more_than_chance() -> None:
    variances, freedoms = point_scores(table(FLAT, 3, 0.01, seed=1)).own_variances
    assert np.median(freedoms) > 20, "a few are far above the others by chance"
    assert np.sqrt(variances).mean() == pytest.approx(0.01 / math.sqrt(3), rel=0.2)
    stds = np.where(np.arange(len(RATES)) % 2, 0.05, 0.002)
    variances, freedoms = point_scores(table(FLAT, 3, stds, seed=1)).own_variances
    noisy = np.tile(np.arange(len(RATES)) % 2 == 1, len(CLIPS))
    assert freedoms.max() < 4
    assert np.median(variances[noisy]) > 50 * np.median(variances[~noisy])
    one = table(FLAT, 3, 0.002, seed=1)
    first = (one[LR] == RATES[0]) & (one[CLIP] == CLIPS[0])
    one.loc[first, "accuracy"] = [0.7, 0.8, 0.9]
    points = point_scores(one)
    place = int(np.flatnonzero(points.mask_of_points_with_settings(**{LR: RATES[0], CLIP: CLIPS[0]}))[0])
    assert points.own_variances[0][place] == pytest.approx(0.1**2 / 3)
    assert points.own_variances[1][place] == 2, "far above the others: by its own runs alone"


def test_single_runs_have_no_variance_of_their_own() -> None:
    points = point_scores(table(FLAT, 1, 0.01, seed=1, error=0.01))
    assert not points.own_variances[0].any()
