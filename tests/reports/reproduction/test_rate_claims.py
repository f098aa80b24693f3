"""Claims on noise, batches, momentum and norms of gradients on made-up tables: the effect, its opposite, too little."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.reproduction.claims import (
    BEST_CONSTANT,
    evidence_that_momentum_helps_little,
    evidence_that_no_candidate_is_catastrophic,
)
from dpsweep.reports.reproduction.learning_curves import (
    CURVE,
    NORMS,
    evidence_that_gradient_norms_fall,
    runs_with_norms,
)
from dpsweep.reports.reproduction.rate_claims import (
    BATCH,
    INVERSE_TO_NOISE,
    NOISE_OF_MEAN,
    evidence_on_rate_by_noise,
    evidence_that_batch_size_matters_little,
    rows_with_noise_of_mean,
)
from dpsweep.reports.reproduction.registry import findings_on_results
from dpsweep.reports.reproduction.results import read_results
from dpsweep.reports.statistics.point_scores import CLIP, LR, NOISE, REGULARIZER
from dpsweep.reports.statistics.verdict import Verdict

ROOT = Path(__file__).parents[3]
STORED, CONF = ROOT / "docs" / "full_size", ROOT / "conf" / "experiment"
HOLDS, MISSED, REFUTED, UNDECIDED = Verdict
NOISES, RATES = tuple(np.geomspace(0.5, 16, 10)), tuple(np.geomspace(1e-3, 1e3, 13))
ERROR = 0.001


def scored(rows: list[dict[str, object]]) -> pd.DataFrame:
    table = pd.DataFrame(rows)
    half = 1.96 * ERROR
    scores = table["accuracy"].astype(float)
    return table.assign(accuracy_low=scores - half, accuracy_high=scores + half, state=State.FINISHED)


def rates_by_noise(exponent: float, key: str = CLIP, method: str = "dpsgd") -> pd.DataFrame:
    """Scores with the best learning rate at noise ** exponent."""
    return scored(
        [
            {
                "method": method,
                LR: rate,
                key: 1.0,
                NOISE: noise,
                "accuracy": 0.85 - 0.1 * math.log10(rate / noise**exponent) ** 2,
            }
            for rate, noise in product(RATES, NOISES)
        ]
    ).assign(**{BEST_CONSTANT: 0.1})


@pytest.mark.parametrize(("exponent", "verdict"), [(-1.0, HOLDS), (-0.3, MISSED), (0.4, REFUTED)])
@pytest.mark.parametrize(("key", "letter", "method"), [(CLIP, "c", "dpsgd"), (REGULARIZER, "r", "dpnsgd")])
def test_the_best_rate_falls_with_the_noise(
    exponent: float, verdict: Verdict, key: str, letter: str, method: str
) -> None:
    table = rates_by_noise(exponent, key, method)
    found = evidence_on_rate_by_noise(table, method, key, INVERSE_TO_NOISE)
    assert found.verdict is verdict
    assert found.parts[0].estimate.value == pytest.approx(exponent, abs=0.05)
    assert found.remark == f"{letter} = 1: from 10 usable noise multipliers"


def test_few_noise_multipliers_give_no_slope() -> None:
    table = rates_by_noise(-1.0)
    found = evidence_on_rate_by_noise(table[table[NOISE] < 3], "dpsgd", CLIP, INVERSE_TO_NOISE)
    assert found.verdict is UNDECIDED
    assert "noise multipliers are usable, 8 are needed" in found.remark
    topics = {one.topic for one in findings_on_results(read_results(STORED / "a_fig4_sst2.json.xz"))}
    assert not any("1 / noise" in topic for topic in topics), "three noise multipliers cannot decide it"


@pytest.mark.parametrize(("gain", "verdict"), [(0.0, HOLDS), (0.06, REFUTED), (0.03, UNDECIDED)])
def test_batches_are_compared_where_the_noise_of_their_mean_is_the_same(gain: float, verdict: Verdict) -> None:
    table = scored(
        [
            {
                "method": "dpnsgd",
                LR: rate,
                BATCH: size,
                NOISE_OF_MEAN: noise,
                "accuracy": level + gain * (size == 256) - 0.1 * (rate != 1.0),
            }
            for (noise, level), size, rate in product([("0.01", 0.8), ("0.1", 0.6)], (64, 256), (0.1, 1.0, 10.0))
            if (noise, size) != ("0.1", 64)
        ]
    )
    found = evidence_that_batch_size_matters_little(table, "dpnsgd")
    assert found.verdict is verdict
    assert [part.estimate.name for part in found.parts] == ["noise of the mean 0.01: 256 - 64 records"]


def test_the_noise_of_a_mean_is_the_multiplier_over_the_size() -> None:
    """The sizes and multipliers are those of the experiment."""
    axes = yaml.safe_load((CONF / "a_batches.yaml").read_text())["grid"]["axes"]["dpnsgd"]
    points = product(axes[BATCH], axes[f"privacy.{NOISE}"])
    results = read_results(STORED / "b_fig10.json.xz")
    table = pd.DataFrame([{BATCH: size, NOISE: noise, f"privacy.{NOISE}": noise} for size, noise in points])
    rows = rows_with_noise_of_mean(replace(results, table=table))
    shared = rows.groupby(NOISE_OF_MEAN)[BATCH].unique().map(sorted).to_dict()
    assert shared["0.007812"] == [64, 256, 1024]
    assert sorted(map(len, shared.values())) == [1, 1, 2, 2, 3]
    assert list(rows) == [BATCH, NOISE_OF_MEAN]
    assert rows_with_noise_of_mean(results).empty


@pytest.mark.parametrize(("gain", "verdict"), [(-0.02, HOLDS), (0.005, HOLDS), (0.03, REFUTED)])
def test_momentum_helps_at_most_by_the_margin(gain: float, verdict: Verdict) -> None:
    table = scored(
        [
            {"method": method, LR: rate, NOISE: 2.0, "accuracy": 0.8 + gain * (method == "dpmomentum") - 0.1 * worse}
            for method in ("dpsgd", "dpmomentum")
            for rate, worse in ((0.1, 1), (1.0, 0))
        ]
    )
    assert evidence_that_momentum_helps_little(table).verdict is verdict


@pytest.mark.parametrize(("worst", "verdict"), [(0.7, HOLDS), (0.505, MISSED), (0.45, REFUTED)])
def test_a_catastrophic_candidate_is_no_better_than_a_constant(worst: float, verdict: Verdict) -> None:
    points = [("dpadam", 0.1, 0.8), ("dpadam", 1.0, worst), ("dpsgd", 0.1, 0.5), ("dpsgd", 1.0, 0.9)]
    table = scored([{"method": name, CLIP: clip, NOISE: 2.0, "accuracy": score} for name, clip, score in points])
    found = evidence_that_no_candidate_is_catastrophic(table.assign(**{BEST_CONSTANT: 0.5}))
    assert found.verdict is verdict
    assert "1 of 2 candidates of DP-SGD" in found.remark
    unknown = evidence_that_no_candidate_is_catastrophic(table.assign(**{BEST_CONSTANT: math.nan}))
    assert unknown.verdict is UNDECIDED


@pytest.mark.parametrize(
    ("fall", "verdict"), [(lambda step: 0.9**step, HOLDS), (lambda step: 1 - 0.02 * step, MISSED), (math.exp, REFUTED)]
)
def test_norms_fall_by_a_half(fall: Callable[[int], float], verdict: Verdict) -> None:
    curves = [
        tuple({"step": step, **dict.fromkeys(NORMS, (1 + 0.001 * repeat) * fall(step))} for step in range(12))
        for repeat in range(3)
    ]
    runs = pd.DataFrame({"method": "dpsgd", CURVE: pd.Series(curves)})
    for column in NORMS:
        assert evidence_that_gradient_norms_fall(runs, column).verdict is verdict


def test_curves_without_norms_are_left_out() -> None:
    assert len(runs_with_norms(read_results(STORED / "a_fig2_mnist.json.xz"))) == 0
    assert len(runs_with_norms(read_results(STORED / "d_fig1_convex.json.xz"))) == 10
