"""Maps besides that of the scores: their losses on a logarithmic scale, and which points are how often the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from reports import charts
from reports.charts import Map
from reports.exhibits.exhibit import Exhibit
from reports.facts import RESULTS
from reports.grid import REPEAT, Panel, arrange
from reports.sheets import Item, Sheet
from reports.table import State, Sweep

LEAST = 5
"""Finished points of a map that is more than its table."""

WHITE = 0.01
"""The share of the lowest losses that is drawn white. *Source*: Mohapatra et al. 2022, Figures 2 to 5."""

SMALLEST = 1e-9
TRAINING_LOSS = "training_loss"


def log_losses(sweep: Sweep) -> Exhibit | None:
    """What the scores lack to a perfect one, on a log scale; None where too few finished."""
    cap = float(sweep.plan.trials[0].config.get("loss", {}).get("cap", 1.0))
    name = "squared error" if cap != 1 or "squared" in sweep.quality else "1 - score"
    losses = sweep.table["accuracy"].map(lambda score: None if score is None else cap * (1 - score))
    return _loss_maps(sweep, losses, key="losses", title="Losses", measure=f"log10 of {name}", records="scored records")


def training_losses(sweep: Sweep) -> Exhibit | None:
    """The last training loss of every run that was looked at, of data declared public; None where there is none."""
    curves = {trial: result.curator.get("curve", ()) for trial, result in sweep.results.items()}
    last = {trial: seen[-1].get(TRAINING_LOSS) for trial, seen in curves.items() if seen}
    losses = sweep.table["trial"].map(last.get)
    return _loss_maps(
        sweep,
        losses,
        key="training-losses",
        title="Training losses",
        measure="log10 of training loss",
        records="training records, which were declared public",
    )


def how_often_best(sweep: Sweep) -> Exhibit | None:
    """In how many of the repetitions each point has its method's best score; None where nothing was repeated."""
    table = sweep.table
    if REPEAT not in table or table[REPEAT].nunique() < 2:
        return None
    finished = table[(table["state"] == State.FINISHED) & table["accuracy"].notna()]
    if finished.empty:
        return None
    shares = pd.Series(0.0, index=table.index)  # who did not finish did not win
    for _, rows in finished.groupby(["method", "noise_multiplier", REPEAT], sort=False, dropna=False):
        top = rows["accuracy"] == rows["accuracy"].max()
        shares[rows.index] = top / top.sum()
    panels = arrange(_with(table, shares.astype(object)).assign(state=State.FINISHED), sweep.axes)
    return Exhibit(
        key="how-often-best",
        title="How often the best",
        note="In what share of the repetitions a point has the best score of its method at its noise; equals share. "
        "A point that is best once by chance is seldom so again.",
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


def _loss_maps(sweep: Sweep, losses: pd.Series, *, key: str, title: str, measure: str, records: str) -> Exhibit | None:
    """Maps of the finished runs' losses; None where too few have one."""
    logs = losses.where(sweep.table["state"] == State.FINISHED).map(
        lambda loss: None if loss is None or pd.isna(loss) else math.log10(max(loss, SMALLEST))
    )
    logs = logs.astype(object).where(logs.notna(), None)
    known = logs.dropna().astype(float)
    if len(known) < LEAST:
        return None
    limit = float(known.quantile(WHITE, interpolation="lower"))
    panels = arrange(_with(sweep.table, logs), sweep.axes)
    return Exhibit(
        key=key,
        title=title,
        note=f"Of {records}; on a log scale differences show where all scores are good, or all bad. White: the lowest "
        f"{WHITE:.0%}, at least one.",
        source=RESULTS,
        drawings=(charts.maps(key, f"{measure} over the grid.", measure, [_map(panel, limit) for panel in panels]),),
        sheets=tuple(_sheet(panel, "{:.3f}") for panel in panels),
    )


def _with(table: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """The table with these in place of the scores, and no intervals."""
    return table.assign(accuracy=values.where(values.notna(), None), accuracy_low=None, accuracy_high=None)


def _value(panel: Panel, row: int, column: int) -> float:
    cell = panel.cells.get((row, column))
    known = cell is not None and cell.state is State.FINISHED and cell.accuracy is not None
    return float(cell.accuracy) if known and cell is not None and cell.accuracy is not None else math.nan


def _values(panel: Panel) -> Sequence[Sequence[float]]:
    columns = range(len(panel.across.values))
    return [[_value(panel, row, column) for column in columns] for row in range(len(panel.down.values))]


def _map(panel: Panel, limit: float = -math.inf, factor: float = 1) -> Map:
    """A panel as a map; white where a value is at most `limit`."""
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


def _sheet(panel: Panel, form: str) -> Sheet:
    """A panel's numbers in the places they have in the picture."""
    rows = [
        (
            Item(text=panel.down.ticks[row] or panel.label),
            *(Item(text="") if math.isnan(value) else Item(text=form.format(value), key=value) for value in line),
        )
        for row, line in reversed(list(enumerate(_values(panel))))
    ]
    across = [f"{panel.across.label} {tick}".strip() for tick in panel.across.ticks]
    return Sheet(caption=panel.name, columns=(panel.down.label or panel.label, *across), rows=tuple(rows))
