"""Maps of DP-SGD's and DP-Adam's losses over learning rates and clip norms, and the test for a diagonal."""

from __future__ import annotations

import math

import pandas as pd

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.figures.charts import Map, maps
from dpsweep.reports.reproduction.diagonal_claims import diagonal, no_diagonal
from dpsweep.reports.reproduction.finding import Reproduction
from dpsweep.reports.reproduction.training import ACCOUNT, costs
from dpsweep.reports.statistics.run_rows import CLIP, LR, scores

BEST = 0.01
"""The share of DP-SGD's losses that is drawn white; DP-Adam's losses up to the same value are white too."""

SMALLEST = 1e-9


def make(sweep: Sweep, *, source: str, cap: float, measure: str, note: str) -> Reproduction:
    """Both maps, and the exponents of their best learning rates; a loss is `cap` * (1 - score)."""
    table = sweep.table.assign(loss=log_losses(sweep.table, cap))
    by_method = {str(method): rows for method, rows in table.groupby("method", sort=False)}
    limit = float(by_method["dpsgd"]["loss"].quantile(BEST, interpolation="lower"))
    return Reproduction(
        title="Learning rate and clip norm, entangled or not",
        source=source,
        drawings=(
            maps(
                "figure",
                "Log loss of DP-SGD and of DP-Adam over learning rate and clip norm; the best are white.",
                measure,
                [_map(method, rows, limit) for method, rows in by_method.items()],
            ),
        ),
        findings=(diagonal(sweep.table), no_diagonal(sweep.table)),
        sheets=(costs(sweep),),
        notes=(
            f"White: the lowest {BEST:.0%} of DP-SGD's losses, at least one, and DP-Adam's losses that are as low. "
            f"{note} The ranges of the axes are ours.",
            ACCOUNT,
        ),
    )


def log_losses(table: pd.DataFrame, cap: float) -> pd.Series[float]:
    """log10 of the mean squared error, for scores of 1 - error / cap."""
    losses = cap * (1 - scores(table))
    return losses.clip(lower=SMALLEST).map(math.log10)


def _map(method: str, rows: pd.DataFrame, limit: float) -> Map:
    square = rows.pivot_table(index=CLIP, columns=LR, values="loss", aggfunc="mean").sort_index().sort_index(axis=1)
    values = tuple(tuple(map(float, line)) for line in square.to_numpy())
    return Map(
        title=method_label(method),
        x_label="lr",
        y_label="clip norm",
        columns=tuple(f"{lr:g}" for lr in square.columns),
        rows=tuple(f"{clip:g}" for clip in square.index),
        values=values,
        white=frozenset(
            (row, column)
            for row, line in enumerate(values)
            for column, value in enumerate(line)
            if math.isfinite(value) and value <= limit
        ),
    )
