"""How scores are said: in percent, or as errors in the unit of the target, of which a smaller one is better."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsweep.reports.content.panels import Cell, Mark
from dpsweep.reports.content.score_scale import PERCENT, ScoreScale, score_scale_of_config
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.content.tables import item_from_map_cell


def config(kind: str, target: Any = (25, 350), unit: str = "mmHg", **settings: Any) -> dict[str, Any]:
    return {"loss": {"kind": kind, **settings}, "dataset": {"target": target, "target_unit": unit, "classes": 1}}


SQUARED = score_scale_of_config(config("squared_error"))
ABSOLUTE = score_scale_of_config(config("absolute_error", cap=0.5))
HUBER = score_scale_of_config(config("huber", target=None, unit=""))
SCALES = (PERCENT, SQUARED, ABSOLUTE, HUBER)
SCORES = st.floats(0, 1)


def test_errors_have_the_unit_of_the_target() -> None:
    assert SQUARED.number(0.96) == pytest.approx(325 * 0.2)
    assert ABSOLUTE.number(0.6) == pytest.approx(325 * 0.5 * 0.4)
    assert HUBER.number(0.75) == pytest.approx(0.25)
    assert [scale.name for scale in SCALES] == [
        "",
        "root mean squared error",
        "mean absolute error",
        "mean absolute error",
    ]
    assert [scale.heading("x") for scale in SCALES] == ["x, %", "x, mmHg", "x, mmHg", "x"]
    assert [scale.in_words for scale in SCALES] == ["in percent", "in mmHg", "in mmHg", "in the target's unit"]
    assert [scale.with_unit("3") for scale in SCALES] == ["3 %", "3 mmHg", "3 mmHg", "3"]
    assert ABSOLUTE.quality_text == "1 - absolute error / 0.5"


def test_numbers_have_about_three_digits() -> None:
    assert SQUARED.text(0.96) == "65.0"
    assert ABSOLUTE.interval_text(0.6, 0.9) == "16.2 to 65.0"
    assert HUBER.text(0.7511) == "0.249"
    house = score_scale_of_config(config("absolute_error", target=(0, 500_000), unit="EUR"))
    assert house.with_unit(house.interval_text(0.91, 0.93)) == "35000 to 45000 EUR"
    tiny = score_scale_of_config(config("absolute_error", target=(0, 2e-4), unit="m"))
    assert tiny.with_unit(tiny.text(0.9)) == "20.0 \N{MULTIPLICATION SIGN}1e-6 m"
    assert tiny.number(0.9) == pytest.approx(2e-5)
    planets = score_scale_of_config(config("absolute_error", target=(0, 3e9), unit=""))
    assert planets.heading("error") == "error, \N{MULTIPLICATION SIGN}1e9"
    assert planets.interval_text(0.9, 0.95) == "0.150 to 0.300"


@pytest.mark.parametrize("scale", SCALES, ids=["percent", "squared", "absolute", "huber"])
@given(first=SCORES, second=SCORES)
def test_an_interval_is_said_outwards_and_a_better_score_is_a_better_number(
    scale: ScoreScale, first: float, second: float
) -> None:
    low, high = sorted((first, second))
    least, most = map(float, scale.interval_text(low, high).split(" to "))
    numbers = sorted((scale.drawn(low), scale.drawn(high)))
    assert least <= numbers[0] + 1e-6
    assert numbers[1] <= most + 1e-6
    ends = scale.ends(low, high)
    assert ends == tuple(sorted(map(scale.number, (low, high))))
    assert scale.half_width_text(low, high).startswith("±")
    assert "-" not in scale.half_width_text(low, high)
    assert scale.gap(low, high - low) == pytest.approx(abs(scale.number(high) - scale.number(low)), abs=1e-5 * 325)


def test_a_score_far_from_the_middle_of_its_interval_has_no_single_number_for_its_error() -> None:
    """A balanced accuracy of 51 % in 49.5 to 100 % is not 51 % within 25.3 points."""
    percent = SCALES[0]
    assert percent.spread_text(0.9, 0.88, 0.92) == percent.half_width_text(0.88, 0.92) == "±2.0"
    assert percent.spread_text(0.51, 0.495, 1.0) == "49.5\N{EN DASH}100.0"
    assert percent.spread_text(0.5, 0.5, 0.5) == "±0.0"
    assert ABSOLUTE.spread_text(0.75, 0.6, 0.9).startswith("±")
    assert ABSOLUTE.spread_text(0.89, 0.6, 0.9) == ABSOLUTE.interval_text(0.6, 0.9).replace(" to ", "\N{EN DASH}")


def test_an_error_that_noise_drove_below_zero_is_no_perfect_score() -> None:
    noisy = score_scale_of_config(config("squared_error") | {"score": {"kind": "private_holdout", "noise_std": 3.0}})
    assert noisy.text(1.0) == "< noise"
    assert noisy.with_unit(noisy.text(1.0)) == "an error below the noise"
    assert SQUARED.with_unit(SQUARED.text(1.0)) == "0.0 mmHg"


def test_an_open_interval_stays_open() -> None:
    assert SQUARED.ends(None, None) == (None, None)
    assert PERCENT.ends(None, 0.5) == (None, 0.5)


@pytest.mark.parametrize(
    "unlike",
    [
        {},
        {"loss": {"kind": "cross_entropy"}},
        {"loss": {"_target_": "mine.Loss", "cap": 1.0}},
        {"loss": {"kind": "squared_error", "cap": -1.0}},
        {"loss": {"kind": "squared_error"}, "score": {"metric": "f1"}},
    ],
)
def test_other_scores_are_shares(unlike: dict[str, Any]) -> None:
    assert score_scale_of_config(unlike) is PERCENT


def test_a_cell_of_a_map_says_the_error() -> None:
    cell = Cell(state=State.FINISHED, accuracy=0.96, low=0.91, high=1.0, mark=Mark.BEST)
    assert item_from_map_cell(cell, SQUARED).text == "65.0 (0.0 to 97.5), best"
    assert item_from_map_cell(cell, PERCENT).text == "96.0 (91.0 to 100.0), best"


def test_equal_declarations_have_one_scale() -> None:
    assert score_scale_of_config(config("squared_error")) == SQUARED
    assert len({SQUARED, score_scale_of_config(config("squared_error")), ABSOLUTE}) == 2
    assert PERCENT != SQUARED
