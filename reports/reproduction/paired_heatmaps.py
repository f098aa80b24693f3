"""Heatmaps of a sweep with a normalized method beside a clipped one."""

from __future__ import annotations

from dpsweep.reports.content.formatting import method_label
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.figures.charts import Drawing
from dpsweep.reports.pages.curator_page import draw
from dpsweep.reports.reproduction import tuning_claims as claims
from dpsweep.reports.reproduction.finding import Reproduction
from dpsweep.reports.reproduction.training import ACCOUNT, costs


def heatmaps(sweep: Sweep) -> Drawing:
    """One map per method and noise multiplier, as on the sweep's page."""
    whole = draw(sweep)[0]
    return Drawing(name="figure", alt=whole.alt, png=whole.png, svg=whole.svg, pdf=whole.pdf)


def make(sweep: Sweep, *, normalized: str, clipped: str, source: str, note: str) -> Reproduction:
    """Both maps on texts, and the test whether the normalized method is easier to tune."""
    one, other = method_label(normalized), method_label(clipped)
    return Reproduction(
        title=f"{one} and {other} on sentences",
        source=source,
        drawings=(heatmaps(sweep),),
        findings=(
            claims.easier(sweep.table, normalized, clipped),
            claims.flat_in_regularizer(sweep.table, normalized, clipped),
            claims.close(
                sweep.table, (normalized, clipped), f"At their best, {one} and {other} reach about the same accuracy."
            ),
        ),
        sheets=(costs(sweep),),
        notes=(note, ACCOUNT),
    )
