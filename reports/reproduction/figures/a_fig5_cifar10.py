"""Yang et al. 2022, Figure 5, on CIFAR-10 with a linear model of frozen features."""

from __future__ import annotations

from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.paired_heatmaps import make as pair
from dpsweep.reports.reproduction.results.differences import FEATURES, NO_CLAIMS, OTHER_RATES, SAMPLER
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """One map per method and noise multiplier."""
    return pair(
        results,
        normalized="dpnadam",
        clipped="dpadam",
        data="CIFAR-10",
        source="Yang, Zhang, Chen, Liu 2022, Figure 5",
        differences=(FEATURES, OTHER_RATES, SAMPLER, NO_CLAIMS),
    )


FIGURE = Trained(experiment="a_fig5_cifar10", make=make)
