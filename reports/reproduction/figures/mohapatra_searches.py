"""Mohapatra et al. 2022: the figures that are searches, of DP-SGD, DP-Adam and their likes.

Figures 2 to 5 are losses over learning rates and clip norms, 2 and 3 on records that are made up, 4 and 5 on ENRON.
Figures 6 to 8 and 11 to 14 compare few candidates with many; Figure 10 counts how often each of DP-SGD's is the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from dpsweep.reports.content.formatting import method_label, setting_text
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.figures.charts import Chart, Curve, Map, curves_of_columns, draw_charts, draw_maps
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.reproduction.claims import DEFAULT
from dpsweep.reports.reproduction.finding import Trained, sheet_of_formatted_values
from dpsweep.reports.reproduction.learning_curves import table_scored_by_last_loss
from dpsweep.reports.reproduction.rate_claims import win_counts_of_rate_and_clip_norm_pairs
from dpsweep.reports.reproduction.results import SearchResults, table_with_row_per_recorded_step
from dpsweep.reports.statistics.point_scores import (
    CLIP,
    LR,
    METHOD,
    NOISE,
    STEPS,
    Values,
    group_rows_by_column,
    point_scores,
    rows_of_method,
    weights_of_mean_best,
)

MOHAPATRA = "Mohapatra, Sasy, He, Kamath, Thakkar 2022"
ADULT = "Adult and logistic regression alone; the paper has four data sets and two models."
DIGITS = (
    "MNIST's fours and nines with 784 pixels in the place of Gisette, which has 5000 features of these digits; "
    "logistic regression alone."
)
BEST = 0.01
"""The share of DP-SGD's losses that is drawn white; DP-Adam's losses up to the same value are white too."""


def draw_maps_of_losses(results: SearchResults, measure: str) -> Drawing:
    """Both methods' maps of the training losses in the end."""
    by_method = dict(iter(table_scored_by_last_loss(results).groupby(METHOD, sort=False)))
    limit = float(by_method["dpsgd"]["loss"].quantile(BEST, interpolation="lower"))
    maps = []
    for method, rows in by_method.items():
        square = rows.pivot_table(index=CLIP, columns=LR, values="loss", aggfunc="mean").sort_index().sort_index(axis=1)
        white = frozenset((int(row), int(column)) for row, column in np.argwhere(square.to_numpy() <= limit))
        maps.append(replace(Map.from_table(method_label(str(method)), "lr", "clip norm", square), white=white))
    alt = "Log loss of DP-SGD and of DP-Adam over learning rate and clip norm; the best are white."
    return draw_maps("figure", alt, measure, *maps)


def draw_candidates_of_adam(results: SearchResults) -> Drawing:
    """One column of points per learning rate."""
    table = point_scores(results.table).table
    rates = sorted(set(table[LR]))
    default = table[(table[list(DEFAULT)] == list(DEFAULT.values())).all(axis=1)]
    return draw_charts(
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
                for label, rows in {"other decay rates": table, "all defaults": default}.items()
            ),
            ticks=tuple(f"{lr:g}" for lr in rates),
        ),
    )


def sheet_of_candidates_of_adam(results: SearchResults) -> Sheet:
    """The score of each candidate."""
    table = point_scores(results.table).table[[*DEFAULT, "score"]]
    return sheet_of_formatted_values("Candidates", tuple(map(str, table)), table.to_numpy().tolist())


def ordered_scores_by_method(results: SearchResults) -> dict[str, Values]:
    """The scores of each method's candidates at the end, ascending."""
    methods = dict.fromkeys(results.table[METHOD])
    return {name: np.sort(point_scores(rows_of_method(results.table, name)).means) for name in methods}


def draw_few_candidates_against_many(results: SearchResults) -> Drawing:
    """The best score of each method over training, and its candidates at the end, sorted from worst to best."""
    ordered = ordered_scores_by_method(results)
    shares = {
        f"{method_label(name)} ({len(values)})": pd.Series(values, np.arange(1, len(values) + 1) / len(values))
        for name, values in ordered.items()
    }
    return draw_charts(
        "figure",
        "Best score of each method over training, alone and as the mean of so many random candidates as the smallest "
        "grid has; scores of all candidates at the end, from worst to best.",
        Chart(
            title="Over training",
            x_label="steps",
            y_label=results.quality,
            curves=curves_of_columns(
                pd.DataFrame(dict(_mean_bests_over_steps(results, min(map(len, ordered.values())))))
            ),
        ),
        Chart(
            title="Candidates from worst to best",
            x_label="share of the candidates",
            y_label=results.quality,
            curves=curves_of_columns(pd.DataFrame(shares)),
        ),
    )


def _mean_bests_over_steps(results: SearchResults, few: int) -> Iterator[tuple[str, pd.Series[float]]]:
    """Best mean score over the steps, and the mean best of `few` random candidates of each method that has more."""
    table = point_scores(table_with_row_per_recorded_step(results)).table
    for method in dict.fromkeys(results.table[METHOD]):
        by_step = {
            length: np.sort(rows["score"].to_numpy())
            for length, rows in group_rows_by_column(rows_of_method(table, method), STEPS)
        }
        most = len(next(iter(by_step.values())))
        for count, label in {most: "best", few: f"mean best of {few}"}.items() if most > few else ((most, "best"),):
            values = {length: own @ weights_of_mean_best(len(own), count) for length, own in by_step.items()}
            yield f"{method_label(method)}, {label}", pd.Series(values)


