"""Mohapatra et al. 2022, Figures 4 and 5: DP-SGD and DP-Adam over learning rates and clip norms on ENRON."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.loss_maps import make as landscape


def make(sweep: Sweep) -> Reproduction:
    """Both maps, for mails."""
    return landscape(
        sweep,
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figures 4 and 5",
        cap=1.0,
        measure="log10 of the share of misclassified mails",
        note="The paper draws the training loss; these maps show the share of misclassified held-out mails, with "
        "noise on its count.",
    )


FIGURE = Trained(experiment="b_fig4_5", make=make)
