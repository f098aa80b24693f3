"""The slope of the best learning rate, and the range at it: against definitions, by hand, and on made-up tables."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import theilslopes

from dpsweep.reports.statistics.point_scores import CLIP, LR
from dpsweep.reports.statistics.score_grid import (
    FEWEST_ROWS,
    Slope,
    median_of_pairwise_slopes,
    range_at_best_rate,
    score_grid,
    slope_of_best_rate,
)

SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "generators" / "verdict_rates.py"))
TABLES = {(one.kind, one.slope): one for one in SCRIPT["slope_tables"]()}
WITH_SLOPE = [key for key in TABLES if not math.isnan(key[1])]
REGIMES = next(key for key in TABLES if math.isnan(key[1]))
NAMES = [f"{kind}, {slope:g}" for kind, slope in WITH_SLOPE]
CONSTANT = SCRIPT["BEST_CONSTANT"]
RATES, CLIPS = tuple(np.geomspace(1e-3, 1e3, 13)), tuple(np.geomspace(0.01, 100, 12))

Score = Callable[[float, float], float]


def on_diagonal(lr: float, clip: float) -> float:
    """Best where lr x clip norm is 1; both are logarithms to base 10."""
    return 0.9 - 0.05 * (lr + clip) ** 2


def scored(score: Score, clips: tuple[float, ...] = CLIPS) -> pd.DataFrame:
    """Three runs of each point, whose scores differ by .002, 0 and -.002 from the true one."""
    return pd.DataFrame(
        [
            {
                **{"method": "dpsgd", "noise_multiplier": 2.0, "state": "finished", "repeat": repeat},
                **{CLIP: clip, LR: rate, "accuracy": score(math.log10(rate), math.log10(clip)) + 0.002 * (repeat - 1)},
                **{"accuracy_low": math.nan, "accuracy_high": math.nan},
            }
            for clip in clips
            for rate in RATES
            for repeat in range(3)
        ]
    )


def slope_of(score: Score, constant: float | None = CONSTANT, clips: tuple[float, ...] = CLIPS) -> Slope:
    return slope_of_best_rate(score_grid(scored(score, clips), CLIP), constant)


def test_the_median_of_pairwise_slopes_is_that_of_theil_and_sen() -> None:
    rng = np.random.default_rng(1)
    for size in (2, 5, 8, 21):
        x, y = rng.integers(0, 6, (2, size)) + np.array([[0.0], [rng.normal()]])
        x[0] = 7.0
        pair = x[:, None] - x[None, :]
        expected = theilslopes(y, x).slope if (pair != 0).any() else math.nan
        assert median_of_pairwise_slopes(x, y) == pytest.approx(expected)
    assert np.isnan(median_of_pairwise_slopes(np.ones((2, 4)), np.arange(8.0).reshape(2, 4))).all()


def test_a_diagonal_has_its_slope_and_says_of_how_many_clip_norms() -> None:
    one = slope_of(on_diagonal)
    assert one.estimate.value == pytest.approx(-1, abs=0.02)
    assert one.estimate.low < -1 < one.estimate.high
    assert (one.rows, one.reason, one.basis_text) == (12, "", "from 12 usable clip norms")


def test_a_row_below_the_best_constant_predictor_does_not_count() -> None:
    """As on ENRON: runs of the smallest clip norm learned nothing, and their best lr is a false one."""

    def false_at_first(lr: float, clip: float) -> float:
        return on_diagonal(lr, clip) if clip > -1.9 else 0.35 - 0.03 * (lr + 2) ** 2

    assert [slope_of(false_at_first, constant).rows for constant in (CONSTANT, 0.0)] == [11, 12]


@pytest.mark.parametrize("usable", [FEWEST_ROWS - 1, FEWEST_ROWS])
def test_fewer_than_eight_usable_rows_have_no_slope(usable: int) -> None:
    """The other rows rise to the end of the grid."""
    limit = math.log10(CLIPS[-usable]) - 0.01
    one = slope_of(lambda lr, clip: on_diagonal(lr, clip) if clip > limit else 0.7 + 0.05 * lr)
    assert one.rows == usable
    assert one.estimate.has_interval is (usable == FEWEST_ROWS)
    if usable < FEWEST_ROWS:
        assert one.reason == "7 of 12 clip norms are usable, 8 are needed"


def test_a_plateau_of_half_the_row_and_an_unknown_constant_have_no_slope() -> None:
    assert slope_of(lambda lr, clip: min(on_diagonal(lr, clip), 0.5)).rows == 0
    unknown = slope_of(on_diagonal, constant=None)
    assert unknown.reason == "what the best constant predictor scores is not known"
    assert not unknown.estimate.has_interval
    assert slope_of(lambda lr, clip: 0.8).reason == "no grid whose points differ by more than noise"


def test_two_regimes_have_no_single_slope() -> None:
    one = slope_of(lambda lr, clip: 0.9 - 0.05 * (lr + (clip if clip < 0 else 0.2 * clip)) ** 2)
    assert not one.estimate.has_interval
    assert one.reason.startswith("-1.0")
    assert one.reason.endswith(" above")


def test_a_row_that_decides_alone_leaves_no_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the interval is as narrow as a point, no row may be left out."""
    globals_of_module = slope_of_best_rate.__globals__
    narrow = globals_of_module["interval_estimate_from_draws"]

    def point(name: str, value: float, draws: np.ndarray, level: float = 0.95) -> Any:
        return narrow(name, value, np.full(10, value) if name else draws, level)

    monkeypatch.setitem(globals_of_module, "interval_estimate_from_draws", point)
    one = slope_of(lambda lr, clip: 0.9 - 0.05 * (lr + clip + 0.1 * math.sin(9 * clip)) ** 2)
    assert " without clip norm " in one.reason
    assert not one.estimate.has_interval


