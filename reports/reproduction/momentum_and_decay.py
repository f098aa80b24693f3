"""DP-SGD with momentum and with a falling clip norm, each trained until its budget is spent; shared by two figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from dpsweep.reports.content.formatting import number
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.figures.charts import Chart, Curve, Drawing, charts
from dpsweep.reports.figures.ridge import scores
from dpsweep.reports.reproduction.claims import APART, points
from dpsweep.reports.reproduction.finding import Finding

LEAST = "bounds.least"
PLAIN, MOMENTUM, FALLING, BOTH = "DP-SGD", "momentum", "falling clip norm", "momentum and falling clip norm"
_METHODS = {
    ("dpsgd", False): PLAIN,
    ("dpmomentum", False): MOMENTUM,
    ("dpsgd", True): FALLING,
    ("dpmomentum", True): BOTH,
}

Scores = Mapping[float, float]
"""A method's best score at each noise multiplier."""


def runs(sweep: Sweep) -> pd.DataFrame:
    """A row for each run: its method, its noise multiplier, its planned number of steps, and its score."""
    steps = {trial.id: trial.config["steps"] for trial in sweep.plan.trials}
    table = sweep.table
    kinds = zip(table["method"], table[LEAST].astype(float) < 1, strict=True)
    return pd.DataFrame(
        {
            "method": [_METHODS[method, falls] for method, falls in kinds],
            "noise": table["noise_multiplier"].astype(float),
            "steps": [steps[trial] for trial in table["trial"]],
            "score": scores(table),
        }
    )


def picture(rows: pd.DataFrame, quality: str) -> Drawing:
    """Scores over the number of steps that the budget allows, a curve per method."""
    present = [method for method in _METHODS.values() if (rows["method"] == method).any()]
    return charts(
        "figure",
        "The score over the number of steps that one run's budget allows, a curve per method.",
        (
            Chart(
                title="Until the budget is spent",
                x_label="steps",
                y_label=quality,
                curves=tuple(_curve(rows[rows["method"] == method], method) for method in present),
                log_x=True,
            ),
        ),
    )


def best(rows: pd.DataFrame, method: str) -> Scores:
    """The method's best score at each noise multiplier, in ascending order of noise and so of steps."""
    highest = rows[rows["method"] == method].groupby("noise")["score"].max()
    return {float(str(noise)): float(score) for noise, score in highest.sort_index().items()}


def better(rows: pd.DataFrame, methods: Sequence[str], claim: str) -> Finding:
    """Each of the methods has a better score than DP-SGD at every noise multiplier."""
    plain = best(rows, PLAIN)
    gaps = {method: [score - plain[noise] for noise, score in best(rows, method).items()] for method in methods}
    texts = [f"{method} {', '.join(points(gap) for gap in gaps[method])}" for method in methods]
    noises = ", ".join(f"{number(noise)} ({score:.1%})" for noise, score in plain.items())
    return Finding(
        claim=claim,
        criterion=f"at every noise multiplier the score is at least {points(APART)} above DP-SGD's",
        numbers=f"above DP-SGD at noise multipliers {noises}: {'; '.join(texts)}",
        holds=all(gaps.values()) and min(gap for values in gaps.values() for gap in values) >= APART,
    )


def _curve(rows: pd.DataFrame, method: str) -> Curve:
    ordered = rows.sort_values("steps")
    return Curve(label=method, x=tuple(map(float, ordered["steps"])), y=tuple(ordered["score"]))
