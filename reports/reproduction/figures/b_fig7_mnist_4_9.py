"""Mohapatra et al. 2022, Figure 7, on MNIST's fours and nines in the place of Gisette."""

from __future__ import annotations

from dpsweep.reports.reproduction.figures.b_fig7 import panel
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results.differences import DIGITS
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """The same curves as of Adult."""
    return panel(results, DIGITS)


FIGURE = Trained(experiment="b_fig7_mnist_4_9", make=make)
