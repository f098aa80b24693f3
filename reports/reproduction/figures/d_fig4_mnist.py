"""Yu, Zhang, Chen 2019, Figure 4, the panel of MNIST."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction.figures.d_fig4 import panel
from dpsweep.reports.reproduction.finding import Reproduction, Trained


def make(sweep: Sweep) -> Reproduction:
    """One curve per method."""
    return panel(sweep, "MNIST", "Covertype is `d_fig4`.")


FIGURE = Trained(experiment="d_fig4_mnist", make=make)
