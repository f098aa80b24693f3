"""The verdicts on momentum and falling clip norms: each holds on a table that shows it and on no other."""

from __future__ import annotations

import pandas as pd

from dpsweep.reports.reproduction import momentum_and_decay as amended
from dpsweep.reports.reproduction.figures.d_fig2 import constrained
from dpsweep.reports.reproduction.momentum_and_decay import BOTH, FALLING, MOMENTUM, PLAIN


def rows(**scores: tuple[float, float]) -> pd.DataFrame:
    """Scores of a method at noise 1 and 2; its few steps at noise 1."""
    names = {"plain": PLAIN, "momentum": MOMENTUM, "falling": FALLING, "both": BOTH}
    return pd.DataFrame(
        [
            {"method": names[name], "noise": noise, "steps": int(100 * noise), "score": score}
            for name, found in scores.items()
            for noise, score in zip((1.0, 2.0), found, strict=True)
        ]
    )


def test_better_is_a_point_above_at_every_noise() -> None:
    table = rows(plain=(0.7, 0.8), both=(0.75, 0.82), momentum=(0.75, 0.805))
    assert amended.better(table, [BOTH], "claim").holds
    assert "5.0 points, 2.0 points" in amended.better(table, [BOTH], "claim").numbers
    assert not amended.better(table, [MOMENTUM], "claim").holds, "half a point is the noise of a run"
    assert not amended.better(table, [BOTH, MOMENTUM], "claim").holds
    assert not amended.better(rows(plain=(0.7, 0.8)), [BOTH], "claim").holds, "nothing ran that could be better"


def test_an_advantage_is_larger_where_steps_are_few() -> None:
    assert constrained(rows(plain=(0.7, 0.8), both=(0.75, 0.82))).holds
    assert not constrained(rows(plain=(0.7, 0.8), both=(0.72, 0.85))).holds
    assert not constrained(rows(plain=(0.7, 0.8), both=(0.725, 0.82))).holds, "by half a point"
    assert not constrained(rows(plain=(0.7, 0.8))).holds


def test_curves_are_in_the_order_of_their_steps() -> None:
    table = rows(plain=(0.7, 0.8), both=(0.75, 0.82)).iloc[::-1]
    drawn = amended.picture(table, "accuracy")
    assert drawn.png.startswith(b"\x89PNG")
    assert BOTH in drawn.svg
    assert FALLING not in drawn.svg.replace(BOTH, "")
    assert amended.best(table, PLAIN) == {1.0: 0.7, 2.0: 0.8}