def test_equal_tables_have_equal_slopes() -> None:
    assert slope_of(on_diagonal) == slope_of(on_diagonal)


def test_the_range_is_that_at_the_best_rate() -> None:
    grid = score_grid(scored(lambda lr, clip: 0.8 - 0.1 * lr**2 - 0.02 * abs(clip)), CLIP)
    assert grid is not None
    one = range_at_best_rate(grid)
    ends = 0.02 * math.log10(CLIPS[-1]) - 0.02 * math.log10(CLIPS[len(CLIPS) // 2])
    assert one.name == "1"
    assert one.value == pytest.approx(ends, abs=0.003)
    assert one.low < ends < one.high
    alike = score_grid(scored(lambda lr, clip: 0.8 - 0.1 * lr**2), CLIP)
    assert alike is not None
    assert range_at_best_rate(alike).low == 0


@pytest.mark.parametrize("key", [key for key in WITH_SLOPE if key[1] == -1], ids=[key[0] for key in WITH_SLOPE[:5]])
def test_intervals_of_some_made_up_tables_cover_their_slope(key: tuple[str, float]) -> None:
    told, covered, _ = TABLES[key].told_and_covered(6)
    assert covered >= told - 1
    assert told >= (1 if key[0] == "optima beyond the grid" else 5)


def test_some_tables_of_three_regimes_are_told_no_slope() -> None:
    assert TABLES[REGIMES].told_and_covered(6)[0] == 0


@pytest.mark.long
@pytest.mark.parametrize("key", WITH_SLOPE, ids=NAMES)
def test_intervals_of_made_up_tables_cover_their_slope(key: tuple[str, float]) -> None:
    told, covered, _ = TABLES[key].told_and_covered(300)
    assert covered >= 0.93 * told
    assert told >= 60


@pytest.mark.long
def test_tables_of_three_regimes_are_told_no_slope() -> None:
    assert TABLES[REGIMES].told_and_covered(300)[0] <= 6
