"""Yang et al. 2022, Figure 5, on MNIST with a small CNN."""

from __future__ import annotations

from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.paired_heatmaps import make as pair
from dpsweep.reports.reproduction.results.differences import CNN, NO_CLAIMS, OTHER_RATES, SAMPLER
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """One map per method and noise multiplier."""
    return pair(
        results,
        normalized="dpnadam",
        clipped="dpadam",
        data="MNIST",
        source="Yang, Zhang, Chen, Liu 2022, Figure 5",
        differences=(CNN, OTHER_RATES, SAMPLER, NO_CLAIMS),
    )


FIGURE = Trained(experiment="a_fig5_mnist", make=make)
