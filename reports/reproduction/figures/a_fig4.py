"""Yang et al. 2022, Figure 4: DP-NSGD over lr x regularizer and DP-SGD over lr x clip norm, sentences."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.paired_heatmaps import make as pair


def make(sweep: Sweep) -> Reproduction:
    """One map per method."""
    return pair(
        sweep,
        normalized="dpnsgd",
        clipped="dpsgd",
        source="Yang, Zhang, Chen, Liu 2022, Figure 4",
        note="The paper fine-tunes RoBERTa-base with frozen embeddings; this is scale=full here.",
    )


FIGURE = Trained(experiment="a_fig4", make=make)
