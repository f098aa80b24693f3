"""DP-SGD with momentum and with a falling clip norm, each trained until its budget is spent; shared by two figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from dpsweep.reports.content.formatting import number
from dpsweep.reports.figures.charts import Chart, Curve, Drawing, charts
from dpsweep.reports.reproduction.estimate_text import in_points, joined, judged, points, verdict_of
from dpsweep.reports.reproduction.finding import Finding
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.reproduction.tuning_claims import APART
from dpsweep.reports.statistics.point_scores import point_scores
from dpsweep.reports.statistics.run_rows import METHOD, NOISE, STEPS, scores
from dpsweep.reports.statistics.score_statistic import ScoreStatistic, statistic
from dpsweep.reports.statistics.score_statistic import best as highest
from dpsweep.reports.statistics.verdict import IntervalEstimate, confidence

LEAST = "clip_schedule.least"
PLAIN, MOMENTUM, FALLING, BOTH = "DP-SGD", "momentum", "falling clip norm", "momentum and falling clip norm"
TOPIC = "Momentum and a falling clip norm beat DP-SGD"
"""The claim of two figures."""

_METHODS = {
    ("dpsgd", False): PLAIN,
    ("dpmomentum", False): MOMENTUM,
    ("dpsgd", True): FALLING,
    ("dpmomentum", True): BOTH,
}

Scores = Mapping[float, ScoreStatistic]
"""A method's best score at each noise multiplier."""


def runs(results: SearchResults) -> pd.DataFrame:
    """The search's table with the figure's names of methods."""
    table = results.table
    kinds = zip(table[METHOD], table[LEAST].astype(float) < 1, strict=True)
    return table.assign(method=[_METHODS[method, falls] for method, falls in kinds])


def picture(rows: pd.DataFrame, quality: str) -> Drawing:
    """Scores over the number of steps that the budget allows, a curve per method."""
    present = [method for method in _METHODS.values() if (rows[METHOD] == method).any()]
    return charts(
        "figure",
        "The score over the number of steps that one run's budget allows, a curve per method.",
        (
            Chart(
                title="Until the budget is spent",
                x_label="steps",
                y_label=quality,
                curves=tuple(_curve(rows[rows[METHOD] == method], method) for method in present),
                log_x=True,
            ),
        ),
    )


def best(rows: pd.DataFrame, method: str) -> Scores:
    """The method's best score at each noise multiplier, ascending; errors are pooled over all runs."""
    pooled = point_scores(rows)
    noises = sorted(set(pooled.settings[NOISE][pooled.where(method=method)]))
    return {
        float(noise): statistic(pooled, highest, pooled.where(method=method, noise_multiplier=noise))
        for noise in noises
    }


def gains(rows: pd.DataFrame, method: str, level: float) -> dict[float, IntervalEstimate]:
    """How much the method's best score is above DP-SGD's at each noise multiplier."""
    plain, own = best(rows, PLAIN), best(rows, method)
    return {
        noise: (own[noise] - score).estimate(f"{method}, noise {number(noise)}:", level)
        for noise, score in plain.items()
        if noise in own
    }


def better(rows: pd.DataFrame, methods: Sequence[str], claim: str, topic: str = TOPIC) -> Finding:
    """Each of the methods has a better score than DP-SGD at every noise multiplier."""
    noises = best(rows, PLAIN)
    level = confidence(len(methods) * len(noises))
    found = [one for method in methods for one in gains(rows, method, level).values()]
    complete = len(found) == len(methods) * len(noises)
    parts = judged(found if complete else (), in_points, least=APART)
    return Finding(
        topic=topic,
        claim=claim,
        criterion=f"at every noise multiplier the score is at least {points(APART)} above DP-SGD's",
        numbers=f"above DP-SGD: {joined(found, in_points)}",
        verdict=verdict_of(parts),
        estimates=tuple(found),
        parts=parts,
    )


def _curve(rows: pd.DataFrame, method: str) -> Curve:
    means = rows.assign(score=scores(rows)).groupby(STEPS)["score"].mean().dropna().sort_index()
    return Curve(label=method, x=tuple(map(float, means.index)), y=tuple(means))
