"""What a page says about the settings: from intervals, silent where they are wide, and only where scores are shown."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dpsweep.accounting.records.card import SAME_ANSWER, CardAnswer, CardClaim, CardNumber
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.exhibits.what_mattered import score_by_lr_times_clip_exhibit, what_mattered_exhibit
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release
from dpsweep.reports.statistics.score_grid import score_grid, slope_of_best_rate
from tests.reports.conftest import CLIP, LR, REGULARIZER, Made

SweepOf = Callable[..., Made]
RATES, CLIPS = tuple(4.0**power for power in range(-4, 5)), (0.25, 1.0, 4.0)
GRID = {"dpsgd": {LR: RATES, CLIP: CLIPS}}
BOTH = GRID | {"dpnsgd": {LR: RATES, REGULARIZER: (0.01, 0.1, 1.0)}}
POINTS = [*itertools.product(RATES, CLIPS), *((rate, 1.0) for rate in RATES for _ in range(3))]


def along_product(place: int) -> float:
    """Best where lr x clip_norm is 1; a normalized method where lr is."""
    rate, clip = POINTS[place]
    return 0.95 - 0.2 * math.log10(rate * clip) ** 2


def along_rate(place: int) -> float:
    return 0.95 - 0.2 * math.log10(POINTS[place][0]) ** 2


def of(made: Made) -> table.Sweep:
    return table.read_sweep(made.folder, made.ledger)


def shown_of(made: Made) -> Exhibit:
    exhibit = what_mattered_exhibit(of(made))
    assert exhibit is not None
    return exhibit


def with_card(sweep: table.Sweep, low: float, high: float) -> table.Sweep:
    """The sweep with a card by which the largest class has between these shares of the records."""
    claim = CardClaim(plan=sweep.plan_id, part=1, trial=str(sweep.winner_id), model="")
    number = CardNumber(label=SAME_ANSWER, value=low, low=low, high=high)
    return replace(sweep, card=CardAnswer(claim=claim, counts=(1.0, 0.0), numbers=(number,)))


MANY = tuple(2.0**power for power in range(-4, 5))
MANY_POINTS = [*itertools.product(RATES, MANY)]


def test_a_slope_is_told_with_its_interval_where_a_card_says_how_large_the_classes_are(sweep_of: SweepOf) -> None:
    def along(place: int) -> float:
        rate, clip = MANY_POINTS[place]
        return max(0.95 - 0.2 * math.log10(rate * clip) ** 2, 0.2)

    made = of(sweep_of({"dpsgd": {LR: RATES, CLIP: MANY}}, accuracy=along))
    told = []
    for sweep in (made, with_card(made, 0.1, 0.2), with_card(made, 0.5, 0.96)):
        exhibit = what_mattered_exhibit(sweep)
        assert exhibit is not None
        told.append(exhibit.findings[0])
    unknown, sentences, large = told
    assert unknown.startswith("DP-SGD at noise multiplier 4: of the variance over the grid, lr explains ")
    assert "So tune lr and clip_norm together: the best value of one depends on the other." in unknown
    assert "to the power of" not in unknown, "the classes may be as unlike as 1 to 9"
    assert "to the power of" not in large, "no run surely beats the constant"
    assert "The best lr goes like clip_norm to the power of -1.0" in sentences
    assert "from 9 usable clip norms" in sentences
    low, high = map(float, sentences.rpartition("(95 %: ")[2].partition(")")[0].split(" to "))
    assert low < -1 < high


def test_a_slope_that_may_as_well_be_minus_one_as_zero_is_not_told(sweep_of: SweepOf) -> None:
    """Each clip norm has its own best lr, 4 to one of these powers."""
    powers = (2, -2, 1, -3, 3, -1, 2, -3, 0)

    def scattered(place: int) -> float:
        rate, clip = MANY_POINTS[place]
        return max(0.95 - 0.2 * (math.log10(rate) - powers[MANY.index(clip)] * math.log10(4)) ** 2, 0.2)

    sweep = with_card(of(sweep_of({"dpsgd": {LR: RATES, CLIP: MANY}}, accuracy=scattered)), 0.1, 0.2)
    slope = slope_of_best_rate(score_grid(sweep.compared_rows, CLIP), 0.2)
    assert (slope.rows, slope.reason) == (9, "")
    assert slope.estimate.low < -1 < 0 < slope.estimate.high
    exhibit = what_mattered_exhibit(sweep)
    assert exhibit is not None
    assert "to the power of" not in exhibit.findings[0]


def test_three_clip_norms_have_no_slope_and_a_range_at_the_best_rate(sweep_of: SweepOf) -> None:
    """At lr 1 the scores of clip norms 1/4, 1 and 4 differ by .2 log10(4)^2 = 7.2 points."""
    sweep = with_card(of(sweep_of(GRID, accuracy=along_product)), 0.1, 0.2)
    exhibit = what_mattered_exhibit(sweep)
    assert exhibit is not None
    assert "to the power of" not in exhibit.findings[0]
    found = re.search(
        r"At the best lr, (\S+), the best and the worst clip_norm are ([\d.]+) points apart", str(exhibit)
    )
    assert found is not None
    assert float(found[1]) in (0.25, 1.0, 4.0)
    assert float(found[2]) >= 5


def test_a_setting_without_effect_is_told(sweep_of: SweepOf) -> None:
    (sentences,) = shown_of(sweep_of(GRID, accuracy=along_rate)).findings
    assert "So clip_norm hardly matters here" in sentences
    assert "(0.0 to " in sentences.partition("points apart ")[2]


def test_shares_are_those_of_the_scores(sweep_of: SweepOf) -> None:
    """Without noise the shares of a * log(lr) + b * log(clip_norm) are a^2 var(log lr) to b^2 var(log clip_norm)."""

    def plane(place: int) -> float:
        rate, clip = POINTS[place]
        return 0.5 + 0.1 * math.log(rate) / math.log(4) / 4 + 0.2 * math.log(clip) / math.log(4)

    (sheet,) = shown_of(sweep_of(GRID, accuracy=plane)).sheets
    by_rate, by_setting, by_both = (float(str(row[2].key)) for row in sheet.rows)
    squares = (0.1 / 4) ** 2 * 60 / 9, 0.2**2 * 2 / 3
    assert by_rate == pytest.approx(squares[0] / sum(squares), abs=0.02)
    assert by_setting == pytest.approx(squares[1] / sum(squares), abs=0.02)
    assert by_rate + by_setting + by_both == pytest.approx(1)


def test_nothing_is_said_where_scores_differ_by_no_more_than_noise(sweep_of: SweepOf) -> None:
    assert what_mattered_exhibit(of(sweep_of(GRID, accuracy=lambda place: 0.8 + 0.01 * (place % 3)))) is None


def test_an_incomplete_grid_is_no_grid(sweep_of: SweepOf) -> None:
    assert what_mattered_exhibit(of(sweep_of(GRID, accuracy=along_product, fates={4: "failed"}))) is None


def test_lines_of_all_clip_norms_and_of_a_normalized_method_are_on_one_axis(sweep_of: SweepOf) -> None:
    exhibit = score_by_lr_times_clip_exhibit(of(sweep_of(BOTH, accuracy=along_product)))
    assert exhibit is not None
    (sheet,), (drawing,) = exhibit.sheets, exhibit.drawings
    assert drawing.name == "collapse-1"
    assert list(dict.fromkeys(row[0].text for row in sheet.rows)) == [
        *(f"clip_norm {clip:g}" for clip in CLIPS),
        "DP-NSGD",
    ]
    for row in sheet.rows:
        step, score = float(str(row[1].key)), float(str(row[2].key))
        assert score == pytest.approx(0.95 - 0.2 * math.log10(step) ** 2), "all on the curve of the product"


@pytest.mark.parametrize(
    "axes",
    [{"dpadam": GRID["dpsgd"]}, {"dpnsgd": BOTH["dpnsgd"]}, {"dpsgd": {LR: (0.1, 0.2), CLIP: CLIPS}}],
    ids=["steps are rescaled", "no clip norm", "two rates are no line"],
)
def test_where_there_is_nothing_to_compare_there_is_no_plot(sweep_of: SweepOf, axes: dict[str, Any]) -> None:
    assert score_by_lr_times_clip_exhibit(of(sweep_of(axes))) is None


@pytest.mark.long
def test_the_exhibits_are_on_pages_that_show_all_scores(sweep_of: SweepOf) -> None:
    made = sweep_of(BOTH, accuracy=along_product)
    for write in (write_report, write_release):
        path = write(made.folder, made.ledger)
        assert {"what-mattered", "collapse"} <= set(json.loads((path.parent / "report.json").read_text())["exhibits"])


def test_a_release_of_the_winner_alone_has_none_of_them(sweep_of: SweepOf, only_winner: dict[str, str]) -> None:
    made = sweep_of(BOTH, accuracy=along_product, rule=only_winner)
    path = write_release(made.folder, made.ledger)
    assert set(json.loads((path.parent / "report.json").read_text())["exhibits"]) == {"privacy"}
    assert not list(path.parent.glob("collapse*"))
