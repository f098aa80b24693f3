"""Brent's method takes the steps of scipy's, bit by bit, and refuses what has no root."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from scipy.optimize import brentq

from dpsweep.accounting.root_finding import brent

FUNCTIONS: dict[str, tuple[Callable[[float], float], float, float]] = {
    "line": (lambda x: 3 * x - 1, -2.0, 5.0),
    "root at low": (lambda x: x, 0.0, 1.0),
    "root at high": (lambda x: x - 1, 0.0, 1.0),
    "cubic": (lambda x: x**3 - 2 * x - 5, 2.0, 3.0),
    "falling": (lambda x: math.exp(-x) - 0.01, 0.0, 20.0),
    "flat": (lambda x: (x - 1) ** 3 + (x - 1) / 50, -3.0, 10.0),
    "steep": (lambda x: math.atan(1e6 * (x - 0.3)), -1.0, 1.0),
    "jump": (lambda x: 1.0 if x > 0.7 else -1.0, 0.0, 1.0),
    "in logarithms": (lambda x: math.log(1 + math.exp(-3 * x)) - 0.4, -5.0, 5.0),
}


@pytest.mark.parametrize("xtol, rtol", [(1e-5, 1e-5), (1e-14, 1e-14), (1e-3, 1e-12)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_places_are_scipys(name: str, xtol: float, rtol: float) -> None:
    function, low, high = FUNCTIONS[name]
    ours, theirs = [], []
    root = brent(lambda x: ours.append(x) or function(x), low, high, xtol=xtol, rtol=rtol)
    expected = brentq(lambda x: theirs.append(x) or function(x), low, high, xtol=xtol, rtol=rtol)
    assert root == expected
    assert ours == theirs[-len(ours) :]  # scipy may look at both ends once more before it begins


def test_equal_signs_and_too_many_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in sign"):
        brent(lambda x: x * x + 1, -1.0, 1.0, xtol=1e-5, rtol=1e-5)
    for function in (lambda x: math.nan, lambda x: x if abs(x) == 1 else math.nan):
        with pytest.raises(ValueError, match="nan"):
            brent(function, -1.0, 1.0, xtol=1e-5, rtol=1e-5)
    with pytest.raises(RuntimeError, match="100 steps"):
        brent(lambda x: (x - 1) ** 3, -3.0, 10.0, xtol=1e-14, rtol=1e-14)
