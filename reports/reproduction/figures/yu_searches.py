"""Yu, Zhang, Chen 2019, Figures 1, 2 and 4, and their Figure 3 of 2018: norms of gradients, and DP-SGD with momentum.

Figures 2 and 4 compare DP-SGD with momentum, a falling clip norm, both and neither, at one budget.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.figures.charts import Chart, curves_of_columns, draw_charts
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.reproduction.claims import MOMENTUM
from dpsweep.reports.reproduction.finding import Trained
from dpsweep.reports.reproduction.learning_curves import NORMS, mean_curve, runs_with_curves
from dpsweep.reports.reproduction.registry import METHODS, rows_by_names_of_yu
from dpsweep.reports.reproduction.results import SearchResults, table_with_row_per_recorded_step
from dpsweep.reports.statistics.point_scores import METHOD, STEPS, point_scores

YU = "Yu, Zhang, Chen 2019"
OUR_NORMS = (
    "The length, the noise, the quantiles, and the gradients whose norms are drawn are ours; the text names none."
)
OUR_LENGTHS = "The noise multipliers, and so the numbers of steps that a budget allows, are ours."
OUR_FALL = (
    "The clip norm falls over the whole run; in the paper, over the steps that a constant clip norm would pay for."
)
COVERTYPE = "A sixth of Covertype's records; scores are noisy counts of held-out private records."
OUR_RATES = "Each method is at the best of several learning rates, at a larger epsilon than the paper's: both are ours."
EACH_LENGTH = "Each number of steps is a separate run, at the noise multiplier for which the budget allows these steps."


def draw_norms_of_gradients(results: SearchResults) -> Drawing:
    """Quantiles of the norms of single examples' gradients over the steps, a chart per method."""
    return draw_charts(
        "figure",
        "Norms of single examples' gradients over the steps, a curve per quantile.",
        *(
            Chart(
                title=method_label(str(method)),
                x_label="steps",
                y_label="norm of an example's gradient",
                curves=curves_of_columns(mean_curve(rows).set_index("step")[list(NORMS)].rename(columns=NORMS)),
            )
            for method, rows in runs_with_curves(results).groupby(METHOD, sort=False)
        ),
    )


def draw_best_score_over_steps(results: SearchResults) -> Drawing:
    """The score at the best learning rate over the number of steps that the budget allows, a curve per method."""
    return draw_charts(
        "figure",
        "The score over the number of steps that one run's budget allows, a curve per method.",
        Chart(
            title="Until the budget is spent",
            x_label="steps",
            y_label=results.quality,
            curves=curves_of_columns(best_score_by_steps_and_method(rows_by_names_of_yu(results))),
            log_x=True,
        ),
    )


def best_score_by_steps_and_method(rows: pd.DataFrame) -> pd.DataFrame:
    """The score at the best learning rate: a row per number of steps, ascending, a column per method that ran."""
    best = pd.DataFrame(
        {
            method: point_scores(rows[rows[METHOD] == method]).table.groupby(STEPS)["score"].max()
            for method in METHODS.values()
            if (rows[METHOD] == method).any()
        }
    )
    return best.sort_index()


def draw_scores_per_momentum(results: SearchResults) -> Drawing:
    """The score over the number of steps, a curve per momentum coefficient."""
    best = point_scores(table_with_row_per_recorded_step(results)).table.groupby([MOMENTUM, STEPS])["score"].max()
    return draw_charts(
        "figure",
        "Accuracy over the number of steps, a curve per momentum coefficient.",
        Chart(
            title="Momentum coefficients",
            x_label="steps",
            y_label=results.quality,
            curves=curves_of_columns(best.unstack(0).rename(columns="momentum {:g}".format)),
        ),
    )


norms = partial(Trained, draw=draw_norms_of_gradients, differences=(OUR_NORMS,))
methods = partial(Trained, draw=draw_best_score_over_steps)
figure_2 = partial(methods, title="Momentum and a clip norm that falls", source=f"{YU}, Figure 2", notes=(EACH_LENGTH,))
figure_4 = partial(methods, title="A smaller budget, for records that are replaced")
covertype = partial(
    figure_4,
    source=f"{YU}, Figure 4, Covertype",
    notes=(EACH_LENGTH, "The figure's other panel, MNIST, is `d_fig4_mnist`."),
)
FIGURES = {
    "d_fig1": norms(
        title="Norms of gradients in training, non-convex model", source=f"{YU}, Figure 1, non-convex model"
    ),
    "d_fig1_convex": norms(
        title="Norms of gradients in training, convex model", source=f"{YU}, Figure 1, convex model"
    ),
    "d_fig2": figure_2(differences=(OUR_LENGTHS, OUR_FALL)),
    "d_fig2_rates": figure_2(differences=(OUR_RATES, OUR_LENGTHS, OUR_FALL)),
    "d_fig3": Trained(
        title="How much momentum",
        source="Yu, Zhang, Chen 2018, Figure 3",
        draw=draw_scores_per_momentum,
        differences=(OUR_LENGTHS,),
    ),
    "d_fig4": covertype(differences=(OUR_LENGTHS, COVERTYPE)),
    "d_fig4_rates": covertype(differences=(OUR_RATES, OUR_LENGTHS, COVERTYPE)),
    "d_fig4_mnist": figure_4(
        source=f"{YU}, Figure 4, MNIST",
        notes=(EACH_LENGTH, "The figure's other panel, Covertype, is `d_fig4`."),
        differences=(OUR_LENGTHS,),
    ),
}
