"""Mohapatra et al. 2022, Figure 7: candidates of DP-SGD, DP-Momentum and DP-Adam, at the end of training."""

from __future__ import annotations

import numpy as np

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.figures.charts import Chart, Curve, charts
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet
from dpsweep.reports.reproduction.training import ACCOUNT, costs
from dpsweep.reports.reproduction.tuning_claims import close, few_candidates_do
from dpsweep.reports.statistics.point_scores import point_scores
from dpsweep.reports.statistics.run_rows import of_method
from dpsweep.reports.statistics.score_statistic import mean_best


def make(sweep: Sweep) -> Reproduction:
    """Each method's candidates, sorted from worst to best."""
    methods = list(dict.fromkeys(sweep.table["method"]))
    ranked = {name: np.sort(point_scores(of_method(sweep.table, name)).means) for name in methods}
    few = min(ranked, key=lambda name: len(ranked[name]))
    return Reproduction(
        title="Few candidates against many",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 7",
        drawings=(
            charts(
                "figure",
                "Scores of each method's candidates, from worst to best.",
                (
                    Chart(
                        title="Candidates from worst to best",
                        x_label="share of the candidates",
                        y_label=sweep.quality,
                        curves=tuple(
                            Curve(
                                label=f"{method_label(name)} ({len(values)})",
                                x=tuple((place + 1) / len(values) for place in range(len(values))),
                                y=tuple(map(float, values)),
                            )
                            for name, values in ranked.items()
                        ),
                    ),
                ),
            ),
        ),
        findings=(
            close(
                sweep.table, methods, "The best candidates of DP-SGD, DP-Momentum and DP-Adam are extremely similar."
            ),
            few_candidates_do(sweep.table, [name for name in methods if name != few], few),
        ),
        sheets=(
            costs(sweep),
            sheet(
                "Scores",
                ("method", "candidates", "worst", "best", f"mean best of {len(ranked[few])}"),
                [
                    (
                        method_label(name),
                        len(values),
                        float(values[0]),
                        float(values[-1]),
                        float(values @ mean_best(len(values), len(ranked[few]))),
                    )
                    for name, values in ranked.items()
                ],
            ),
        ),
        notes=(
            "The paper draws the best score at every 100 steps; this figure shows the end of training only.",
            ACCOUNT,
        ),
    )


FIGURE = Trained(experiment="b_fig7", make=make)
