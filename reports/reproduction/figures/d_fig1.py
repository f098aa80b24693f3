"""Yu, Zhang, Chen 2019, Figure 1: norms of gradients over the course of training."""

from __future__ import annotations

from functools import partial

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.learning_curves import NORMS, mean_curve, runs_with_curves
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import METHOD

OURS = "The length, the noise, the quantiles, and the gradients whose norms are drawn are ours; the text names none."


def make_reproduction(results: SearchResults, *, model: str) -> Reproduction:
    """Quantiles of the norms of single examples' gradients over the steps, a chart per method."""
    runs = runs_with_curves(results)
    return Reproduction(
        title=f"Norms of gradients in training, {model}",
        source=f"Yu, Zhang, Chen 2019, Figure 1, {model}",
        drawing=draw_charts(
            "figure",
            "Norms of single examples' gradients over the steps, a curve per quantile.",
            *(
                Chart(
                    title=method_label(str(method)),
                    x_label="steps",
                    y_label="norm of an example's gradient",
                    curves=tuple(
                        Curve(label=label, x=tuple(course["step"]), y=tuple(course[column]))
                        for course in (mean_curve(rows),)
                        for column, label in NORMS.items()
                    ),
                )
                for method, rows in runs.groupby(METHOD, sort=False)
            ),
        ),
        differences=(OURS,),
    )


FIGURES = {
    "d_fig1": Trained(make=partial(make_reproduction, model="non-convex model")),
    "d_fig1_convex": Trained(make=partial(make_reproduction, model="convex model")),
}
