"""Yang et al. 2022, Figure 5: DP-NAdam over lr x regularizer and DP-Adam over lr x clip norm, sentences."""

from __future__ import annotations

from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.paired_heatmaps import make as pair
from dpsweep.reports.reproduction.results.differences import NO_CLAIMS
from dpsweep.reports.reproduction.results.search_results import SearchResults


def make(results: SearchResults) -> Reproduction:
    """One map per method."""
    return pair(
        results,
        normalized="dpnadam",
        clipped="dpadam",
        data="SST-2",
        source="Yang, Zhang, Chen, Liu 2022, Figure 5",
        differences=(NO_CLAIMS, "The paper fine-tunes RoBERTa-base with frozen embeddings; this is scale=full here."),
    )


FIGURE = Trained(experiment="a_fig5", make=make)
