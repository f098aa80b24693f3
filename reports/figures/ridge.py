"""The exponent e of best learning rate ~ clip_norm^e, and selections of table rows that it needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from dpsweep.reports.content.sweep_table import State

LR, CLIP = "trainer.lr", "trainer.clip_norm"


def scores(rows: pd.DataFrame) -> pd.Series[float]:
    """The rows' scores; a run without a score, for example a diverged one, has score 0."""
    finished = rows["state"] == State.FINISHED
    return rows["accuracy"].where(finished, 0.0).astype(float).fillna(0.0)


def best_row(rows: pd.DataFrame) -> pd.Series[Any]:
    """The row with the best score, the first among equals."""
    return rows.iloc[int(scores(rows).to_numpy().argmax())]


def by(table: pd.DataFrame, key: str) -> list[tuple[Any, pd.DataFrame]]:
    """The rows grouped by the values of a numeric column, ascending."""
    values = sorted({float(value) for value in table[key].dropna()})
    return [(value, table[table[key].astype(float) == value]) for value in values]


def exponent(rows: pd.DataFrame) -> tuple[float, int]:
    """The e of best lr ~ clip_norm^e by least squares, and the number of clip norms used.

    A clip norm is left out if its best learning rate is the smallest or the largest of the grid, since its optimum may
    lie outside. The exponent is nan if fewer than two are left.
    """
    edges = (rows[LR].min(), rows[LR].max())
    rates = {float(clip): best_row(group)[LR] for clip, group in by(rows, CLIP)}
    inside = {clip: float(lr) for clip, lr in rates.items() if lr not in edges}
    if len(inside) < 2:
        return math.nan, len(inside)
    slope, _ = np.polyfit(np.log(list(inside)), np.log(list(inside.values())), 1)
    return float(slope), len(inside)
