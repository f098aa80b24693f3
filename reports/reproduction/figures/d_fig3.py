"""Yu, Zhang, Chen 2018, Figure 3: accuracy over training with different momentum coefficients."""

from __future__ import annotations

from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
from dpsweep.reports.reproduction.claims import (
    MOMENTUM,
)
from dpsweep.reports.reproduction.figures.d_fig2 import OUR_LENGTHS
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results import (
    SearchResults,
    table_with_row_per_recorded_step,
)
from dpsweep.reports.statistics.point_scores import STEPS, point_scores


def make_reproduction(results: SearchResults) -> Reproduction:
    """One curve per coefficient."""
    looks = table_with_row_per_recorded_step(results)
    table = point_scores(looks).table
    best = table.groupby([MOMENTUM, STEPS])["score"].max()
    return Reproduction(
        title="How much momentum",
        source="Yu, Zhang, Chen 2018, Figure 3",
        drawing=draw_charts(
            "figure",
            "Accuracy over the number of steps, a curve per momentum coefficient.",
            Chart(
                title="Momentum coefficients",
                x_label="steps",
                y_label=results.quality,
                curves=tuple(
                    Curve.from_series(f"momentum {value:g}", best[value]) for value in sorted(set(table[MOMENTUM]))
                ),
            ),
        ),
        differences=(OUR_LENGTHS,),
    )


FIGURES = {"d_fig3": Trained(make=make_reproduction)}
