"""Mohapatra et al. 2022, Figures 2 and 3: log losses of DP-SGD and DP-Adam over learning rates and clip norms."""

from __future__ import annotations

from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.loss_maps import make as landscape
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """Both maps, for made-up records."""
    return landscape(
        results,
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figures 2 and 3",
        measure="log10 of the mean squared error in training",
    )


FIGURE = Trained(experiment="b_fig2_3", make=make)
