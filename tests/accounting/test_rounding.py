"""What remains beside exact noise."""

from __future__ import annotations

from dpsweep.accounting.rounded_noise_price import LOG_RATIO, epsilon_and_delta_added_by_rounding


def test_what_remains_grows_with_the_numbers_and_is_small() -> None:
    """By hand for few numbers: each neighbour's law is changed by numbers * LOG_RATIO."""
    assert epsilon_and_delta_added_by_rounding(1, 1.0, 0.0) == (2 * LOG_RATIO, 0.0)
    assert epsilon_and_delta_added_by_rounding(1, 1.0, 1e-5)[0] == 2 * LOG_RATIO
    found = [epsilon_and_delta_added_by_rounding(10.0**power, 1.0, 1e-5) for power in range(14)]
    assert found == sorted(found)
    assert found[9][0] < 0.0006, "1.4e9 coordinates and steps"
    assert epsilon_and_delta_added_by_rounding(270_000 * 5000 * 35, 8.0, 1e-5) < (1e-4, 1e-9)
    assert epsilon_and_delta_added_by_rounding(1e9, 1000.0, 1e-20)[0] < 1e-4
    assert epsilon_and_delta_added_by_rounding(0, 3.0, 1e-5) == (0, 0)
    assert epsilon_and_delta_added_by_rounding(1e21, 1.0, 1e-5) == (2e21 * LOG_RATIO, 1.0), (
        "too many to say anything of"
    )
