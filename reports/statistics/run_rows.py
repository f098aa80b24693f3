"""Selections of the rows of a sweep's table, and what a row's run scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpsweep.accounting.records.plan import REPEAT
from dpsweep.reports.content.sweep_table import State

LR, CLIP, REGULARIZER = "trainer.lr", "trainer.clip_norm", "trainer.regularizer"
NOISE, METHOD = "noise_multiplier", "method"
STEPS = "steps"
OUTCOMES = frozenset(
    {
        *("trial", "state", "accuracy", "accuracy_low", "accuracy_high", "gap", "steps_run", "seconds", "device"),
        *("error", "attempts_charged", "attempts_started", "epsilon_alone", "conduct", "folder", "share", REPEAT),
    }
)
"""Columns of a sweep's table that are no settings of a point."""

_Z95 = 1.959963984540054


def scores(rows: pd.DataFrame) -> pd.Series[float]:
    """The rows' scores: 0 for a diverged run, nan for a run without a result."""
    values = pd.to_numeric(rows["accuracy"]).astype(float).where(rows["state"] == State.FINISHED)
    return values.where(rows["state"] != State.DIVERGED, 0.0)


def scoring_errors(rows: pd.DataFrame) -> NDArray[np.float64]:
    """The standard error that scoring alone gives each score, from its 95 % interval [rows]; nan if it is unknown.

    It covers the number of scored records and the noise of counts, and no difference between two trainings.
    """
    if not {"accuracy_low", "accuracy_high"} <= set(rows.columns):
        return np.full(len(rows), np.nan)
    low, high = (pd.to_numeric(rows[name]).to_numpy(dtype=float) for name in ("accuracy_low", "accuracy_high"))
    widths = np.where((rows["state"] == State.DIVERGED).to_numpy(), 0.0, high - low)
    return np.asarray(widths / (2 * _Z95), dtype=float)


def of_method(table: pd.DataFrame, method: str) -> pd.DataFrame:
    """The rows of one method."""
    return table[table[METHOD] == method]


def by(table: pd.DataFrame, key: str) -> list[tuple[Any, pd.DataFrame]]:
    """The rows grouped by the values of a numeric column, ascending."""
    values = pd.to_numeric(table[key]).astype(float)
    return [(value, table[values == value]) for value in sorted(set(values.dropna()))]
