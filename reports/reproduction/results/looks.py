"""What a search's runs were looked at to score in the course of training: a table with a row per run and recorded step.

A look at a public test set costs nothing, so one run of 10,000 steps shows what a hundred runs of every length would.
Rows of one run are not independent of each other; those of different runs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.statistics.run_rows import STEPS

ACCURACIES = ("test_accuracy", "training_accuracy")
"""What a look may have recorded; the test set's comes first."""

LENGTHS = 10
"""Lengths at which a claim on the whole course of training is judged: more would only widen each interval."""


def look_rows(results: SearchResults) -> pd.DataFrame:
    """The search's table with a row per look in place of a row per run: its `steps` and the score at that step.

    A run that diverged scores 0 at every step that was recorded; a run without a curve has no rows.
    """
    looks = [row for run in results.table.to_dict("records") for row in _looks_of(run, results)]
    return pd.DataFrame(looks, columns=list(dict.fromkeys([*results.table.columns, STEPS])))


def at_lengths(rows: pd.DataFrame, count: int = LENGTHS) -> pd.DataFrame:
    """The rows of at most `count` evenly spaced lengths, the last one included."""
    lengths = sorted(set(rows[STEPS]))
    kept = {lengths[place] for place in np.linspace(len(lengths) / count, len(lengths), count).round().astype(int) - 1}
    chosen: pd.DataFrame = rows[rows[STEPS].isin(kept)]
    return chosen


def first_look(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first recorded step."""
    first: pd.DataFrame = rows[rows[STEPS] == rows[STEPS].min()]
    return first


def last_look(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last recorded step."""
    last: pd.DataFrame = rows[rows[STEPS] == rows[STEPS].max()]
    return last


def _looks_of(run: dict[Any, Any], results: SearchResults) -> list[dict[Any, Any]]:
    unknown, curve = {"accuracy_low": np.nan, "accuracy_high": np.nan}, results.curve(run["trial"])
    return [run | unknown | {STEPS: look["step"], "accuracy": _accuracy(run, look)} for look in curve]


def _accuracy(run: dict[Any, Any], look: Mapping[str, Any]) -> float:
    if run["state"] == State.DIVERGED:
        return float("nan")
    value = next(look[name] for name in ACCURACIES if name in look)
    return float("nan") if value is None else float(value)
