"""Yang et al. 2022, Figure 3, on MNIST with a small CNN."""

from __future__ import annotations

from dpsweep.reports.reproduction.figures.a_fig3 import panel
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results.differences import CNN, OTHER_RATES, SAMPLER
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """One map per method and noise multiplier."""
    return panel(results, "MNIST", (CNN, OTHER_RATES, SAMPLER))


FIGURE = Trained(experiment="a_fig3_mnist", make=make)
