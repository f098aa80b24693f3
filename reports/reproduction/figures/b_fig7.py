"""Mohapatra et al. 2022, Figures 7, 8 and 11 to 14: few candidates against many, and Adam without second moments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from dpsweep.reports.content.formatting import method_label, setting_text
from dpsweep.reports.figures.charts import Chart, Curve, draw_charts
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet_of_formatted_values
from dpsweep.reports.reproduction.results import (
    SearchResults,
    table_with_row_per_recorded_step,
)
from dpsweep.reports.statistics.point_scores import (
    NOISE,
    STEPS,
    group_rows_by_column,
    point_scores,
    rows_of_method,
    weights_of_mean_best,
)

ADULT = "Adult and logistic regression alone; the paper has four data sets and two models."
DIGITS = (
    "MNIST's fours and nines with 784 pixels in the place of Gisette, which has 5000 features of these digits; "
    "logistic regression alone."
)


def reproduction_of_figure_7(results: SearchResults, *, difference: str) -> Reproduction:
    """The best score of each method over training, and its candidates at the end, sorted from worst to best."""
    methods = list(dict.fromkeys(results.table["method"]))
    ranked = {name: np.sort(point_scores(rows_of_method(results.table, name)).means) for name in methods}
    few = min(ranked, key=lambda name: len(ranked[name]))
    return Reproduction(
        title="Few candidates against many",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 7",
        drawing=draw_charts(
            "figure",
            "Best score of each method over training, alone and as the mean of so many random candidates as the "
            "smallest grid has; scores of all candidates at the end, from worst to best.",
            _best_scores_chart(results, methods, len(ranked[few])),
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
        sheets=(
            sheet_of_formatted_values(
                "Scores",
                ("method", "candidates", "worst", "best", f"mean best of {len(ranked[few])}"),
                [
                    (
                        method_label(name),
                        len(values),
                        float(values[0]),
                        float(values[-1]),
                        float(values @ weights_of_mean_best(len(values), len(ranked[few]))),
                    )
                    for name, values in ranked.items()
                ],
            ),
        ),
        differences=(difference,),
    )


def reproduction_of_figure_8(results: SearchResults) -> Reproduction:
    """Two curves per method."""
    looks = table_with_row_per_recorded_step(results)
    return Reproduction(
        title="Adam without second moments",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 8",
        drawing=draw_charts(
            "figure",
            "Best and median score of three methods over the number of steps.",
            _best_and_median_chart("Over the clip norms of Table 2", point_scores(looks).table, results.quality),
        ),
        notes=(
            "An iteration of ADADP is two of its steps. The paper makes no claim on ADADP for this data set, so "
            "there is no verdict on it.",
        ),
        differences=(ADULT,),
    )


def reproduction_of_figures_11_to_14(results: SearchResults) -> Reproduction:
    """A chart per noise level: best and median candidates over the number of steps."""
    runs = table_with_row_per_recorded_step(results)
    table = point_scores(runs).table
    levels = {float(noise): rows for noise, rows in table.groupby(table[NOISE].astype(float))}
    return Reproduction(
        title="Few candidates against many, at other noise levels",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figures 11 to 14",
        drawing=draw_charts(
            "figure",
            "Best and median score of five methods over the number of steps, at each noise level.",
            *(
                _best_and_median_chart(f"Noise multiplier {setting_text(noise)}", rows, results.quality)
                for noise, rows in levels.items()
            ),
        ),
        differences=("The noise levels are ours: the paper's text names no numbers.", ADULT),
    )


def _best_and_median_chart(title: str, rows: pd.DataFrame, quality: str) -> Chart:
    """The best and the median mean score of each method over the steps."""
    grouped = rows.groupby(["method", STEPS], sort=False)["score"]
    kinds = {"best": grouped.max(), "median": grouped.median()}
    return Chart(
        title=title,
        x_label="steps",
        y_label=quality,
        curves=tuple(
            Curve.from_series(f"{method_label(method)}, {kind}", values[method])
            for method in dict.fromkeys(rows["method"])
            for kind, values in kinds.items()
        ),
    )


def _best_scores_chart(results: SearchResults, methods: Sequence[str], few: int) -> Chart:
    """Best mean score over the steps, and the mean best of `few` random candidates of each method that has more."""
    table = point_scores(table_with_row_per_recorded_step(results)).table
    curves = []
    for method in methods:
        by_step = {
            length: np.sort(rows["score"].to_numpy())
            for length, rows in group_rows_by_column(rows_of_method(table, method), STEPS)
        }
        for count, label in ((None, "best"), (few, f"mean best of {few}")):
            values = [float(own @ weights_of_mean_best(len(own), count or len(own))) for own in by_step.values()]
            if count is None or len(next(iter(by_step.values()))) > few:
                curves.append(Curve(label=f"{method_label(method)}, {label}", x=tuple(by_step), y=tuple(values)))
    return Chart(title="Over training", x_label="steps", y_label=results.quality, curves=tuple(curves))


FIGURES = {
    "b_fig7": Trained(make=partial(reproduction_of_figure_7, difference=ADULT)),
    "b_fig7_mnist_4_9": Trained(make=partial(reproduction_of_figure_7, difference=DIGITS)),
    "b_fig8": Trained(make=reproduction_of_figure_8),
    "b_fig11_14": Trained(make=reproduction_of_figures_11_to_14),
}
