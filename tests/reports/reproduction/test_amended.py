"""The verdicts on momentum and falling clip norms: each holds on a table that shows it and on no other."""

from __future__ import annotations

import pandas as pd

from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.reproduction.claims import (
    AVERAGED,
    BOTH,
    FALLING,
    PLAIN,
    evidence_that_few_steps_gain_most,
    evidence_that_method_beats_dpsgd,
)
from dpsweep.reports.reproduction.figures.yu_searches import best_score_by_steps_and_method
from dpsweep.reports.statistics.verdict import Verdict

HOLDS, MISSED, REFUTED, UNDECIDED = Verdict


def rows(error: float = 0.001, **scores: tuple[float, float]) -> pd.DataFrame:
    """Scores of a method at noise 1 and 2, with this standard error; its few steps at noise 1."""
    names = {"plain": PLAIN, "momentum": AVERAGED, "falling": FALLING, "both": BOTH}
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
    table = rows(plain=(0.7, 0.8), both=(0.75, 0.82), momentum=(0.75, 0.805), falling=(0.75, 0.79))
    assert evidence_that_method_beats_dpsgd(table, BOTH).verdict is HOLDS
    assert evidence_that_method_beats_dpsgd(table, BOTH).parts[0].text.startswith("noise 1: 5.0 points [")
    assert evidence_that_method_beats_dpsgd(table, AVERAGED).verdict is MISSED, "half a point is too little"
    assert evidence_that_method_beats_dpsgd(table, FALLING).verdict is REFUTED, "a point below"
    assert evidence_that_method_beats_dpsgd(rows(plain=(0.7, 0.8)), BOTH).verdict is UNDECIDED, "nothing ran"
    noisy = rows(error=0.03, plain=(0.7, 0.8), both=(0.75, 0.82))
    assert evidence_that_method_beats_dpsgd(noisy, BOTH).verdict is UNDECIDED


def test_a_baseline_that_has_not_learned_does_not_count() -> None:
    """Less than half of the table's best score."""
    table = rows(plain=(0.2, 0.8), both=(0.9, 0.79))
    found = evidence_that_method_beats_dpsgd(table, BOTH)
    assert found.verdict is REFUTED
    assert [part.estimate.name for part in found.parts] == ["noise 2:"]
    assert found.remark == "left out, since DP-SGD has not learned there: noise 1"
    assert evidence_that_few_steps_gain_most(table).verdict is UNDECIDED


def test_an_advantage_is_larger_where_steps_are_few() -> None:
    assert evidence_that_few_steps_gain_most(rows(plain=(0.7, 0.8), both=(0.75, 0.82))).verdict is HOLDS
    assert evidence_that_few_steps_gain_most(rows(plain=(0.7, 0.8), both=(0.72, 0.85))).verdict is REFUTED
    assert evidence_that_few_steps_gain_most(rows(plain=(0.7, 0.8), both=(0.73, 0.824))).verdict is MISSED
    assert evidence_that_few_steps_gain_most(rows(plain=(0.7, 0.8), both=(0.725, 0.825))).verdict is UNDECIDED
    noisy = rows(error=0.01, plain=(0.7, 0.8), both=(0.75, 0.82))
    assert evidence_that_few_steps_gain_most(noisy).verdict is UNDECIDED
    assert evidence_that_few_steps_gain_most(rows(plain=(0.7, 0.8))).verdict is UNDECIDED


def test_curves_are_in_the_order_of_their_steps() -> None:
    table = rows(plain=(0.7, 0.8), both=(0.75, 0.82)).iloc[::-1]
    best = best_score_by_steps_and_method(table)
    assert list(best) == [PLAIN, BOTH], "the methods that ran"
    assert list(best.index) == [100, 200]
    assert best[BOTH].to_list() == [0.75, 0.82]
