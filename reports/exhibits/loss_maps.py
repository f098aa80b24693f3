"""Maps in addition to the score map: training losses, the bounding of gradients, how often each point is the best.

The scores themselves have one map. A second one of their logarithms would show the same numbers with the opposite
order of colours; differences among good scores are seen on the first, since its scale leaves far outliers out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from dpsweep.accounting.records.plan import REPEAT
from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.panels import MapPanel, arrange
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Map

LEAST = 5
"""Smallest number of finished points for a map."""

WHITE = 0.01
"""The share of points, those with the lowest losses, drawn white. *Source*: Mohapatra et al. 2022, Figures 2 to 5."""

SMALLEST = 1e-9
TRAINING_LOSS, MEAN_FACTOR, SHORTENED = "training_loss", "mean_factor", "shortened"


def training_losses(sweep: Sweep) -> Exhibit | None:
    """Maps of the finished runs' last observed training losses, on data declared public; None with few of them."""
    losses = _last_seen(sweep, TRAINING_LOSS)
    logs = losses.where(sweep.table["state"] == State.FINISHED).map(
        lambda loss: None if loss is None or pd.isna(loss) else math.log10(max(loss, SMALLEST))
    )
    logs = logs.astype(object).where(logs.notna(), None)
    known = logs.dropna().astype(float)
    if len(known) < LEAST:
        return None
    limit = float(known.quantile(WHITE, interpolation="lower"))
    panels, measure = arrange(_with(sweep.table, logs), sweep.axes), "log10 of training loss"
    drawing = charts.maps(
        "training-losses", f"{measure} over the grid.", measure, [_map(panel, limit) for panel in panels], light="low"
    )
    return Exhibit(
        key="training-losses",
        title="Training losses",
        note="On training records, which were declared public; the lower, the lighter. A log scale shows differences "
        f"between losses that are all small or all large. White: the lowest {WHITE:.0%} of the points, at least one.",
        source=RESULTS,
        drawings=(drawing,),
        sheets=tuple(_sheet(panel, "{:.3f}") for panel in panels),
    )


def bounding(sweep: Sweep) -> Exhibit | None:
    """The effect of bounding gradients at the last look at data declared public, and the resulting step size."""
    factors, shares = _last_seen(sweep, MEAN_FACTOR), _last_seen(sweep, SHORTENED)
    if factors.notna().sum() < LEAST:
        return None
    steps = (rate and factor and rate * factor for rate, factor in zip(_rates(sweep), factors, strict=True))
    columns = {
        "log10 of mean factor": map(_log, factors),
        "share of gradients shortened": shares,
        "log10 of lr x mean factor": map(_log, steps),
    }
    maps = {
        measure: arrange(_with(sweep.table, pd.Series(list(column), dtype=object)), sweep.axes)
        for measure, column in columns.items()
    }
    return Exhibit(
        key="bounding",
        title="How gradients are bounded",
        note="At the last measurement, for training records that were declared public: the mean factor by which a "
        "gradient is multiplied before noise is added, the share of gradients that this factor shortens, and the "
        "resulting step size for the raw gradient of a method without momentum.",
        source=RESULTS,
        drawings=tuple(
            charts.maps(f"bounding-{place}", f"{measure} over the grid.", measure, [_map(panel) for panel in panels])
            for place, (measure, panels) in enumerate(maps.items(), start=1)
        ),
        sheets=tuple(
            replace(_sheet(panel, "{:.4g}"), caption=f"{measure}: {panel.name}")
            for measure, panels in maps.items()
            for panel in panels
        ),
    )


def _last_seen(sweep: Sweep, name: str) -> pd.Series[Any]:
    """The value of this quantity at each run's last look, None for runs without looks."""
    curves = {trial: result.curator.get("curve", ()) for trial, result in sweep.results.items()}
    last = {trial: seen[-1].get(name) for trial, seen in curves.items() if seen}
    return pd.Series([last.get(trial) for trial in sweep.table["trial"]], dtype=object)


def _rates(sweep: Sweep) -> list[float | None]:
    trainers = {run.trial.id: run.trial.config.get("trainer", {}) for run in sweep.runs.rows}
    return [trainers[trial].get("lr") for trial in sweep.table["trial"]]


def _log(value: float | None) -> float | None:
    return math.log10(value) if value else None


def how_often_best(sweep: Sweep) -> Exhibit | None:
    """The share of repetitions in which each point has its method's best score; None without repetitions."""
    table = sweep.table
    if REPEAT not in table or table[REPEAT].nunique() < 2:
        return None
    finished = table[(table["state"] == State.FINISHED) & table["accuracy"].notna()]
    if finished.empty:
        return None
    shares = pd.Series(0.0, index=table.index)  # unfinished points did not win
    for _, rows in finished.groupby(["method", "noise_multiplier", REPEAT], sort=False, dropna=False):
        top = rows["accuracy"] == rows["accuracy"].max()
        shares[rows.index] = top / top.sum()
    panels = arrange(_with(table, shares.astype(object)).assign(state=State.FINISHED), sweep.axes)
    return Exhibit(
        key="how-often-best",
        title="How often the best",
        note="The share of the repetitions in which a point has the best score of its method at its noise; equal "
        "scores share. A point that is best once by chance is seldom best again.",
        source=RESULTS,
        drawings=(
            charts.maps(
                "how-often-best",
                "How often each point is the best.",
                "share of repetitions, %",
                [_map(panel, factor=100) for panel in panels],
            ),
        ),
        sheets=tuple(_sheet(panel, "{:.0%}") for panel in panels),
    )


def _with(table: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """The table with these values in place of the scores, and without intervals."""
    return table.assign(accuracy=values.where(values.notna(), None), accuracy_low=None, accuracy_high=None)


def _value(panel: MapPanel, row: int, column: int) -> float:
    cell = panel.cells.get((row, column))
    known = cell is not None and cell.state is State.FINISHED and cell.accuracy is not None
    return float(cell.accuracy) if known and cell is not None and cell.accuracy is not None else math.nan


def _values(panel: MapPanel) -> Sequence[Sequence[float]]:
    columns = range(len(panel.across.values))
    return [[_value(panel, row, column) for column in columns] for row in range(len(panel.down.values))]


def _map(panel: MapPanel, limit: float = -math.inf, factor: float = 1) -> Map:
    """A panel as a map; cells with a value of at most `limit` are white."""
    values = _values(panel)
    return Map(
        title=panel.name,
        x_label=panel.across.label,
        y_label=panel.down.label,
        columns=panel.across.ticks,
        rows=panel.down.ticks,
        values=tuple(tuple(factor * value for value in line) for line in values),
        white=frozenset(
            (row, column) for row, line in enumerate(values) for column, value in enumerate(line) if value <= limit
        ),
    )


def _sheet(panel: MapPanel, form: str) -> Sheet:
    """A panel's numbers in the same layout as in the picture."""
    rows = [
        (
            Item(text=panel.down.ticks[row] or panel.label),
            *(Item(text="") if math.isnan(value) else Item(text=form.format(value), key=value) for value in line),
        )
        for row, line in reversed(list(enumerate(_values(panel))))
    ]
    across = [f"{panel.across.label} {tick}".strip() for tick in panel.across.ticks]
    return Sheet(caption=panel.name, columns=(panel.down.label or panel.label, *across), rows=tuple(rows))
