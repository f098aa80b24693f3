"""Yang et al. 2022, what its theorems say of learning rates, clip norms and sizes of batches: searches of our own."""

from __future__ import annotations

from functools import partial

import pandas as pd

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.figures.charts import Chart, Curve, Map, draw_charts, draw_maps
from dpsweep.reports.reproduction.figures.a_fig3 import FEATURES
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.rate_claims import BATCH, NOISE_OF_MEAN, rows_with_noise_of_mean
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import CLIP, LR, METHOD, NOISE, point_scores, rows_of_method

NO_FIGURE = "The paper has theorems and no such figure: the whole search is ours."
BEST_RATES = "Each point is at its best learning rate."


def reproduction_of_rates(
    results: SearchResults, *, key: str, axis: str, title: str, source: str, differences: tuple[str, ...]
) -> Reproduction:
    """A map of mean scores over learning rate and `key` for each method."""
    return Reproduction(
        title=title,
        source=f"Yang, Zhang, Chen, Liu 2022, {source}",
        drawing=draw_maps(
            "figure",
            f"Mean score over learning rate and {axis}.",
            results.measure,
            *(
                _map_of_mean_scores(str(method), rows, key, axis)
                for method, rows in results.table.groupby(METHOD, sort=False)
            ),
        ),
        differences=differences,
    )


def _map_of_mean_scores(method: str, rows: pd.DataFrame, key: str, axis: str) -> Map:
    scores = point_scores(rows).table.astype({LR: float, key: float})
    square = scores.pivot_table(index=key, columns=LR, values="score").sort_index().sort_index(axis=1)
    return Map.from_table(method_label(method), "lr", axis, square)


def reproduction_of_batches(results: SearchResults) -> Reproduction:
    """The best score over the size of batches, a curve for each noise on a batch's mean."""
    table = point_scores(rows_of_method(rows_with_noise_of_mean(results), "dpnsgd")).table
    best = table.groupby([NOISE_OF_MEAN, BATCH])["score"].max()
    return Reproduction(
        title="Whether the size of batches matters",
        source="Yang, Zhang, Chen, Liu 2022, Remark A.1",
        drawing=draw_charts(
            "figure",
            "The best score over the size of batches, a curve for each noise on the mean of a batch.",
            Chart(
                title="At equal noise on the mean",
                x_label="batch size",
                y_label=results.quality,
                curves=tuple(
                    Curve.from_series(f"noise {noise}", best[noise])
                    for noise in sorted(set(best.index.get_level_values(0)), key=float)
                ),
                log_x=True,
            ),
        ),
        notes=(BEST_RATES,),
        differences=(FEATURES, NO_FIGURE),
    )


FIGURES = {
    "a_rates": Trained(
        make=partial(
            reproduction_of_rates,
            key=NOISE,
            axis="noise multiplier",
            title="The best learning rate and the noise",
            source="Theorems 3.2 and 3.4",
            differences=(FEATURES, NO_FIGURE),
        )
    ),
    "a_clips": Trained(
        make=partial(
            reproduction_of_rates,
            key=CLIP,
            axis="clip norm",
            title="The best learning rate and the clip norm",
            source="Figure 3, DP-SGD, CIFAR-10",
            differences=(FEATURES, "Twelve clip norms in the range of the paper's five, and more learning rates."),
        )
    ),
    "a_batches": Trained(make=reproduction_of_batches),
}
