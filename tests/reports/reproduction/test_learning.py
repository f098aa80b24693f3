"""Learning curves as papers read them, and the toy distribution, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from dpsweep.reports.reproduction.figures import yang_toy
from dpsweep.reports.reproduction.learning_curves import (
    ACCURACY,
    LOSS,
    evidence_that_accuracy_is_flat_in_r,
    evidence_that_bounding_raises_loss,
    evidence_that_small_r_fluctuates,
    family_of_clipping_method,
    family_of_normalizing_method,
)
from dpsweep.reports.statistics.verdict import Verdict


def course(losses: Sequence[float], accuracies: Sequence[float] | None = None) -> pd.DataFrame:
    steps = range(10, 10 * len(losses) + 1, 10)
    return pd.DataFrame({"step": list(steps), LOSS: list(losses), ACCURACY: list(accuracies or [0.5] * len(losses))})


HOLDS, MISSED, REFUTED, UNDECIDED = Verdict
C, R = family_of_clipping_method("dpsgd"), family_of_normalizing_method("dpnsgd")


def repeated(*repeats: dict[float, pd.DataFrame]) -> dict[int, dict[float, pd.DataFrame]]:
    return dict(enumerate(repeats, start=1))


@pytest.mark.parametrize(("last", "verdict"), [(0.9, HOLDS), (0.96, MISSED), (1.1, REFUTED)])
def test_bias_is_a_loss_that_ends_higher_where_bounds_are_small(last: float, verdict: Verdict) -> None:
    def family(end: float, jitter: float) -> dict[float, pd.DataFrame]:
        return {0.1: course([2.0, 1.0 + jitter]), 10.0: course([2.0, end])}

    falls = repeated(*(family(0.5, jitter) for jitter in (0.0, 0.001, 0.002)))
    other = repeated(*(family(last, jitter) for jitter in (0.0, 0.001, 0.002)))
    found = evidence_that_bounding_raises_loss({C: falls, R: other})
    assert found.verdict is verdict
    assert found.parts[0].text == "DP-SGD: 50.0% [49.9, 50.2]"
    assert evidence_that_bounding_raises_loss({C: repeated(falls[1]), R: repeated(other[1])}).verdict is UNDECIDED, (
        "one repetition"
    )
    single = repeated(*[{0.1: course([2.0, 1.0])}] * 3)
    assert evidence_that_bounding_raises_loss({C: falls, R: single}).verdict is UNDECIDED, "one value shows no trend"
    assert evidence_that_bounding_raises_loss({}).verdict is UNDECIDED


def test_spreads_are_those_of_the_second_half() -> None:
    def steep(jitter: float) -> dict[float, pd.DataFrame]:
        return {0.1: course([1] * 4, [0, 0, 0.2, 0.3]), 1.0: course([1] * 4, [0, 0, 0.5 + jitter, 0.6])}

    flat = {0.1: course([1] * 4, [0, 0, 0.5, 0.6]), 1.0: course([1] * 4, [1, 1, 0.52, 0.6])}
    clip, normal = repeated(steep(0.0), steep(0.002)), repeated(flat, flat)
    found = evidence_that_accuracy_is_flat_in_r(clip, normal)
    assert found.verdict is HOLDS
    assert found.parts[0].text == "mean spread over r 1.0 points [1.0, 1.0]"
    assert found.parts[1].text.startswith("over c wider by 29.")
    assert evidence_that_accuracy_is_flat_in_r(normal, clip).verdict is REFUTED
    assert evidence_that_accuracy_is_flat_in_r(repeated(steep(0.0)), repeated(flat)).verdict is UNDECIDED
    assert evidence_that_accuracy_is_flat_in_r({}, {}).verdict is UNDECIDED


def test_roughness_is_the_mean_second_difference_over_the_mean() -> None:
    def zigzag(high: float) -> pd.DataFrame:
        return course([2.0, high, 2.0, high])

    calm = repeated(*({1.0: zigzag(2.1 + jitter)} for jitter in (0.0, 0.001)))
    rough = repeated(*({0.01: zigzag(3.0 + jitter)} for jitter in (0.0, 0.001)))
    found = evidence_that_small_r_fluctuates(calm, rough, c=1.0, r=0.01)
    assert found.verdict is HOLDS
    ratio = np.log((2.0 / 2.5) / (0.2 / 2.05))
    assert np.log1p(found.parts[0].estimate.value) == pytest.approx(ratio, rel=0.01)
    assert evidence_that_small_r_fluctuates(rough, calm, c=0.01, r=1.0).verdict is REFUTED
    assert evidence_that_small_r_fluctuates({}, rough, c=1.0, r=0.01).verdict is UNDECIDED


@pytest.mark.parametrize("r", [0.05, 0.5, 5.0])
def test_the_toys_descent_is_the_papers_formula(r: float) -> None:
    """Yang et al. 2022, Section A.1, with tau_0 = 1 and eta = 1; valid below tau_0 / 2."""
    x = np.linspace(0.01, 0.49, 25)
    formula = (x**3 + (3 * r + 0.5) * x**2 - x / 2) / (3 * (r + 1 + x) * (r + 0.5 - x))
    assert np.allclose(yang_toy.descent_of_normalization(x, r), formula, rtol=1e-12, atol=1e-15)


def test_the_toys_range_holds_from_a_regularizer_on() -> None:
    """x^2 + (3 r + 1/2) x < 1/2 at x = 1 / (10 r) is t^2 + 5 t < 20 for t = 1 / r, so t < 2.62 and r > 0.381."""
    assert not yang_toy.row_of_regularizer(0.37).is_descent_negative_up_to_bound
    assert yang_toy.row_of_regularizer(0.39).is_descent_negative_up_to_bound
    root = (-3.5 + np.sqrt(3.5**2 + 2)) / 2  # of x^2 + 3.5 x - 0.5, r = 1
    assert yang_toy.row_of_regularizer(1.0).computed == pytest.approx(root, rel=0.01)
    assert yang_toy.finding_on_normalization_descent_range([yang_toy.row_of_regularizer(0.1)]).verdict_text == "refuted"
    assert yang_toy.finding_on_normalization_descent_range([yang_toy.row_of_regularizer(1.0)]).verdict_text == "holds"
    both = yang_toy.finding_on_normalization_descent_range(
        [yang_toy.row_of_regularizer(0.1), yang_toy.row_of_regularizer(1.0)]
    )
    assert both.verdict_text == "holds only for r > 0.382 tau_0"
    assert 1 / yang_toy.regularizer_above_which_range_holds() == pytest.approx((-5 + np.sqrt(105)) / 2, rel=1e-9)
    assert yang_toy.finding_on_descent_in_unclipped_range().holds
