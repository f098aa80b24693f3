"""Yang et al. 2022, Figure 5: DP-NAdam over lr x regularizer and DP-Adam over lr x clip norm, sentences."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.paired_heatmaps import make as pair


def make(sweep: Sweep) -> Reproduction:
    """One map per method."""
    return pair(
        sweep,
        normalized="dpnadam",
        clipped="dpadam",
        source="Yang, Zhang, Chen, Liu 2022, Figure 5",
        note="The paper makes no claim on these maps: the claims here are those of its Figure 4, for the other two "
        "methods. It fine-tunes RoBERTa-base with frozen embeddings; this is scale=full here.",
    )


FIGURE = Trained(experiment="a_fig5", make=make)
