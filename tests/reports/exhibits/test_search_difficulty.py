"""Difficulty of a search: counted by hand, or by brute force."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.reports.content.score_scale import score_scale_of_config
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.exhibits.search_difficulty import best_scores_of_random_subsets, search_difficulty_exhibit

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4, 0.8), "trainer.clip_norm": (0.5, 1)}}
FATES = {1: "failed", 3: "diverged", 4: "killed", 6: "not run"}
ADD = Adjacency.ADD_OR_REMOVE_ONE
SweepOf = Callable[..., Any]


def column(sheet: Sheet, name: str) -> list[Any]:
    place = sheet.columns.index(name)
    return [row[place].text if row[place].key is None else row[place].key for row in sheet.rows]


def test_the_best_of_a_random_few_is_counted_over_all_subsets() -> None:
    scores = [0.9, 0.85, 0.8, 0.8, 0.3, 0.1]
    for one in best_scores_of_random_subsets(scores):
        best = sorted(max(few) for few in itertools.combinations(scores, one.size))
        assert one.mean == pytest.approx(np.mean(best))
        assert (one.low, one.high) == tuple(np.quantile(best, [0.025, 0.975], method="inverted_cdf"))


def test_the_best_of_a_random_few_of_many_is_exact() -> None:
    """Against the definition in whole numbers, at every size."""
    points = 300
    scores = [1 - place / points for place in range(points)]
    for one in best_scores_of_random_subsets(scores):
        ways = math.comb(points, one.size)
        means = (score * math.comb(points - 1 - place, one.size - 1) / ways for place, score in enumerate(scores))
        assert one.mean == pytest.approx(math.fsum(means), rel=1e-12)


def test_ease_counts_the_points_that_did_nearly_as_well_as_the_best_of_all() -> None:
    scores = {
        "dpsgd": [0.90, 0.8951, 0.88, *[0.5] * 8, 0.4],
        "dpnsgd": [0.889, 0.7, 0.2, *[0.1] * 9],
        "dpadam": [0.9, 0.1] * 5,
    }
    rows = [(method, State.FINISHED, score) for method, own in scores.items() for score in own]
    rows += [("dpsgd", State.FAILED, None), ("dpsgd", State.DIVERGED, 0.0)]
    shown = search_difficulty_exhibit(pd.DataFrame(rows, columns=["method", "state", "accuracy"]), "accuracy")
    assert shown is not None
    (sheet,) = shown.sheets
    assert column(sheet, "method") == ["DP-SGD", "DP-NSGD"], "ten points are no distribution"
    assert column(sheet, "points") == [12, 12]
    assert column(sheet, "within 1 of the best of all") == [pytest.approx(2 / 12), 0.0]
    assert column(sheet, "within 2 of the best of all") == [pytest.approx(3 / 12), pytest.approx(1 / 12)]


def test_errors_are_shown_in_the_unit_of_the_target() -> None:
    scale = score_scale_of_config(
        {"loss": {"kind": "absolute_error"}, "dataset": {"target": (0, 200), "target_unit": "mmHg"}}
    )
    rows = [("dpsgd", State.FINISHED, 0.9 - place / 100) for place in range(12)]
    table = pd.DataFrame(rows, columns=["method", "state", "accuracy"])
    shown = search_difficulty_exhibit(table, "mean absolute error", scale)
    assert shown is not None
    (sheet,) = shown.sheets
    assert sheet.caption == "Scores of the finished points, in mmHg"
    assert column(sheet, "within 2 of the best of all") == [pytest.approx(2 / 12)]
    assert column(sheet, "within 4 of the best of all") == [pytest.approx(3 / 12)]
    (text,) = (row[-1].text for row in sheet.rows)
    mean, low, high = map(float, re.fullmatch(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)", text).groups())  # type: ignore[union-attr]
    assert 20 <= low < mean < high < 42


def test_nothing_finished_is_nothing_to_show() -> None:
    rows = pd.DataFrame([("dpsgd", State.FAILED, None)] * 5, columns=["method", "state", "accuracy"])
    assert search_difficulty_exhibit(rows, "accuracy") is None
