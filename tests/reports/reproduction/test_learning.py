"""Learning curves as papers read them, and the toy distribution, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from dpsweep.reports.reproduction.figures import a_toy
from dpsweep.reports.reproduction.learning_curves import (
    ACCURACY,
    LOSS,
    biased,
    clipped,
    flat_accuracy,
    fluctuates,
    normalized,
)


def course(losses: Sequence[float], accuracies: Sequence[float] | None = None) -> pd.DataFrame:
    steps = range(10, 10 * len(losses) + 1, 10)
    return pd.DataFrame({"step": list(steps), LOSS: list(losses), ACCURACY: list(accuracies or [0.5] * len(losses))})


C, R = clipped("dpsgd"), normalized("dpnsgd")


@pytest.mark.parametrize(("last", "holds"), [(0.9, True), (0.96, False)])
def test_bias_is_a_loss_that_ends_higher_where_bounds_are_small(last: float, holds: bool) -> None:
    falls, other = {0.1: course([2.0, 1.0]), 10.0: course([2.0, 0.5])}, {0.01: course([2.0, 1.0])}
    found = biased({C: falls, R: other | {1.0: course([2.0, last])}})
    assert found.holds is holds
    assert "c = 0.1: 1.000, c = 10: 0.500" in found.numbers
    assert not biased({C: falls, R: other}).holds, "one run shows no trend"
    assert not biased({}).holds


def test_spreads_are_those_of_the_second_half() -> None:
    steep = {0.1: course([1] * 4, [0, 0, 0.2, 0.3]), 1.0: course([1] * 4, [0, 0, 0.5, 0.6])}
    flat = {0.1: course([1] * 4, [0, 0, 0.5, 0.6]), 1.0: course([1] * 4, [1, 1, 0.52, 0.6])}
    found = flat_accuracy(steep, flat)
    assert found.holds
    assert found.numbers == "mean spread over r 1.0 points, over c 30.0 points"
    assert not flat_accuracy(flat, steep).holds
    assert not flat_accuracy({}, {}).holds


def test_roughness_is_the_mean_second_difference_over_the_mean() -> None:
    smooth, rough = {1.0: course([4.0, 3.0, 2.0, 1.0])}, {0.01: course([2.0, 3.0, 2.0, 3.0])}
    found = fluctuates(smooth, rough, c=1.0, r=0.01)
    assert found.numbers == "c = 1: 0.0000; r = 0.01: 0.8000"
    assert found.holds
    assert not fluctuates(rough, smooth, c=0.01, r=1.0).holds
    assert not fluctuates({}, rough, c=1.0, r=0.01).holds


@pytest.mark.parametrize("r", [0.05, 0.5, 5.0])
def test_the_toys_descent_is_the_papers_formula(r: float) -> None:
    """Yang et al. 2022, Section A.1, with tau_0 = 1 and eta = 1; valid below tau_0 / 2."""
    x = np.linspace(0.01, 0.49, 25)
    formula = (x**3 + (3 * r + 0.5) * x**2 - x / 2) / (3 * (r + 1 + x) * (r + 0.5 - x))
    assert np.allclose(a_toy.normalized(x, r), formula, rtol=1e-12, atol=1e-15)


def test_the_toys_range_holds_from_a_regularizer_on() -> None:
    """x^2 + (3 r + 1/2) x < 1/2 at x = 1 / (10 r) is t^2 + 5 t < 20 for t = 1 / r, so t < 2.62 and r > 0.381."""
    assert not a_toy.row(0.37).holds
    assert a_toy.row(0.39).holds
    root = (-3.5 + np.sqrt(3.5**2 + 2)) / 2  # of x^2 + 3.5 x - 0.5, r = 1
    assert a_toy.row(1.0).computed == pytest.approx(root, rel=0.01)
    assert not a_toy.as_stated([a_toy.row(0.1)]).holds
    assert a_toy.as_stated([a_toy.row(1.0)]).holds
    assert a_toy.clipping().holds
