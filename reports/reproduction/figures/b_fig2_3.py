"""Mohapatra et al. 2022, Figures 2 to 5: DP-SGD's and DP-Adam's losses over learning rates and clip norms.

Figures 2 and 3 are on records that are made up, 4 and 5 on ENRON.
"""

from __future__ import annotations

import math
from functools import partial

import pandas as pd

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.figures.charts import Map, draw_maps
from dpsweep.reports.reproduction.claims import SLOPES, finding_on_slopes
from dpsweep.reports.reproduction.finding import Finding, Reproduction, Trained
from dpsweep.reports.reproduction.learning_curves import LOSS, PUBLIC
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import CLIP, LR

BEST = 0.01
"""The share of DP-SGD's losses that is drawn white; DP-Adam's losses up to the same value are white too."""

BEST_CONSTANT = {"enron": 0.60217, "regression": 2.60126}
"""The training loss of the best constant predictor: with 1500 of 5172 mails spam, and half the targets' variance."""

SMALLEST, LARGEST = 1e-9, 1e9
"""Losses are drawn as if they were in this range; those of diverged runs are the largest."""


def make_reproduction(results: SearchResults, *, source: str, measure: str, difference: str) -> Reproduction:
    """Both maps of the training losses in the end, and the exponents of their best learning rates."""
    table = table_scored_by_last_loss(results)
    by_method = {str(method): rows for method, rows in table.groupby("method", sort=False)}
    scored = table.drop(columns="loss")  # every other column is a setting of a point
    loss = BEST_CONSTANT.get(results.facts.account)
    best_constant = None if loss is None else -math.log10(loss)
    limit = float(by_method["dpsgd"]["loss"].quantile(BEST, interpolation="lower"))
    return Reproduction(
        title="Learning rate and clip norm, entangled or not",
        source=f"Mohapatra, Sasy, He, Kamath, Thakkar 2022, {source}",
        drawings=(
            draw_maps(
                "figure",
                "Log loss of DP-SGD and of DP-Adam over learning rate and clip norm; the best are white.",
                measure,
                [_map_of_training_losses(method, rows, limit) for method, rows in by_method.items()],
            ),
        ),
        findings=(
            finding_that_rate_is_inverse_to_clip(scored, best_constant),
            finding_that_rate_ignores_clip_norm(scored, best_constant),
        ),
        sheets=(),
        notes=(
            f"White: the lowest {BEST:.0%} of DP-SGD's losses, at least one, and DP-Adam's losses that are as low.",
            PUBLIC,
        ),
        differences=(difference,),
    )


def finding_that_rate_is_inverse_to_clip(table: pd.DataFrame, best_constant: float | None) -> Finding:
    """DP-SGD's best learning rate is inversely proportional to its clip norm."""
    return finding_on_slopes(
        "DP-SGD's best lr falls as 1 / c",
        "DP-SGD's best losses lie on a diagonal: the best learning rate is inversely proportional to the clip norm.",
        SLOPES,
        {"": table},
        "dpsgd",
        best_constant,
    )


def finding_that_rate_ignores_clip_norm(table: pd.DataFrame, best_constant: float | None) -> Finding:
    """DP-Adam's best learning rate does not depend on its clip norm."""
    return finding_on_slopes(
        "DP-Adam's best lr does not depend on c",
        "DP-Adam has no such diagonal: good learning rates are the same for a wide range of clip norms.",
        (SLOPES[1], -SLOPES[1]),
        {"": table},
        "dpadam",
        best_constant,
    )


def table_scored_by_last_loss(results: SearchResults) -> pd.DataFrame:
    """The search's table with the log10 of each run's last training loss, `loss`, and minus that as its score.

    A run without a recorded loss keeps its row, without a score.
    """
    losses = results.table["trial"].map(lambda trial: _last_training_loss(results, str(trial)))
    diverged = results.table["state"] == State.DIVERGED
    logs = losses.where(~diverged, LARGEST).clip(SMALLEST, LARGEST).map(math.log10, na_action="ignore")
    return results.table.assign(
        loss=logs,
        accuracy=-logs,
        accuracy_low=float("nan"),
        accuracy_high=float("nan"),
        state=results.table["state"].where(~diverged, State.FINISHED),
    )


def _last_training_loss(results: SearchResults, trial: str) -> float:
    """The last training loss that a run recorded; nan if there is none, infinite for one that is no number."""
    curve = results.curve_of_run(trial)
    if not curve:
        return math.nan
    loss = curve[-1].get(LOSS)
    return math.inf if loss is None or not math.isfinite(loss) else float(loss)


def _map_of_training_losses(method: str, rows: pd.DataFrame, limit: float) -> Map:
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


FIGURES = {
    "b_fig2_3": Trained(
        make=partial(
            make_reproduction,
            source="Figures 2 and 3",
            measure="log10 of the mean squared error in training",
            difference="The ranges of both axes are ours.",
        )
    ),
    "b_fig4_5": Trained(
        make=partial(
            make_reproduction,
            source="Figures 4 and 5",
            measure="log10 of the training loss",
            difference="Both axes, the noise multiplier and the number of steps are ours: the paper names none of them "
            "for ENRON.",
        )
    ),
}
