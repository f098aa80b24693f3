"""Mohapatra et al. 2022, Figures 4 and 5: DP-SGD and DP-Adam over learning rates and clip norms on ENRON."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.loss_maps import make as landscape


def make(sweep: Sweep) -> Reproduction:
    """Of mails."""
    return landscape(
        sweep,
        source="Mohapatra, Sasy, He, Kamath, Thakkar 2022, Figures 4 and 5",
        cap=1.0,
        measure="log10 of the share of mails that are told wrongly",
        note="The paper draws the training loss; here it is the share of held-out mails that are told wrongly, with "
        "the noise of its count.",
    )


FIGURE = Trained(experiment="b_fig4_5", make=make)
