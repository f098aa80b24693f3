"""The conclusion from the maps: points that cannot be told apart, and a best one at the end of an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.selection.rules import BestOfGrid, Composition
from dpsweep.reports.content.panels import Mark, build_map_panels
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.exhibits.map_notes import conclusion_sentence, reason_for_no_map

LR, CLIP = "trainer.lr", "trainer.clip_norm"
AXES = {"dpsgd": {LR: (0.1, 0.2, 0.4), CLIP: (0.5, 1)}}
SweepOf = Callable[..., Any]


def conclusion_of(made: Any, *clauses: str) -> str:
    sweep = read_sweep(made.folder, made.ledger)
    return conclusion_sentence(sweep, build_map_panels(sweep.map_rows, sweep.swept_keys), clauses)


def test_points_that_cannot_be_told_apart_have_no_star_and_no_other_conclusion(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, accuracy=lambda place: 0.5 + 0.001 * place)
    sentence = conclusion_of(made, "lr matters")
    assert sentence.startswith("No point can be told apart from the chosen one: the scores of all 6 points")
    assert "lr matters" not in sentence
    sweep = read_sweep(made.folder, made.ledger)
    cells = [cell for panel in build_map_panels(sweep.map_rows, sweep.swept_keys) for cell in panel.cells.values()]
    assert sorted(cell.mark for cell in cells) == [Mark.NONE] * 5 + [Mark.CHOSEN]


@pytest.mark.parametrize(
    ("best", "end", "wider"), [(0, "lr = 0.1", "trainer.lr=0.05"), (5, "lr = 0.4", "trainer.lr=0.8")]
)
def test_a_best_point_at_the_end_of_an_axis_prices_the_runs_beyond_it(
    sweep_of: SweepOf, best: int, end: str, wider: str
) -> None:
    made = sweep_of(AXES, accuracy=lambda place: 0.9 if place == best else 0.5)
    sentence = conclusion_of(made, "lr matters, clip_norm hardly does")
    assert sentence.startswith(
        "lr matters, clip_norm hardly does; the best point, or one as good, lies at the edge of the grid, "
        f"{end}: widen the grid with {wider}, which costs epsilon "
    )
    assert sentence.endswith(" more, for 2 runs with the same noise.")
    claimed = float(sentence.rpartition("epsilon ")[2].partition(" ")[0])
    events = made.plan.priced_events[:2]
    price = Panel(claimants=(Pld(),)).epsilon(Composition().event(events), made.plan.delta, made.plan.adjacency)
    assert price <= claimed <= 1.01 * price


def test_ends_of_several_axes_are_told_axis_by_axis(sweep_of: SweepOf) -> None:
    axes = {"dpsgd": {LR: (0.1, 0.2, 0.4), CLIP: (0.5, 1, 2)}}
    sentence = conclusion_of(sweep_of(axes, accuracy=lambda place: 0.9 if place in (0, 8) else 0.5))
    assert sentence.startswith("The best point, or one as good, lies at the edge of the grid, ")
    assert "lr = 0.1 or 0.4 and clip_norm = 0.5 or 2" in sentence
    assert "widen the grid with trainer.lr=0.05,0.8 and trainer.clip_norm=0.25,4" in sentence


@pytest.mark.parametrize(
    ("good", "counted"),
    [
        ((2,), "The other 5 points are significantly worse than the best one."),
        ((2, 3), "Of the other 5 points, 1 is not significantly worse than the best one."),
        ((2, 3, 4), "Of the other 5 points, 2 are not significantly worse than the best one."),
    ],
)
def test_where_nothing_else_is_concluded_the_points_as_good_as_the_best_are_counted(
    sweep_of: SweepOf, good: tuple[int, ...], counted: str
) -> None:
    """An axis of two values has no inside, so its ends say nothing."""
    assert conclusion_of(sweep_of(AXES, accuracy=lambda place: 0.9 if place in good else 0.5)) == counted


@pytest.mark.parametrize(
    ("good", "ends"),
    [((1, 2, 3), ""), ((1, 2), "lr = 0.1"), ((2, 3), ""), ((1,), "lr = 0.1"), ((1, 3), "lr = 0.1 or 0.4")],
    ids=["it hardly matters", "the best at an end", "the best inside", "an end alone", "both ends and nothing inside"],
)
def test_an_end_that_is_only_as_good_as_the_inside_is_none(sweep_of: SweepOf, good: tuple[int, ...], ends: str) -> None:
    """The first of the good points is the best, by less than its error."""
    scores = {place - 1: 0.9 - 0.001 * order for order, place in enumerate(good)}
    axes = {"dpsgd": {LR: (0.1, 0.2, 0.4)}, "dpnsgd": {LR: (0.2,)}}
    sentence = conclusion_of(sweep_of(axes, accuracy=lambda place: scores.get(place, 0.4)))
    assert (f"at the edge of the grid, {ends}:" in sentence) == bool(ends)
    assert sentence.startswith("Of the other 3 points, ") == (ends == "")


def test_a_rule_without_a_map_says_what_gives_one() -> None:
    assert reason_for_no_map(Composition()) == ""
    assert "tuning=composition pays for every run and has a map" in reason_for_no_map(BestOfGrid())


@pytest.mark.parametrize(("key", "wider"), [(LR, "=1.16"), ("trainer.momentum", "=0.967")])
def test_learning_rates_below_one_are_no_shares_of_one(sweep_of: SweepOf, key: str, wider: str) -> None:
    made = sweep_of({"dpsgd": {key: (0.5, 0.7, 0.9)}}, accuracy=lambda place: 0.5 + 0.2 * place)
    assert f"widen the grid with {key}{wider}" in conclusion_of(made)


def test_columns_with_equal_headings_stay_apart() -> None:
    sheet = Sheet.from_cells("", ("run", "steps", "steps"), [("1", ("10", 10.0), ("7", 7.0))])
    assert sheet.rows_as_dicts() == [{"run": "1", "steps": 10.0, "steps (2)": 7.0}]
