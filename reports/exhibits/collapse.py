"""The scores against lr x clip_norm, a line per clip norm: where only the product counts, all fall on one curve.

Apart from its noise, a clipped step is at most lr x clip_norm long, and a normalized one at most lr. So normalized
methods are drawn against lr on the same axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from dpsweep.accounting.names.stored_classes import name_of
from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.formatting import method_label, number
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Chart, Curve
from dpsweep.reports.statistics.point_scores import point_scores
from dpsweep.reports.statistics.run_rows import CLIP, LR, METHOD, NOISE, by

NORMALIZED = {"dp_sgd": ("dp_nsgd",), "dp_momentum": (), "clipped_sgd": ("normalized_sgd",)}
"""By the tag of a clipped method whose steps are proportional to gradients: its normalized partners' tags."""

FEWEST, MOST_CLIPS = 3, 6
"""Learning rates that a line needs, and lines that a chart shows: the smallest, the largest, and some between."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CollapseLine:
    """A line of a chart: `points` has columns `step` (lr x clip_norm, or lr), `score`, `low` and `high`."""

    method: str
    chart: str
    label: str
    points: pd.DataFrame
    normalized: bool = False


def collapse(sweep: Sweep) -> Exhibit | None:
    """A picture per clipped method with a chart per noise multiplier; None without two lines in one."""
    finished = sweep.table[sweep.table["state"] == State.FINISHED]
    if not {LR, CLIP} <= set(finished.columns):
        return None
    tags = {run.trial.method: name_of(run.trial.config.get("trainer", {})) for run in sweep.runs.rows}
    charted: dict[str, list[CollapseLine]] = {}
    for noise, rows in finished.groupby(NOISE, sort=False, dropna=False):
        at = "" if rows[NOISE].isna().all() else f", noise {number(noise)}"
        for method in dict.fromkeys(rows[METHOD]):
            for line in _lines(rows, str(method), tags, at):
                charted.setdefault(line.chart, []).append(line)
    drawn = {chart: lines for chart, lines in charted.items() if len(lines) > 1}
    if not drawn:
        return None
    methods = dict.fromkeys(lines[0].method for lines in drawn.values())
    return Exhibit(
        key="collapse",
        title="Does only the product count?",
        note="The score against lr x clip_norm, a line per clip norm. Where the lines fall on one curve, only the "
        "product counts, and one axis is enough. Dashed: a normalized method against its lr, the mean over its "
        "regularizers, shaded from the worst to the best of them. Diverged runs are left out.",
        source=RESULTS,
        drawings=tuple(
            charts.charts(
                f"collapse-{place}",
                f"The score of {method_label(method)} against lr x clip_norm, a line per clip norm.",
                [_chart(chart, lines, sweep.measure) for chart, lines in drawn.items() if lines[0].method == method],
            )
            for place, method in enumerate(methods, start=1)
        ),
        sheets=tuple(_sheet(chart, lines, sweep.measure) for chart, lines in drawn.items()),
    )


def _lines(rows: pd.DataFrame, method: str, tags: dict[str, str], at: str) -> Iterator[CollapseLine]:
    """The lines of a clipped method, and those of its normalized partners."""
    if tags[method] not in NORMALIZED:
        return
    make = partial(CollapseLine, method=method, chart=method_label(method) + at)
    points = _points(rows, method)
    clips = [float(clip) for clip, own in by(points, CLIP) if own[LR].nunique() >= FEWEST]
    for clip in _some(clips):
        own = points[points[CLIP] == clip]
        yield make(
            label=f"clip_norm {number(clip)}", points=_best_by_step(own.assign(step=own[LR].astype(float) * clip))
        )
    for partner in dict.fromkeys(map(str, rows[METHOD])):
        own = _points(rows, partner) if tags[partner] in NORMALIZED[tags[method]] else points.iloc[:0]
        if clips and len(own) and own[LR].nunique() >= FEWEST:
            yield make(label=method_label(partner), points=_over_regularizers(own), normalized=True)


def _points(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """The mean score of each point of a method."""
    return point_scores(rows[rows[METHOD] == method]).table


def _best_by_step(points: pd.DataFrame) -> pd.DataFrame:
    """The best score at each product, for a method with further settings."""
    best = points.groupby("step")["score"].max().reset_index()
    return best.assign(low=best["score"], high=best["score"])


def _over_regularizers(points: pd.DataFrame) -> pd.DataFrame:
    """The mean, the smallest and the largest score over the regularizers at each learning rate."""
    over = points.assign(step=points[LR].astype(float)).groupby("step")["score"]
    return over.agg(score="mean", low="min", high="max").reset_index()


def _some(clips: Sequence[float]) -> list[float]:
    """At most `MOST_CLIPS` of the clip norms, evenly chosen."""
    places = np.unique(np.linspace(0, len(clips) - 1, min(MOST_CLIPS, len(clips))).round().astype(int))
    return [float(clips[place]) for place in places]


def _chart(title: str, lines: Sequence[CollapseLine], measure: str) -> Chart:
    return Chart(
        title=title,
        x_label="lr x clip_norm; lr of normalized methods",
        y_label=f"{measure}, %",
        curves=tuple(_curve(line) for line in lines),
        log_x=True,
    )


def _curve(line: CollapseLine) -> Curve:
    scores = 100 * line.points[["score", "low", "high"]].to_numpy(dtype=float)
    return Curve(
        label=line.label,
        x=tuple(map(float, line.points["step"])),
        y=tuple(map(float, scores[:, 0])),
        dashed=line.normalized,
        band=tuple((float(low), float(high)) for _, low, high in scores) if line.normalized else (),
    )


def _sheet(title: str, lines: Sequence[CollapseLine], measure: str) -> Sheet:
    rows = tuple(
        (
            Item(text=line.label),
            Item(text=number(float(row["step"])), key=float(row["step"])),
            Item(text=f"{100 * row['score']:.1f}", key=float(row["score"])),
        )
        for line in lines
        for row in line.points.to_dict("records")
    )
    return Sheet(caption=title, columns=("line", "lr x clip_norm, or lr", f"{measure}, %"), rows=rows)
