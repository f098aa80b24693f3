"""Large deltas are refused unless the number is typed twice; what large numbers mean is computed from themselves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsweep.accounting.cautions import (
    caution_sentences,
    delta_acceptance_sentence,
    is_large_delta,
    is_noticeable_delta,
    large_epsilon_harm_sentences,
    noticeable_delta_sentence,
    require_small_or_accepted_delta,
)
from dpsweep.accounting.errors import BadInput


@pytest.mark.parametrize(("delta", "large"), [(0.05, True), (0.001, True), (0.000999, False), (1e-5, False)])
def test_a_delta_of_one_over_the_units_is_large(delta: float, large: bool) -> None:
    assert is_large_delta(delta, 1000) is large
    if not large:
        require_small_or_accepted_delta(delta, 1000, "record", None)
        return
    with pytest.raises(BadInput, match=r"^Expected privacy\.delta=0\.\d+ to be below 1 / 1000") as refusal:
        require_small_or_accepted_delta(delta, 1000, "patient", None)
    assert f"privacy.accept_delta={delta}" in str(refusal.value)
    assert "declared number of patients" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@given(units=st.integers(min_value=1, max_value=10**9))
def test_the_border_itself_is_refused_also_where_floats_round(units: int) -> None:
    assert is_large_delta(math.nextafter(1 / units, 1), units)
    assert is_noticeable_delta(1 / units, units)
    assert not is_noticeable_delta(0.0999 / units, units)


@pytest.mark.parametrize("accepted", [True, 0.04, 1, "yes", "0.05", math.nan])
def test_only_the_number_itself_accepts(accepted: object) -> None:
    with pytest.raises(BadInput, match=r"to be privacy\.delta once more, privacy\.accept_delta=0\.05, or null"):
        require_small_or_accepted_delta(0.05, 1000, "record", accepted)


def test_the_number_typed_again_is_accepted_and_not_needed_where_delta_is_small() -> None:
    require_small_or_accepted_delta(0.05, 1000, "record", 0.05)
    require_small_or_accepted_delta(1e-5, 1000, "record", 0.05)


def test_what_a_delta_allows_is_counted_out() -> None:
    assert "in full with probability 0.05, on average 50 records, has this delta too" in noticeable_delta_sentence(
        0.05, 1000, "record"
    )
    assert noticeable_delta_sentence(0.0005, 1000, "record").startswith(
        "Delta 0.0005 is not small for the declared 1000 records"
    )
    assert noticeable_delta_sentence(0.0001, 1000, "record") == ""


@pytest.mark.parametrize(("epsilon", "factor"), [(10.5, "36,400"), (12.0, "163,000"), (160.0, "3.07e69")])
def test_the_factor_is_computed_from_the_epsilon_at_hand(epsilon: float, factor: str) -> None:
    said = large_epsilon_harm_sentences(epsilon, "patient")
    assert said.count(factor) == 2
    assert "one patient took part" in said
    assert large_epsilon_harm_sentences(10.0, "patient") == large_epsilon_harm_sentences(math.inf, "patient") == ""


def test_who_accepted_is_said_or_that_nobody_did() -> None:
    assert delta_acceptance_sentence(0.05, 1000, 0.05).endswith("by typing privacy.accept_delta=0.05.")
    assert delta_acceptance_sentence(0.05, 1000, None).startswith("Nobody accepted")
    assert delta_acceptance_sentence(0.0005, 1000, None) == ""


def test_a_claim_of_usual_size_needs_no_words() -> None:
    assert caution_sentences(8.0, 1e-5, 5000, "record", None) == ()
    assert len(caution_sentences(11.0, 0.05, 5000, "record", 0.05)) == 2
