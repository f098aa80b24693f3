"""Mohapatra et al. 2022, Figure 8: best and median candidates of three adaptive methods over training."""

from __future__ import annotations

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.figures.charts import Chart, Curve, charts
from dpsweep.reports.reproduction.default_claims import alongside
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results.differences import ADULT
from dpsweep.reports.reproduction.results.looks import at_lengths, look_rows
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.reproduction.training import ACCOUNT, costs
from dpsweep.reports.statistics.point_scores import point_scores
from dpsweep.reports.statistics.run_rows import STEPS

METHODS = ("dpadam", "adadp", "dpadamwosm")


def make(results: SearchResults) -> Reproduction:
    """Two curves per method."""
    looks = look_rows(results)
    table = point_scores(looks).table
    grouped = table.groupby(["method", STEPS])["score"]
    kinds = {"best": grouped.max(), "median": grouped.median()}
    return Reproduction(
        title="Adam without second moments",
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figure 8",
        drawings=(
            charts(
                "figure",
                "Best and median score of three methods over the number of steps.",
                (
                    Chart(
                        title="Over the clip norms of Table 2",
                        x_label="steps",
                        y_label=results.quality,
                        curves=tuple(
                            Curve(
                                label=f"{method_label(method)}, {kind}",
                                x=tuple(map(float, values[method].index)),
                                y=tuple(values[method]),
                            )
                            for method in METHODS
                            for kind, values in kinds.items()
                        ),
                    ),
                ),
            ),
        ),
        findings=(alongside(at_lengths(looks), "dpadam", "dpadamwosm"),),
        sheets=(costs(results),),
        notes=(
            "An iteration of ADADP is two of its steps. The paper makes no claim on ADADP for this data set, so "
            "there is no verdict on it.",
            ACCOUNT,
        ),
        differences=(ADULT,),
    )


FIGURE = Trained(experiment="b_fig8", make=make)
