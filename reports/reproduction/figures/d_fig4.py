"""Yu, Zhang, Chen 2019, Figure 4: DP-SGD with momentum and falling clip norm, smaller budget, replaced records."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction import momentum_and_decay as amended
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.momentum_and_decay import BOTH
from dpsweep.reports.reproduction.training import ACCOUNT, costs


def make(sweep: Sweep) -> Reproduction:
    """The panel of Covertype."""
    return panel(sweep, "Covertype", "MNIST is `d_fig4_mnist`.")


def panel(sweep: Sweep, data: str, other: str) -> Reproduction:
    """One curve per method; `other` names the file of the figure's other panel."""
    rows = amended.runs(sweep)
    return Reproduction(
        title="A smaller budget, for records that are replaced",
        source=f"Yu, Zhang, Chen 2019, Figure 4, {data}",
        drawings=(amended.picture(rows, sweep.quality),),
        findings=(
            amended.better(rows, [BOTH], "The amended DP-SGD is better than DP-SGD in the more restricted setting."),
        ),
        sheets=(costs(sweep),),
        notes=(f"Each number of steps is a separate run. The figure's other panel, {other}", ACCOUNT),
    )


FIGURE = Trained(experiment="d_fig4", make=make)
