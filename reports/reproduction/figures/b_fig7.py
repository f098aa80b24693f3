"""Mohapatra et al. 2022, Figure 7: the best candidates of DP-SGD, DP-Momentum and DP-Adam over training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.figures.charts import Chart, Curve, charts
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet
from dpsweep.reports.reproduction.results.differences import ADULT
from dpsweep.reports.reproduction.results.looks import look_rows
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.reproduction.training import ACCOUNT, costs
from dpsweep.reports.reproduction.tuning_claims import close, few_candidates_do
from dpsweep.reports.statistics.point_scores import point_scores
from dpsweep.reports.statistics.run_rows import STEPS, by, of_method
from dpsweep.reports.statistics.score_statistic import mean_best


def make(results: SearchResults) -> Reproduction:
    """The figure's panel of Adult."""
    return panel(results, ADULT)


def panel(results: SearchResults, difference: str) -> Reproduction:
    """The best score of each method over training, and its candidates at the end, sorted from worst to best."""
    methods = list(dict.fromkeys(results.table["method"]))
    ranked = {name: np.sort(point_scores(of_method(results.table, name)).means) for name in methods}
    few = min(ranked, key=lambda name: len(ranked[name]))
    return Reproduction(
        title="Few candidates against many",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 7",
        drawings=(
            charts(
                "figure",
                "Best score of each method over training, alone and as the mean of so many random candidates as the "
                "smallest grid has; scores of all candidates at the end, from worst to best.",
                (
                    _course(results, methods, len(ranked[few])),
                    Chart(
                        title="Candidates from worst to best",
                        x_label="share of the candidates",
                        y_label=results.quality,
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
                results.table, methods, "The best candidates of DP-SGD, DP-Momentum and DP-Adam are extremely similar."
            ),
            few_candidates_do(results.table, [name for name in methods if name != few], few),
        ),
        sheets=(
            costs(results),
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
        notes=(ACCOUNT,),
        differences=(difference,),
    )


def _course(results: SearchResults, methods: Sequence[str], few: int) -> Chart:
    """Best mean score over the steps, and the mean best of `few` random candidates of each method that has more."""
    table = point_scores(look_rows(results)).table
    curves = []
    for method in methods:
        by_step = {length: np.sort(rows["score"].to_numpy()) for length, rows in by(of_method(table, method), STEPS)}
        for count, label in ((None, "best"), (few, f"mean best of {few}")):
            values = [float(own @ mean_best(len(own), count or len(own))) for own in by_step.values()]
            if count is None or len(next(iter(by_step.values()))) > few:
                curves.append(Curve(label=f"{method_label(method)}, {label}", x=tuple(by_step), y=tuple(values)))
    return Chart(title="Over training", x_label="steps", y_label=results.quality, curves=tuple(curves))


FIGURE = Trained(experiment="b_fig7", make=make)
