"""Yang et al. 2022, Figure 3: heatmaps of DP-NSGD over lr x regularizer and of DP-SGD over lr x clip norm."""

from __future__ import annotations

from dataclasses import replace

from dpsweep.reports.reproduction import tuning_claims
from dpsweep.reports.reproduction.diagonal_claims import follows_product
from dpsweep.reports.reproduction.finding import Reproduction, Trained, sheet
from dpsweep.reports.reproduction.paired_heatmaps import heatmaps
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.reproduction.tables.one_run import PRINTED
from dpsweep.reports.reproduction.training import ACCOUNT, costs


def make(results: SearchResults) -> Reproduction:
    """One map per method and noise multiplier, for CIFAR-10 and ResNet20."""
    whole = panel(results, "CIFAR-10", ())
    caption = "Epsilon of one run as the paper prints it, at full scale"
    printed = sheet(caption, ("noise multiplier", "epsilon"), list(PRINTED.items()))
    return replace(whole, sheets=(*whole.sheets, printed))


def panel(results: SearchResults, data: str, differences: tuple[str, ...]) -> Reproduction:
    """One map per method and noise multiplier, as on a sweep's page."""
    return Reproduction(
        title="What DP-NSGD and DP-SGD ask to be tuned",
        source=f"Yang, Zhang, Chen, Liu 2022, Figure 3, {data}",
        drawings=(heatmaps(results),),
        findings=(
            tuning_claims.flat_in_regularizer(results.table),
            follows_product(results.table),
            tuning_claims.close(
                results.table,
                ("dpnsgd", "dpsgd"),
                "At their best, DP-NSGD and DP-SGD reach about the same accuracy.",
            ),
        ),
        sheets=(costs(results),),
        notes=(ACCOUNT,),
        differences=differences,
    )


FIGURE = Trained(experiment="a_fig3", make=make)
