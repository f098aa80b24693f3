"""Mohapatra et al. 2022, Figures 2 to 5: DP-SGD's and DP-Adam's losses over learning rates and clip norms.

Figures 2 and 3 are on records that are made up, 4 and 5 on ENRON.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.figures.charts import Map, draw_maps
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.learning_curves import table_scored_by_last_loss
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import CLIP, LR

BEST = 0.01
"""The share of DP-SGD's losses that is drawn white; DP-Adam's losses up to the same value are white too."""


def make_reproduction(results: SearchResults, *, source: str, measure: str, difference: str) -> Reproduction:
    """Both maps of the training losses in the end."""
    table = table_scored_by_last_loss(results)
    by_method = {str(method): rows for method, rows in table.groupby("method", sort=False)}
    limit = float(by_method["dpsgd"]["loss"].quantile(BEST, interpolation="lower"))
    return Reproduction(
        title="Learning rate and clip norm, entangled or not",
        source=f"Mohapatra, Sasy, He, Kamath, Thakkar 2022, {source}",
        drawing=draw_maps(
            "figure",
            "Log loss of DP-SGD and of DP-Adam over learning rate and clip norm; the best are white.",
            measure,
            *(_map_of_training_losses(method, rows, limit) for method, rows in by_method.items()),
        ),
        notes=(
            f"White: the lowest {BEST:.0%} of DP-SGD's losses, at least one, and DP-Adam's losses that are as low.",
        ),
        differences=(difference,),
    )


def _map_of_training_losses(method: str, rows: pd.DataFrame, limit: float) -> Map:
    square = rows.pivot_table(index=CLIP, columns=LR, values="loss", aggfunc="mean").sort_index().sort_index(axis=1)
    drawn = Map.from_table(method_label(method), "lr", "clip norm", square)
    white = frozenset((int(row), int(column)) for row, column in np.argwhere(square.to_numpy() <= limit))
    return replace(drawn, white=white)


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
