"""Mohapatra et al. 2022, Figure 10: how often each learning rate and clip norm of DP-SGD is the best."""

from __future__ import annotations

from dpsweep.reports.figures.charts import Map, draw_maps
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet_of_formatted_values
from dpsweep.reports.reproduction.rate_claims import win_counts_of_rate_and_clip_norm_pairs
from dpsweep.reports.reproduction.results import (
    SearchResults,
    table_with_row_per_recorded_step,
)
from dpsweep.reports.reproduction.training import ACCOUNT, sheet_of_prices_by_accountant
from dpsweep.reports.statistics.point_scores import STEPS


def make_reproduction(results: SearchResults) -> Reproduction:
    """One map with the number of times that each cell is the best."""
    looks = table_with_row_per_recorded_step(results)
    counts = win_counts_of_rate_and_clip_norm_pairs(looks)
    rates, clips = (sorted({pair[place] for pair in counts}) for place in (0, 1))
    lengths = looks[STEPS].nunique()
    return Reproduction(
        title="Which candidates ever are the best",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 10",
        drawings=(
            draw_maps(
                "figure",
                f"How often each cell is the best of {lengths} lengths.",
                f"times the best, of {lengths}",
                (
                    Map(
                        title="DP-SGD",
                        x_label="lr",
                        y_label="clip norm",
                        columns=tuple(f"{lr:g}" for lr in rates),
                        rows=tuple(f"{clip:g}" for clip in clips),
                        values=tuple(tuple(float(counts.get((lr, clip), 0)) for lr in rates) for clip in clips),
                    ),
                ),
            ),
        ),
        sheets=(
            sheet_of_prices_by_accountant(results),
            sheet_of_formatted_values(
                "Cells that ever are the best",
                ("lr", "clip norm", "times"),
                [(lr, clip, times) for (lr, clip), times in sorted(counts.items()) if times],
            ),
        ),
        notes=(ACCOUNT,),
        differences=(
            "One data set and one model; the paper sums over four data sets, two models and three noise levels.",
        ),
    )


FIGURES = {"b_fig10": Trained(make=make_reproduction)}
