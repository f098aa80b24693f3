"""Where points go: across, down, or into a panel of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from dpsweep.reports.content.panels import (
    MapPanel,
    Mark,
    build_map_panels,
    colour_scale_ends,
    mark_cells_below_scale,
    points_as_good_as_best_sentence,
)
from dpsweep.reports.content.sweep_table import State, read_sweep

LR, CLIP = "trainer.lr", "trainer.clip_norm"
SweepOf = Callable[..., Any]


def panels_of(made: Any) -> tuple[MapPanel, ...]:
    sweep = read_sweep(made.folder, made.ledger)
    return build_map_panels(sweep.table, sweep.swept_keys)


def test_methods_and_noises_make_panels(sweep_of: SweepOf) -> None:
    panels = panels_of(
        sweep_of(
            {
                "dpsgd": {LR: (0.4, 0.1), CLIP: (1, 2, 3)},
                "dpnsgd": {LR: (0.1, 0.4), "trainer.regularizer": (1, 2)},
            },
            noises=(1.5, 2.0, 3.0),
        )
    )
    assert [(panel.label, panel.facet[0]) for panel in panels] == [
        (method, f"noise_multiplier {noise}") for method in ("DP-SGD", "DP-NSGD") for noise in ("1.5", "2", "3")
    ]
    alone = [float(panel.facet[1].removeprefix("one run \N{GREEK SMALL LETTER EPSILON} ")) for panel in panels]
    assert alone[:3] == alone[3:] == sorted(alone[:3], reverse=True), "less noise, more epsilon, whatever the method"
    assert panels[0].across.label == "lr"
    assert panels[0].across.values == (0.1, 0.4)
    assert panels[0].down.values == (1, 2, 3)
    assert all(len(panel.cells) == 6 for panel in panels[:3])


@pytest.mark.parametrize(
    ("axes", "across", "down"),
    [
        ({LR: (0.1,)}, LR, None),
        ({}, None, None),
        ({CLIP: (1, 2)}, CLIP, None),
        ({LR: (0.1,), CLIP: (1, 2)}, CLIP, LR),
        ({CLIP: (1,), LR: (0.1, 0.2)}, LR, CLIP),
        ({"model": ("a", "b", "c"), CLIP: (1, 2), LR: (0.1, 0.2)}, LR, CLIP),
    ],
)
def test_lr_lies_across_where_it_varies(sweep_of: SweepOf, axes: Any, across: str | None, down: str | None) -> None:
    for panel in panels_of(sweep_of({"dpsgd": axes})):
        assert (panel.across.key, panel.down.key) == (across, down)
        assert len(panel.cells) == len(panel.across.values) * len(panel.down.values)


def test_further_axes_make_panels(sweep_of: SweepOf) -> None:
    axes = {LR: (0.1, 0.2), CLIP: (1, 2), "trainer.beta1": (0.9, 0.99), "model": ("cnn", "logistic")}
    panels = panels_of(sweep_of({"dpadam": axes}))
    assert len(panels) == 4
    assert len({panel.name for panel in panels}) == 4
    assert sum(len(panel.cells) for panel in panels) == 16


def test_repetitions_are_one_cell_with_their_mean(sweep_of: SweepOf) -> None:
    scores = [0.5, 0.7, 0.6, 0.7, 0.9, 0.1]
    axes = {"dpsgd": {LR: (0.1, 0.2), "repeat": (1, 2, 3)}}
    panels = panels_of(sweep_of(axes, accuracy=scores.__getitem__, fates={2: "failed"}))
    (panel,) = panels
    assert (panel.across.key, panel.down.key) == (LR, None)
    first, second = panel.cells[0, 0], panel.cells[0, 1]
    assert (first.accuracy, first.runs, first.mark) == (pytest.approx(0.6), 2, Mark.NONE), "one of its runs failed"
    assert second.mark is Mark.CHOSEN, "nothing can be told apart"
    assert first.low is not None
    assert 0.6 - first.low > 0.2, "runs that differ by tens of points"
    assert (second.accuracy, second.runs) == (pytest.approx(1.7 / 3), 3), "though it holds the best run"


def test_marks_are_unique_and_states_kept(troubled: Any) -> None:
    panels = panels_of(troubled)
    cells = [cell for panel in panels for cell in panel.cells.values()]
    assert [cell.mark for cell in cells].count(Mark.BEST) == 1
    assert [cell.mark for cell in cells].count(Mark.BEST_OF_METHOD) == 1
    best = next(cell for cell in cells if cell.mark is Mark.BEST)
    assert best.accuracy == max(cell.accuracy for cell in cells if cell.state is State.FINISHED and cell.accuracy)
    assert sum(cell.state is State.NOT_RUN for cell in cells) == 1


def test_the_scale_is_shared_and_never_empty(sweep_of: SweepOf, troubled: Any) -> None:
    low, high = colour_scale_ends(panels_of(troubled))
    sweep = read_sweep(troubled.folder, troubled.ledger)
    finished = sweep.table.loc[sweep.table["state"] == State.FINISHED, "accuracy"]
    assert (low, high) == (min(finished), max(finished))
    low, high = colour_scale_ends(panels_of(sweep_of({"dpsgd": {LR: (0.1,)}})))
    assert high - low == pytest.approx(0.01)
    assert colour_scale_ends(()) == (0.0, 1.0)


def marks_of(scores: list[float], half: float = 0.01) -> list[Mark]:
    """The marks of one row of finished points, each with an interval of so much to either side."""
    frame = pd.DataFrame(
        {
            "method": "dpsgd",
            "noise_multiplier": 1.0,
            LR: [float(place) for place in range(len(scores))],
            "state": [State.FINISHED] * len(scores),
            "accuracy": scores,
            "accuracy_low": [score - half for score in scores],
            "accuracy_high": [score + half for score in scores],
        },
        dtype=object,
    )
    (panel,) = mark_cells_below_scale(build_map_panels(frame, (LR,)))
    return [cell.mark for _, cell in sorted(panel.cells.items())]


def test_cells_within_the_interval_of_the_difference_are_as_good_as_the_best() -> None:
    assert marks_of([0.80, 0.7859, 0.7858, 0.9, 0.8859, 0.8858]) == [
        *[Mark.NONE] * 3,
        Mark.BEST,
        Mark.AS_GOOD,
        Mark.NONE,
    ], "two intervals of a point to either side: their difference has one of 1.414"


def test_a_cell_far_below_the_rest_is_off_the_scale_and_says_so() -> None:
    scores = [0.90, 0.89, 0.88, 0.87, 0.86, 0.10]
    assert marks_of(scores, half=0.0)[-1] is Mark.BELOW
    assert Mark.BELOW not in marks_of([0.90, 0.70, 0.50, 0.30, 0.10], half=0.0)


def test_nothing_is_ranked_by_scores_that_say_nothing() -> None:
    """Intervals as wide as the scale: no star, no best, no "not significantly worse", and colours of that width."""
    rows = pd.DataFrame(
        [
            {
                **{"method": "dpsgd", "noise_multiplier": 1.0, "state": State.FINISHED, "lr": rate, "accuracy": score},
                **{"accuracy_low": 0.0, "accuracy_high": 1.0, "records_error": None},
            }
            for rate, score in ((0.1, 0.02), (0.2, 0.98), (0.4, 0.5))
        ],
        dtype=object,
    )
    panels = build_map_panels(rows, ["lr"])
    marks = [cell.mark for panel in panels for cell in panel.cells.values()]
    assert sorted(marks) == [Mark.NONE, Mark.NONE, Mark.CHOSEN]
    assert colour_scale_ends(panels) == (0.0, 1.0)
    assert points_as_good_as_best_sentence(panels) == ""