def sheet_of_few_candidates_against_many(results: SearchResults) -> Sheet:
    """The worst and the best candidate of each method, and the mean best of as many as the smallest grid has."""
    ordered = ordered_scores_by_method(results)
    few = min(map(len, ordered.values()))
    return sheet_of_formatted_values(
        "Scores",
        ("method", "candidates", "worst", "best", f"mean best of {few}"),
        [
            (
                *(method_label(name), len(values), float(values[0]), float(values[-1])),
                float(values @ weights_of_mean_best(len(values), few)),
            )
            for name, values in ordered.items()
        ],
    )


def draw_best_and_median_over_steps(results: SearchResults) -> Drawing:
    """Two curves per method."""
    table = point_scores(table_with_row_per_recorded_step(results)).table
    return draw_charts(
        "figure",
        "Best and median score of three methods over the number of steps.",
        _best_and_median_chart("Over the clip norms of Table 2", table, results.quality),
    )


def draw_best_and_median_per_noise(results: SearchResults) -> Drawing:
    """A chart per noise level: best and median candidates over the number of steps."""
    table = point_scores(table_with_row_per_recorded_step(results)).table
    return draw_charts(
        "figure",
        "Best and median score of five methods over the number of steps, at each noise level.",
        *(
            _best_and_median_chart(f"Noise multiplier {setting_text(noise)}", rows, results.quality)
            for noise, rows in group_rows_by_column(table, NOISE)
        ),
    )


def _best_and_median_chart(title: str, rows: pd.DataFrame, quality: str) -> Chart:
    """The best and the median mean score of each method over the steps."""
    grouped = rows.groupby([METHOD, STEPS], sort=False)["score"]
    kinds = {"best": grouped.max(), "median": grouped.median()}
    curves = {
        f"{method_label(method)}, {kind}": values[method]
        for method in dict.fromkeys(rows[METHOD])
        for kind, values in kinds.items()
    }
    return Chart(title=title, x_label="steps", y_label=quality, curves=curves_of_columns(pd.DataFrame(curves)))


def draw_how_often_each_is_best(results: SearchResults) -> Drawing:
    """One map with the number of times that each cell is the best."""
    looks = table_with_row_per_recorded_step(results)
    lengths, counts = looks[STEPS].nunique(), pd.Series(win_counts_of_rate_and_clip_norm_pairs(looks))
    return draw_maps(
        "figure",
        f"How often each cell is the best of {lengths} lengths.",
        f"times the best, of {lengths}",
        Map.from_table("DP-SGD", "lr", "clip norm", counts.unstack(0, fill_value=0)),
    )


def sheet_of_cells_that_are_best(results: SearchResults) -> Sheet:
    """The cells that are the best at some number of steps, and how often."""
    counts = win_counts_of_rate_and_clip_norm_pairs(table_with_row_per_recorded_step(results))
    rows = [(lr, clip, times) for (lr, clip), times in sorted(counts.items()) if times]
    return sheet_of_formatted_values("Cells that ever are the best", ("lr", "clip norm", "times"), rows)


losses = partial(
    Trained,
    title="Learning rate and clip norm, entangled or not",
    notes=(f"White: the lowest {BEST:.0%} of DP-SGD's losses, at least one, and DP-Adam's losses that are as low.",),
)
figure_7 = partial(
    Trained,
    title="Few candidates against many",
    source=f"{MOHAPATRA}, Figure 7",
    draw=draw_few_candidates_against_many,
    sheets=(sheet_of_few_candidates_against_many,),
)
FIGURES = {
    "b_fig2_3": losses(
        source=f"{MOHAPATRA}, Figures 2 and 3",
        draw=partial(draw_maps_of_losses, measure="log10 of the mean squared error in training"),
        differences=("The ranges of both axes are ours.",),
    ),
    "b_fig4_5": losses(
        source=f"{MOHAPATRA}, Figures 4 and 5",
        draw=partial(draw_maps_of_losses, measure="log10 of the training loss"),
        differences=(
            "Both axes, the noise multiplier and the number of steps are ours: the paper names none of them for ENRON.",
        ),
    ),
    "b_fig6": Trained(
        title="Adam's defaults under privacy",
        source=f"{MOHAPATRA}, Figure 6",
        draw=draw_candidates_of_adam,
        sheets=(sheet_of_candidates_of_adam,),
        differences=("The values of lr, beta1 and beta2 beside the defaults are ours.", ADULT),
    ),
    "b_fig7": figure_7(differences=(ADULT,)),
    "b_fig7_mnist_4_9": figure_7(differences=(DIGITS,)),
    "b_fig8": Trained(
        title="Adam without second moments",
        source=f"{MOHAPATRA}, Figure 8",
        draw=draw_best_and_median_over_steps,
        notes=(
            "An iteration of ADADP is two of its steps. The paper makes no claim on ADADP for this data set, so "
            "there is no verdict on it.",
        ),
        differences=(ADULT,),
    ),
    "b_fig10": Trained(
        title="Which candidates ever are the best",
        source=f"{MOHAPATRA}, Figure 10",
        draw=draw_how_often_each_is_best,
        sheets=(sheet_of_cells_that_are_best,),
        differences=(
            "One data set and one model; the paper sums over four data sets, two models and three noise levels.",
        ),
    ),
    "b_fig11_14": Trained(
        title="Few candidates against many, at other noise levels",
        source=f"{MOHAPATRA}, Figures 11 to 14",
        draw=draw_best_and_median_per_noise,
        differences=("The noise levels are ours: the paper's text names no numbers.", ADULT),
    ),
}
