"""What a sweep's runs were looked at to score in the course of training: a table with a row per run and recorded step.

A look at a public test set costs nothing, so one run of 10,000 steps shows what a hundred runs of every length would.
Rows of one run are not independent of each other; those of different runs are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.statistics.run_rows import STEPS

ACCURACIES = ("test_accuracy", "training_accuracy")
"""What a look may have recorded; the test set's comes first."""

LENGTHS = 10
"""Lengths at which a claim on the whole course of training is judged: more would only widen each interval."""


def look_rows(sweep: Sweep) -> pd.DataFrame:
    """The sweep's table with a row per look in place of a row per run: its `steps` and the score at that step.

    A run that diverged scores 0 at every step that was recorded; a run without a curve has no rows.
    """
    looks = [row for run in sweep.table.to_dict("records") for row in _looks_of(run, sweep)]
    return pd.DataFrame(looks, columns=sweep.table.columns)


def at_lengths(rows: pd.DataFrame, count: int = LENGTHS) -> pd.DataFrame:
    """The rows of at most `count` evenly spaced lengths, the last one included."""
    lengths = sorted(set(rows[STEPS]))
    kept = {lengths[place] for place in np.linspace(len(lengths) / count, len(lengths), count).round().astype(int) - 1}
    chosen: pd.DataFrame = rows[rows[STEPS].isin(kept)]
    return chosen


def last_look(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last recorded step."""
    return rows[rows[STEPS] == rows[STEPS].max()]


def _looks_of(run: dict[Any, Any], sweep: Sweep) -> list[dict[Any, Any]]:
    result = sweep.results.get(str(run["trial"]))
    curve = result.curator.get("curve", []) if result is not None else []
    unknown = {"accuracy_low": np.nan, "accuracy_high": np.nan}
    return [run | unknown | {STEPS: look["step"], "accuracy": _accuracy(run, look)} for look in curve]


def _accuracy(run: dict[Any, Any], look: dict[str, Any]) -> float:
    if run["state"] == State.DIVERGED:
        return float("nan")
    return float(next(look[name] for name in ACCURACIES if name in look))
