"""Heatmaps of a sweep with a normalized method beside a clipped one."""

from __future__ import annotations

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.panels import arrange
from dpsweep.reports.figures.charts import Drawing
from dpsweep.reports.figures.heatmap import pictures
from dpsweep.reports.reproduction import tuning_claims as claims
from dpsweep.reports.reproduction.finding import Reproduction
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.reproduction.training import ACCOUNT, costs


def heatmaps(results: SearchResults) -> Drawing:
    """One map per method and noise multiplier, as on a sweep's page."""
    whole = pictures(arrange(results.table, results.axes), f"{results.measure}, %")[0]
    return Drawing(name="figure", alt=whole.alt, png=whole.png, svg=whole.svg, pdf=whole.pdf, failure=whole.failure)


def make(
    results: SearchResults, *, normalized: str, clipped: str, data: str, source: str, differences: tuple[str, ...]
) -> Reproduction:
    """One map per method and noise multiplier, and the test whether the normalized method is easier to tune."""
    one, other = method_label(normalized), method_label(clipped)
    return Reproduction(
        title=f"{one} and {other} on {data}",
        source=f"{source}, {data}",
        drawings=(heatmaps(results),),
        findings=(
            claims.easier(results.table, normalized, clipped),
            claims.flat_in_regularizer(results.table, normalized, clipped),
            claims.close(
                results.table, (normalized, clipped), f"At their best, {one} and {other} reach about the same accuracy."
            ),
        ),
        sheets=(costs(results),),
        notes=(ACCOUNT,),
        differences=differences,
    )
