"""Yu, Zhang, Chen 2018, Figure 3: accuracy over training with different momentum coefficients."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.figures.charts import Chart, Curve, charts
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.looks import look_rows
from dpsweep.reports.reproduction.momentum_claims import MOMENTUM, momentum, quick_start
from dpsweep.reports.reproduction.training import ACCOUNT, costs
from dpsweep.reports.statistics.point_scores import point_scores
from dpsweep.reports.statistics.run_rows import STEPS


def make(sweep: Sweep) -> Reproduction:
    """One curve per coefficient."""
    looks = look_rows(sweep)
    table = point_scores(looks).table
    best = table.groupby([MOMENTUM, STEPS])["score"].max()
    return Reproduction(
        title="How much momentum",
        source="Yu, Zhang, Chen 2018, Figure 3",
        drawings=(
            charts(
                "figure",
                "Accuracy over the number of steps, a curve per momentum coefficient.",
                (
                    Chart(
                        title="Momentum coefficients",
                        x_label="steps",
                        y_label=sweep.quality,
                        curves=tuple(
                            Curve(
                                label=f"momentum {value:g}",
                                x=tuple(map(float, best[value].index)),
                                y=tuple(best[value]),
                            )
                            for value in sorted(set(table[MOMENTUM]))
                        ),
                    ),
                ),
            ),
        ),
        findings=(momentum(looks), quick_start(looks)),
        sheets=(costs(sweep),),
        notes=(ACCOUNT,),
    )


FIGURE = Trained(experiment="d_fig3", make=make)
