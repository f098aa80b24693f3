"""Norms of per-example gradients beside the setting that bounds them, for training records declared public."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.formatting import axis_label, method_label, number
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.statistics.run_rows import CLIP, METHOD, REGULARIZER

QUANTILES = ("gradient_norm_q10", "gradient_norm_q50", "gradient_norm_q90")
SHORTENED = "shortened"
MEASURED = (*QUANTILES, SHORTENED)

ALMOST_ALL, HARDLY_ANY = 0.9, 0.1
"""Shares of the gradients from which on a bound always counts, and up to which it hardly ever does."""


def gradient_norms(sweep: Sweep) -> Exhibit | None:
    """Quantiles of the norms at the last measurement, by method and bound; None if no run measured any."""
    seen = _last_measured(sweep)
    rows = [row for setting in (CLIP, REGULARIZER) for row in _rows(seen, setting)]
    if not rows:
        return None
    return Exhibit(
        key="gradient-norms",
        title="Norms of gradients",
        note="At the last measurement, for training records that were declared public: the norms that 10, 50 and 90 % "
        "of the per-example gradients stay below, and the share of the gradients that the bound shortens; each the "
        "median over the runs of the row. Lay the axis of a bound around these norms.",
        source=RESULTS,
        findings=tuple(_findings(seen)),
        sheets=(
            Sheet(
                caption="Norms of per-example gradients, by the bound",
                columns=("method", "bound", "runs", "10 %", "50 %", "90 %", "shortened"),
                rows=tuple(rows),
            ),
        ),
    )


def _last_measured(sweep: Sweep) -> pd.DataFrame:
    """The runs that measured norms, each with its last measurement beside its row."""
    curves = {trial: result.curator.get("curve", ()) for trial, result in sweep.results.items()}
    last = {trial: looks[-1] for trial, looks in curves.items() if looks and looks[-1].get(QUANTILES[0]) is not None}
    table = sweep.table[sweep.table["trial"].isin(last)]
    measured = {name: [last[trial][name] for trial in table["trial"]] for name in MEASURED}
    return table.assign(**measured)


def _by_bound(seen: pd.DataFrame, setting: str) -> Iterator[tuple[str, float, Mapping[str, float]]]:
    """Each method and value of the setting, with the medians over its runs."""
    if setting not in seen:
        return
    for (method, bound), runs in seen[seen[setting].notna()].groupby([METHOD, setting], sort=False):
        medians = {name: float(runs[name].median()) for name in MEASURED}
        yield str(method), float(str(bound)), medians | {"runs": len(runs)}


def _rows(seen: pd.DataFrame, setting: str) -> Iterator[tuple[Item, ...]]:
    for method, bound, medians in _by_bound(seen, setting):
        yield (
            Item(text=method_label(method)),
            Item(text=f"{axis_label(setting)} {number(bound)}", key=bound),
            Item(text=f"{medians['runs']:.0f}", key=medians["runs"]),
            *(Item(text=f"{medians[name]:.3g}", key=medians[name]) for name in QUANTILES),
            Item(text=f"{medians[SHORTENED]:.0%}", key=medians[SHORTENED]),
        )


def _findings(seen: pd.DataFrame) -> Iterator[str]:
    """Which clip norms always bind, and which hardly do; a regularizer shortens by its nature."""
    for method, runs in seen.groupby(METHOD, sort=False):
        shares = {bound: medians[SHORTENED] for _, bound, medians in _by_bound(runs, CLIP)}
        always = [number(bound) for bound, share in shares.items() if share >= ALMOST_ALL]
        hardly = [number(bound) for bound, share in shares.items() if share <= HARDLY_ANY]
        if always:
            yield (
                f"{method_label(str(method))}: clip_norm {', '.join(always)} shortens at least {ALMOST_ALL:.0%} of the "
                "gradients: there the product lr x clip_norm counts, not each alone."
            )
        if hardly:
            yield (
                f"{method_label(str(method))}: clip_norm {', '.join(hardly)} shortens at most {HARDLY_ANY:.0%} of the "
                "gradients: a larger one would add noise and little else."
            )
