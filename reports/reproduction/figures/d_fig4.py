"""Yu, Zhang, Chen 2019, Figure 4: DP-SGD with momentum and falling clip norm, smaller budget, replaced records."""

from __future__ import annotations

from dpsweep.reports.reproduction import momentum_and_decay as amended
from dpsweep.reports.reproduction.finding import Reproduction, Trained
from dpsweep.reports.reproduction.momentum_and_decay import BOTH
from dpsweep.reports.reproduction.results.differences import COVERTYPE, EACH_LENGTH, OUR_LENGTHS
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.reproduction.training import ACCOUNT, costs


def make(results: SearchResults) -> Reproduction:
    """The panel of Covertype."""
    return panel(results, "Covertype", "MNIST, is `d_fig4_mnist`.", (OUR_LENGTHS, COVERTYPE))


def panel(results: SearchResults, data: str, other: str, differences: tuple[str, ...]) -> Reproduction:
    """One curve per method; `other` names the file of the figure's other panel."""
    rows = amended.runs(results)
    return Reproduction(
        title="A smaller budget, for records that are replaced",
        source=f"Yu, Zhang, Chen 2019, Figure 4, {data}",
        drawings=(amended.picture(rows, results.quality),),
        findings=(
            amended.better(
                rows,
                [BOTH],
                "The amended DP-SGD is better than DP-SGD in the more restricted setting.",
            ),
        ),
        sheets=(costs(results),),
        notes=(EACH_LENGTH, f"The figure's other panel, {other}", ACCOUNT),
        differences=differences,
    )


FIGURE = Trained(experiment="d_fig4", make=make)
