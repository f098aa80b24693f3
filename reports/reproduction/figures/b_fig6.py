"""Mohapatra et al. 2022, Figure 6: DP-Adam's candidates, those at the usual learning rate, and the defaults."""

from __future__ import annotations

from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
from dpsweep.reports.reproduction.claims import DEFAULT
from dpsweep.reports.reproduction.figures.b_fig7 import ADULT
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet_of_formatted_values
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import LR, point_scores


def make_reproduction(results: SearchResults) -> Reproduction:
    """One column of points per learning rate."""
    table = point_scores(results.table).table
    rates = sorted(set(table[LR]))
    default = table[(table[list(DEFAULT)] == list(DEFAULT.values())).all(axis=1)]
    curves = {"other decay rates": table, "all defaults": default}
    return Reproduction(
        title="Adam's defaults under privacy",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 6",
        drawing=draw_charts(
            "figure",
            "Accuracy of DP-Adam's candidates by learning rate; the defaults are marked.",
            Chart(
                title="DP-Adam's candidates",
                x_label="lr",
                y_label=results.quality,
                curves=tuple(
                    Curve(
                        label=label,
                        x=tuple(float(rates.index(lr)) for lr in rows[LR]),
                        y=tuple(rows["score"]),
                        lined=False,
                    )
                    for label, rows in curves.items()
                ),
                ticks=tuple(f"{lr:g}" for lr in rates),
            ),
        ),
        sheets=(
            sheet_of_formatted_values(
                "Candidates", (*DEFAULT, "score"), table[[*DEFAULT, "score"]].to_numpy().tolist()
            ),
        ),
        differences=("The values of lr, beta1 and beta2 beside the defaults are ours.", ADULT),
    )


FIGURES = {"b_fig6": Trained(make=make_reproduction)}
