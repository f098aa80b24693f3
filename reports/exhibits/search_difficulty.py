"""Difficulty of a search: the share of points with nearly the best score, and the best score of a few random points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.score_scale import PERCENT, ScoreScale
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.content.tables import Cell, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Boxes, Chart, Curve
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.statistics.point_scores import (
    point_scores,
    weighted_mean_of_ordered_scores,
    weights_of_best,
    weights_of_median,
    weights_of_worst,
)

NEAR = (0.01, 0.02)
"""Distances from the best score within which points are counted, as shares of the largest number."""

FEW = 4
TAILS = (0.025, 0.975)
LEAST = 12
"""Smallest number of finished points at which a method's scores are shown as a distribution."""


@dataclass(frozen=True, kw_only=True)
class Subset:
    """The best score of `size` randomly drawn points: its mean and its central 95 % interval."""

    size: int
    mean: float
    low: float
    high: float


def search_difficulty_exhibit(table: pd.DataFrame, measure: str, scale: ScoreScale = PERCENT) -> Exhibit | None:
    """The difficulty for every method with enough finished points; None without one.

    `measure` names the score, and `scale` says it.
    """
    scores = {
        str(method): _finished_scores_best_first(rows)
        for method, rows in table.groupby("method", sort=False)
        if len(_finished_scores_best_first(rows)) >= LEAST
    }
    if not scores:
        return None
    best = max(own[0] for own in scores.values())
    subsets_by_method = {method: [*best_scores_of_random_subsets(own)] for method, own in scores.items()}
    return Exhibit(
        key="ease",
        title="How much the scores of the points differ",
        note="Left: all finished points from the best down. Middle: their quartiles and extremes. Right: the best "
        "of a number of points drawn at random from those that ran: the mean, and the range of 95 of 100 draws. The "
        "largest of many noisy scores is too large, so the table gives the best, median and worst with the part that "
        "noise explains taken off, and their 95 % intervals; a dash stands for an unknown error.",
        source=RESULTS,
        drawings=(_score_distribution_picture(scores, subsets_by_method, measure, scale),),
        sheets=(_difficulty_sheet(table, scores, subsets_by_method, best, scale),),
    )


def best_scores_of_random_subsets(scores: Sequence[float]) -> Iterator[Subset]:
    """The exact result for every number of points, from the number of subsets with each score as their best.

    `scores` are in descending order. *Source*: the rank of the maximum of a sample without replacement has the
    distribution function C(i, k) / C(n, k), and C(i, k + 1) / C(n, k + 1) is that times (i - k) / (n - k).

    >>> [round(one.mean, 3) for one in best_scores_of_random_subsets([1.0, 0.5, 0.0])]
    [0.5, 0.833, 1.0]
    """
    ranked = np.sort(np.asarray(scores, dtype=float))
    points, ranks = len(ranked), np.arange(1, len(ranked) + 1)
    below = ranks / points
    for size in range(1, points + 1):
        chance = np.diff(below, prepend=0.0)
        low, high = (ranked[int(np.searchsorted(below, tail - 1e-12))] for tail in TAILS)
        yield Subset(size=size, mean=float(chance @ ranked), low=float(low), high=float(high))
        below = below * (np.maximum(ranks - size, 0) / max(points - size, 1))


def _finished_scores_best_first(rows: pd.DataFrame) -> list[float]:
    finished = rows.loc[rows["state"] == State.FINISHED, "accuracy"].dropna()
    return sorted((float(score) for score in finished), reverse=True)


def _score_distribution_picture(
    scores: dict[str, list[float]], subsets_by_method: dict[str, list[Subset]], measure: str, scale: ScoreScale
) -> Drawing:
    label = scale.heading(measure)
    ranked = Chart(
        title="All points, best first",
        x_label="share of the points, %",
        y_label=label,
        curves=tuple(
            Curve(
                label=method_label(method),
                x=tuple(100 * (place + 1) / len(own) for place in range(len(own))),
                y=tuple(map(scale.drawn, own)),
            )
            for method, own in scores.items()
        ),
    )
    spread = Boxes(
        title="Spread",
        y_label=label,
        groups=tuple((method_label(method), tuple(map(scale.drawn, own))) for method, own in scores.items()),
    )
    few = Chart(
        title="Best of a random subset",
        x_label="points drawn",
        y_label=label,
        curves=tuple(
            Curve(
                label=method_label(method),
                x=tuple(one.size for one in own),
                y=tuple(scale.drawn(one.mean) for one in own),
                band=tuple((scale.drawn(one.low), scale.drawn(one.high)) for one in own),
            )
            for method, own in subsets_by_method.items()
        ),
    )
    alt = "Scores of all finished points in descending order, their quartiles, and the best of a random few, by method."
    return charts.draw_charts("ease", alt, ranked, spread, few)


def _difficulty_sheet(
    table: pd.DataFrame,
    scores: dict[str, list[float]],
    subsets_by_method: dict[str, list[Subset]],
    best: float,
    scale: ScoreScale,
) -> Sheet:
    near_best = [near * scale.largest_number for near in NEAR]

    def row_of_method(method: str) -> Iterator[Cell]:
        own = scores[method]
        few = subsets_by_method[method][min(FEW, len(own)) - 1]
        yield method_label(method)
        yield str(len(own)), len(own)
        finished = table[(table["method"] == method) & (table["state"] == State.FINISHED)]
        for weights in (weights_of_best, weights_of_median, weights_of_worst):
            estimate = weighted_mean_of_ordered_scores(point_scores(finished), weights).estimate("")
            ends = scale.interval_text(estimate.low, estimate.high) if estimate.has_interval else "\N{EN DASH}"
            yield f"{scale.text(estimate.value)} ({ends})", scale.number(estimate.value)
        for near in near_best:
            share = sum(abs(scale.drawn(best) - scale.drawn(score)) <= near + 1e-10 for score in own) / len(own)
            yield f"{share:.0%}", share
        spread = " to ".join(map(scale.text, sorted((few.low, few.high), key=scale.drawn)))
        yield f"{scale.text(few.mean)} ({spread})", scale.number(few.mean)

    columns = (
        *("method", "points", "best", "median", "worst"),
        *(f"within {near:g} of the best of all" for near in near_best),
        f"best of {FEW} at random, mean and 95 % of draws",
    )
    return Sheet.from_cells(f"Scores of the finished points, {scale.in_words}", columns, map(row_of_method, scores))
