"""Yang et al. 2022, Figure 1, on MNIST with a small CNN, each value of c and r at its best learning rate."""

from __future__ import annotations

from dpsweep.reports.reproduction.figures.a_fig1 import panel
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.results.differences import CNN, OUR_VALUES
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """Two charts per method, with a curve per value."""
    return panel(results, "MNIST", (OUR_VALUES, CNN))


FIGURE = Trained(experiment="a_fig1_mnist", make=make)
