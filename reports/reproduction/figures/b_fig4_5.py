"""Mohapatra et al. 2022, Figures 4 and 5: DP-SGD and DP-Adam over learning rates and clip norms on ENRON."""

from __future__ import annotations

from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.loss_maps import make as landscape
from dpsweep.reports.reproduction.results.differences import OUR_SETTING
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """Both maps, for mails."""
    return landscape(
        results,
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figures 4 and 5",
        measure="log10 of the training loss",
        difference=OUR_SETTING,
    )


FIGURE = Trained(experiment="b_fig4_5", make=make)
