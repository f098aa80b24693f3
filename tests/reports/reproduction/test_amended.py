"""The verdicts on momentum and falling clip norms: each holds on a table that shows it and on no other."""

from __future__ import annotations

import pandas as pd
import pytest

from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.reproduction.figures import d_fig2 as amended
from dpsweep.reports.reproduction.figures.d_fig2 import BOTH, FALLING, MOMENTUM, PLAIN, finding_that_few_steps_gain_most
from dpsweep.reports.statistics.verdict import Verdict

HOLDS, REFUTED, UNDECIDED = Verdict


def rows(error: float = 0.001, **scores: tuple[float, float]) -> pd.DataFrame:
    """Scores of a method at noise 1 and 2, with this standard error; its few steps at noise 1."""
    names = {"plain": PLAIN, "momentum": MOMENTUM, "falling": FALLING, "both": BOTH}
    table = pd.DataFrame(
        [
            {"method": names[name], "noise_multiplier": noise, "steps": int(100 * noise), "accuracy": score}
            for name, found in scores.items()
            for noise, score in zip((1.0, 2.0), found, strict=True)
        ]
    )
    ends = {"accuracy_low": table["accuracy"] - 2 * error, "accuracy_high": table["accuracy"] + 2 * error}
    return table.assign(state=State.FINISHED, **ends)


def test_better_is_a_point_above_at_every_noise() -> None:
    table = rows(plain=(0.7, 0.8), both=(0.75, 0.82), momentum=(0.75, 0.805))
    assert amended.finding_that_methods_beat_dpsgd(table, [BOTH], "claim").verdict is HOLDS
    assert "noise 1: 5.0 points [" in amended.finding_that_methods_beat_dpsgd(table, [BOTH], "claim").numbers
    assert amended.finding_that_methods_beat_dpsgd(table, [MOMENTUM], "claim").verdict is REFUTED, (
        "half a point is too little"
    )
    assert amended.finding_that_methods_beat_dpsgd(table, [BOTH, MOMENTUM], "claim").verdict is REFUTED
    assert amended.finding_that_methods_beat_dpsgd(rows(plain=(0.7, 0.8)), [BOTH], "claim").verdict is UNDECIDED, (
        "nothing ran to be better"
    )
    noisy = rows(error=0.03, plain=(0.7, 0.8), both=(0.75, 0.82))
    assert amended.finding_that_methods_beat_dpsgd(noisy, [BOTH], "claim").verdict is UNDECIDED


def test_an_advantage_is_larger_where_steps_are_few() -> None:
    assert finding_that_few_steps_gain_most(rows(plain=(0.7, 0.8), both=(0.75, 0.82))).verdict is HOLDS
    assert finding_that_few_steps_gain_most(rows(plain=(0.7, 0.8), both=(0.72, 0.85))).verdict is REFUTED
    assert finding_that_few_steps_gain_most(rows(plain=(0.7, 0.8), both=(0.725, 0.825))).verdict is REFUTED, (
        "not at all larger"
    )
    assert finding_that_few_steps_gain_most(rows(error=0.01, plain=(0.7, 0.8), both=(0.75, 0.82))).verdict is UNDECIDED
    assert finding_that_few_steps_gain_most(rows(plain=(0.7, 0.8))).verdict is UNDECIDED


def test_curves_are_in_the_order_of_their_steps() -> None:
    table = rows(plain=(0.7, 0.8), both=(0.75, 0.82)).iloc[::-1]
    drawn = amended.draw_scores_over_steps(table, "accuracy")
    assert drawn.png.startswith(b"\x89PNG")
    assert BOTH in drawn.svg
    assert FALLING not in drawn.svg.replace(BOTH, "")
    means = {noise: one.value for noise, one in amended.best_scores_by_noise(table, PLAIN).items()}
    assert means == pytest.approx({1.0: 0.7, 2.0: 0.8}, abs=1e-3)
