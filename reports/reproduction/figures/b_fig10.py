"""Mohapatra et al. 2022, Figure 10: how often each learning rate and clip norm of DP-SGD is the best."""

from __future__ import annotations

import pandas as pd

from dpsweep.reports.figures.charts import Map, draw_maps
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet_of_formatted_values
from dpsweep.reports.reproduction.rate_claims import win_counts_of_rate_and_clip_norm_pairs
from dpsweep.reports.reproduction.results import (
    SearchResults,
    table_with_row_per_recorded_step,
)
from dpsweep.reports.statistics.point_scores import STEPS


def make_reproduction(results: SearchResults) -> Reproduction:
    """One map with the number of times that each cell is the best."""
    looks = table_with_row_per_recorded_step(results)
    counts = win_counts_of_rate_and_clip_norm_pairs(looks)
    lengths = looks[STEPS].nunique()
    return Reproduction(
        title="Which candidates ever are the best",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 10",
        drawing=draw_maps(
            "figure",
            f"How often each cell is the best of {lengths} lengths.",
            f"times the best, of {lengths}",
            Map.from_table("DP-SGD", "lr", "clip norm", pd.Series(counts).unstack(0, fill_value=0)),
        ),
        sheets=(
            sheet_of_formatted_values(
                "Cells that ever are the best",
                ("lr", "clip norm", "times"),
                [(lr, clip, times) for (lr, clip), times in sorted(counts.items()) if times],
            ),
        ),
        differences=(
            "One data set and one model; the paper sums over four data sets, two models and three noise levels.",
        ),
    )


FIGURES = {"b_fig10": Trained(make=make_reproduction)}
