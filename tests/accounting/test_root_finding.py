"""The first whole number within a target is the least one, for prices of any shape that fall."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from dpsweep.accounting.profiles.privacy_profiles import first_within

PRICES: dict[str, Callable[[int], float]] = {
    "reciprocal": lambda number: 1000 / number,
    "steep": lambda number: math.exp(8 - number / 100),
    "jump": lambda number: 3.0 if number < 777 else 0.3,
    "steps": lambda number: 1000 / (100 * (number // 100) + 1),
    "without a price at first": lambda number: math.inf if number < 640 else 1000 / number,
    "then free": lambda number: 2.0 if number < 777 else 0.0,
    "never": lambda number: 1.5,
    "always": lambda number: 0.5,
}


@pytest.mark.parametrize("name", PRICES)
@pytest.mark.parametrize(("start", "stride"), [(1, 1), (700, 700), (5000, 1), (10**6, 10**6)])
def test_the_first_number_within_a_target_is_found(name: str, start: int, stride: int) -> None:
    asked: set[int] = set()

    def price(number: int) -> float:
        asked.add(number)
        return PRICES[name](number)

    expected = next((number for number in range(1, 5001) if PRICES[name](number) <= 1), None)
    assert first_within(price, 1.0, 0, 5000, start, stride) == expected
    assert all(1 <= number <= 5000 for number in asked)
    assert len(asked) <= 40
