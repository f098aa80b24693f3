"""Yang et al. 2022, Figure 3: heatmaps of DP-NSGD over lr x regularizer and of DP-SGD over lr x clip norm."""

from __future__ import annotations

from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction import tuning_claims
from dpsweep.reports.reproduction.diagonal_claims import follows_product
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet
from dpsweep.reports.reproduction.paired_heatmaps import heatmaps
from dpsweep.reports.reproduction.tables.one_run import PRINTED
from dpsweep.reports.reproduction.training import ACCOUNT, costs


def make(sweep: Sweep) -> Reproduction:
    """One map per method and noise multiplier, as on the sweep's page."""
    return Reproduction(
        title="What DP-NSGD and DP-SGD ask to be tuned",
        source="Yang, Zhang, Chen, Liu 2022, Figure 3",
        drawings=(heatmaps(sweep),),
        findings=(
            tuning_claims.flat_in_regularizer(sweep.table),
            follows_product(sweep.table),
            tuning_claims.close(
                sweep.table,
                ("dpnsgd", "dpsgd"),
                "At their best, DP-NSGD and DP-SGD reach about the same accuracy.",
            ),
        ),
        sheets=(
            costs(sweep),
            sheet(
                "Epsilon of one run as the paper prints it, at full scale",
                ("noise multiplier", "epsilon"),
                list(PRINTED.items()),
            ),
        ),
        notes=(ACCOUNT,),
    )


FIGURE = Trained(experiment="a_fig3", make=make)
