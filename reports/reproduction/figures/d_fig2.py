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
from dpsweep.reports.reproduction.training import ACCOUNT, sheet_of_prices_by_accountant
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


def reproduction_of_figure_2(results: SearchResults, *, differences: tuple[str, ...]) -> Reproduction:
    """One curve per method."""
    rows = rows_by_names_of_yu(results)
    return Reproduction(
        title="Momentum and a clip norm that falls",
        source="Yu, Zhang, Chen 2019, Figure 2",
        drawings=(draw_scores_over_steps(rows, results.quality),),
        sheets=(sheet_of_prices_by_accountant(results),),
        notes=(EACH_LENGTH, ACCOUNT),
        differences=differences,
    )


def reproduction_of_figure_4(
    results: SearchResults, *, data: str, other: str, differences: tuple[str, ...]
) -> Reproduction:
    """One curve per method, at a smaller budget, for replaced records; `other` names the figure's other panel."""
    rows = rows_by_names_of_yu(results)
    return Reproduction(
        title="A smaller budget, for records that are replaced",
        source=f"Yu, Zhang, Chen 2019, Figure 4, {data}",
        drawings=(draw_scores_over_steps(rows, results.quality),),
        sheets=(sheet_of_prices_by_accountant(results),),
        notes=(EACH_LENGTH, f"The figure's other panel, {other}", ACCOUNT),
        differences=differences,
    )


def draw_scores_over_steps(rows: pd.DataFrame, quality: str) -> Drawing:
    """The score at the best learning rate over the number of steps that the budget allows, a curve per method."""
    present = [method for method in METHODS.values() if (rows[METHOD] == method).any()]
    return draw_charts(
        "figure",
        "The score over the number of steps that one run's budget allows, a curve per method.",
        (
            Chart(
                title="Until the budget is spent",
                x_label="steps",
                y_label=quality,
                curves=tuple(_best_score_curve(rows[rows[METHOD] == method], method) for method in present),
                log_x=True,
            ),
        ),
    )


def _best_score_curve(rows: pd.DataFrame, method: str) -> Curve:
    best = point_scores(rows).table.groupby(STEPS)["score"].max().sort_index()
    return Curve(label=method, x=tuple(map(float, best.index)), y=tuple(best))


FIGURES = {
    "d_fig2": Trained(make=partial(reproduction_of_figure_2, differences=(OUR_LENGTHS, OUR_FALL))),
    "d_fig2_rates": Trained(make=partial(reproduction_of_figure_2, differences=(OUR_RATES, OUR_LENGTHS, OUR_FALL))),
    "d_fig4": Trained(
        make=partial(
            reproduction_of_figure_4,
            data="Covertype",
            other="MNIST, is `d_fig4_mnist`.",
            differences=(OUR_LENGTHS, COVERTYPE),
        )
    ),
    "d_fig4_rates": Trained(
        make=partial(
            reproduction_of_figure_4,
            data="Covertype",
            other="MNIST, is `d_fig4_mnist`.",
            differences=(OUR_RATES, OUR_LENGTHS, COVERTYPE),
        )
    ),
    "d_fig4_mnist": Trained(
        make=partial(
            reproduction_of_figure_4, data="MNIST", other="Covertype, is `d_fig4`.", differences=(OUR_LENGTHS,)
        )
    ),
}
