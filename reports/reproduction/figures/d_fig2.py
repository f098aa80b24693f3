"""Yu, Zhang, Chen 2019, Figures 2 and 4: DP-SGD with momentum, a falling clip norm, both and neither, at one budget."""

from __future__ import annotations

from functools import partial

import pandas as pd

from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.reproduction.finding import (
    Reproduction,
    Trained,
)
from dpsweep.reports.reproduction.registry import METHODS, rows_by_names_of_yu
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import (
    METHOD,
    STEPS,
    point_scores,
)

OUR_LENGTHS = "The noise multipliers, and so the numbers of steps that a budget allows, are ours."
OUR_FALL = (
    "The clip norm falls over the whole run; in the paper, over the steps that a constant clip norm would pay for."
)
COVERTYPE = "A sixth of Covertype's records; scores are noisy counts of held-out private records."
OUR_RATES = "Each method is at the best of several learning rates, at a larger epsilon than the paper's: both are ours."
EACH_LENGTH = "Each number of steps is a separate run, at the noise multiplier for which the budget allows these steps."


def make_reproduction(
    results: SearchResults, *, title: str, source: str, differences: tuple[str, ...], notes: tuple[str, ...] = ()
) -> Reproduction:
    """The score at the best learning rate over the number of steps that the budget allows, a curve per method."""
    return Reproduction(
        title=title,
        source=f"Yu, Zhang, Chen 2019, {source}",
        drawing=draw_scores_over_steps(rows_by_names_of_yu(results), results.quality),
        notes=(EACH_LENGTH, *notes),
        differences=differences,
    )


def draw_scores_over_steps(rows: pd.DataFrame, quality: str) -> Drawing:
    """The score at the best learning rate over the number of steps that the budget allows, a curve per method."""
    present = [method for method in METHODS.values() if (rows[METHOD] == method).any()]
    return draw_charts(
        "figure",
        "The score over the number of steps that one run's budget allows, a curve per method.",
        Chart(
            title="Until the budget is spent",
            x_label="steps",
            y_label=quality,
            curves=tuple(_best_score_curve(rows[rows[METHOD] == method], method) for method in present),
            log_x=True,
        ),
    )


def _best_score_curve(rows: pd.DataFrame, method: str) -> Curve:
    best = point_scores(rows).table.groupby(STEPS)["score"].max().sort_index()
    return Curve.from_series(method, best)


figure_2 = partial(make_reproduction, title="Momentum and a clip norm that falls", source="Figure 2")
figure_4 = partial(make_reproduction, title="A smaller budget, for records that are replaced")
covertype = partial(
    figure_4, source="Figure 4, Covertype", notes=("The figure's other panel, MNIST, is `d_fig4_mnist`.",)
)
FIGURES = {
    "d_fig2": Trained(make=partial(figure_2, differences=(OUR_LENGTHS, OUR_FALL))),
    "d_fig2_rates": Trained(make=partial(figure_2, differences=(OUR_RATES, OUR_LENGTHS, OUR_FALL))),
    "d_fig4": Trained(make=partial(covertype, differences=(OUR_LENGTHS, COVERTYPE))),
    "d_fig4_rates": Trained(make=partial(covertype, differences=(OUR_RATES, OUR_LENGTHS, COVERTYPE))),
    "d_fig4_mnist": Trained(
        make=partial(
            figure_4,
            source="Figure 4, MNIST",
            notes=("The figure's other panel, Covertype, is `d_fig4`.",),
            differences=(OUR_LENGTHS,),
        )
    ),
}
