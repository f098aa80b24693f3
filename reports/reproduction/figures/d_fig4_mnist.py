"""Yu, Zhang, Chen 2019, Figure 4, the panel of MNIST."""

from __future__ import annotations

from dpsweep.reports.reproduction.figures.d_fig4 import panel
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results.differences import OUR_LENGTHS
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """One curve per method."""
    return panel(results, "MNIST", "Covertype, is `d_fig4`.", (OUR_LENGTHS,))


FIGURE = Trained(experiment="d_fig4_mnist", make=make)
