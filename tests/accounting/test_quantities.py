"""Amounts of privacy are rounded to the honest side, and a refusal shows that more was asked for than is left."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsweep.accounting.errors import BudgetRefused
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import refusal_text
from dpsweep.accounting.notation import (
    delta_text_rounded_down,
    delta_text_rounded_up,
    demand_and_remainder_texts,
    epsilon_text_rounded_down,
    epsilon_text_rounded_up,
    exponential_text_rounded_up,
    noise_text_rounded_down,
    noise_text_rounded_up,
    sampling_rate_text_rounded_up,
    text_with_all_digits,
)
from tests.charges import charge_cost

Write = Callable[[float], str]
UP = (epsilon_text_rounded_up, delta_text_rounded_up, noise_text_rounded_up, sampling_rate_text_rounded_up)
DOWN = (epsilon_text_rounded_down, delta_text_rounded_down, noise_text_rounded_down)

amounts = st.floats(min_value=0, max_value=1e300, allow_nan=False) | st.floats(min_value=1e-6, max_value=100)
near = st.tuples(st.floats(min_value=1e-9, max_value=1e4), st.floats(min_value=-1e-6, max_value=1e-6)).map(
    lambda pair: (pair[0], pair[0] * (1 + pair[1]))
)


def exact(value: float) -> Decimal:
    return Decimal(repr(value))


@given(value=amounts)
def test_bounds_never_fall_and_rests_never_rise(value: float) -> None:
    for write in UP:
        assert Decimal(write(value)) >= exact(value)
    for write in DOWN:
        assert Decimal(write(value)) <= exact(value)


@given(one=amounts, other=amounts)
def test_what_is_more_is_never_written_as_less(one: float, other: float) -> None:
    less, more = sorted((one, other))
    for write in (*UP, *DOWN, text_with_all_digits):
        assert Decimal(write(less)) <= Decimal(write(more))


@given(value=amounts)
def test_three_digits_are_enough(value: float) -> None:
    for write in (epsilon_text_rounded_up, epsilon_text_rounded_down, delta_text_rounded_up, delta_text_rounded_down):
        assert abs(Decimal(write(value)) - exact(value)) <= exact(value) / 100


@given(value=amounts)
def test_what_was_typed_is_written_digit_by_digit(value: float) -> None:
    assert float(text_with_all_digits(value)) == value


@given(pair=near | st.tuples(amounts, amounts), name=st.sampled_from(["epsilon", "delta"]))
def test_a_refusal_shows_that_more_was_asked_for_and_not_much_more_than_was(
    pair: tuple[float, float], name: str
) -> None:
    asked, left = pair
    up, down = map(Decimal, demand_and_remainder_texts(asked, left, name))
    assert up >= exact(asked)
    assert down <= exact(left)
    assert (up > down) == (asked > left)
    assert up - down <= max(2 * (exact(asked) - exact(left)), Decimal(0))


@given(exponent=st.floats(min_value=0, max_value=1e6))
def test_a_factor_is_never_written_smaller_than_it_is(exponent: float) -> None:
    written = Decimal(exponential_text_rounded_up(exponent).replace(",", ""))
    assert written.ln() >= exact(exponent) - Decimal("1e-20")
    assert written.ln() <= exact(exponent) + Decimal("0.01")


@pytest.mark.parametrize("write", [*UP, *DOWN, text_with_all_digits, exponential_text_rounded_up])
def test_infinity_is_written_as_such(write: Write) -> None:
    assert write(math.inf) == "∞"


def test_an_infinite_price_is_more_than_any_rest() -> None:
    assert demand_and_remainder_texts(math.inf, 2.0) == ("∞", "2.000")


def test_a_charge_that_misses_by_little_is_not_refused_with_twice_the_same_number(ledger: Ledger) -> None:
    """Once: "This asks for epsilon=2 at delta=1e-05; on digits epsilon 2 of 2 and ... are left"."""
    ledger.open_account("digits", Guarantee(epsilon=2.0, delta=1e-4))
    cost = Guarantee(epsilon=2.0000004, delta=1e-5)
    with pytest.raises(BudgetRefused) as refusal:
        charge_cost(ledger, "digits", plan="p", trials=["t"], cost=cost)
    assert refusal_text("digits", **refusal.value.facts) == (
        "This costs epsilon 2.0000004 at delta 1e-5; on digits epsilon 2.0000000 of 2 and delta 0.0001 of 0.0001 "
        "are left."
    )
