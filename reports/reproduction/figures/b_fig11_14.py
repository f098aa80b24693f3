"""Mohapatra et al. 2022, Figures 11 to 14: what Figures 7 and 8 show, at other noise levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from dpsweep.reports.content.formatting import method_label, number
from dpsweep.reports.figures.charts import Chart, Curve, charts
from dpsweep.reports.reproduction.default_claims import alongside
from dpsweep.reports.reproduction.finding import Finding, Reproduction, Trained
from dpsweep.reports.reproduction.results.differences import ADULT
from dpsweep.reports.reproduction.results.looks import at_lengths, last_look, look_rows
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.reproduction.training import ACCOUNT, costs
from dpsweep.reports.reproduction.tuning_claims import close, few_candidates_do
from dpsweep.reports.statistics.point_scores import point_scores
from dpsweep.reports.statistics.run_rows import METHOD, NOISE, STEPS, by

ADAM, WOSM = "dpadam", "dpadamwosm"
TUNED = ("dpsgd", "dpmomentum")


def make(results: SearchResults) -> Reproduction:
    """A chart per noise level: best and median candidates over the number of steps."""
    runs = look_rows(results)
    table = point_scores(runs).table
    levels = {float(noise): rows for noise, rows in table.groupby(table[NOISE].astype(float))}
    last = last_look(runs)
    return Reproduction(
        title="Few candidates against many, at other noise levels",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figures 11 to 14",
        drawings=(
            charts(
                "figure",
                "Best and median score of five methods over the number of steps, at each noise level.",
                [_chart(noise, rows, results.quality) for noise, rows in levels.items()],
            ),
        ),
        findings=(
            close(
                last,
                (*TUNED, ADAM),
                "At every noise level, the best of DP-SGD, of DP-Momentum and of DP-Adam are close.",
            ),
            *(finding for noise, rows in by(runs, NOISE) for finding in _findings(noise, rows)),
        ),
        sheets=(costs(results),),
        notes=(ACCOUNT,),
        differences=("The noise levels are ours: the paper's text names no numbers.", ADULT),
    )


def _findings(noise: float, rows: pd.DataFrame) -> Iterator[Finding]:
    """The findings of Figures 7 and 8 at one noise level."""
    last, both = last_look(rows), at_lengths(rows[rows[METHOD].isin((ADAM, WOSM))])
    for finding in (few_candidates_do(last, TUNED, ADAM), alongside(both, ADAM, WOSM)):
        yield replace(finding, claim=f"Noise {number(noise)}: {finding.claim}", scope=f"at noise {number(noise)}")


def _chart(noise: float, rows: pd.DataFrame, quality: str) -> Chart:
    grouped = rows.groupby(["method", STEPS], sort=False)["score"]
    kinds = {"best": grouped.max(), "median": grouped.median()}
    return Chart(
        title=f"Noise multiplier {number(noise)}",
        x_label="steps",
        y_label=quality,
        curves=tuple(
            Curve(
                label=f"{method_label(method)}, {kind}",
                x=tuple(map(float, values[method].index)),
                y=tuple(values[method]),
            )
            for method in dict.fromkeys(rows["method"])
            for kind, values in kinds.items()
        ),
    )


FIGURE = Trained(experiment="b_fig11_14", make=make)
