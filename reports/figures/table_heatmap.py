"""Heatmaps as matplotlib figures for programs and notebooks, of a sweep's panels or of any table of results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from io import BytesIO

import pandas as pd
from matplotlib.figure import Figure

from dpsweep.accounting.errors import BadInput
from dpsweep.reports.content.panels import MapPanel, arrange, clipped, scale
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.figures.drawing_settings import own_settings
from dpsweep.reports.figures.heatmap import STYLE, figure

SCREEN_DPI = 150
"""Pixels per inch in a notebook: figures have the size that they have in a paper."""

METHOD, SCORE, NOISE = "method", "accuracy", "noise_multiplier"
IN_NOTEBOOKS = "_repr_png_"
"""IPython's name of the method that shows a value as a picture; it has one for figures only after pyplot was used."""


def drawn(panels: Sequence[MapPanel], measure: str) -> Figure:
    """The panels as one figure on one colour scale, which is labelled with `measure`, in percent."""
    panels = clipped(panels)
    with own_settings(STYLE):
        map_of_scores = figure(panels, scale(panels), f"{measure}, %")
    setattr(map_of_scores, IN_NOTEBOOKS, partial(_png, map_of_scores))
    return map_of_scores


def _png(map_of_scores: Figure) -> bytes:
    """The figure as a PNG file."""
    content = BytesIO()
    with own_settings(STYLE):
        map_of_scores.savefig(content, format="png", dpi=SCREEN_DPI, bbox_inches="tight")
    return content.getvalue()


def heatmap(table: pd.DataFrame, axes: Sequence[str], *, score: str = SCORE) -> Figure:
    """A map of results from elsewhere: a row of `table` for each run, a column for each hyperparameter in `axes`.

    The column `score` holds shares of one; a score that is missing or not finite is a run that diverged. Columns named
    `score` with `_low` and `_high` are the ends of its interval, `method` gives each method a panel of its own, and
    `noise_multiplier` each noise. Rows with equal hyperparameters are shown as their mean. Raises `BadInput` for a
    table without such columns or with scores outside [0, 1].
    """
    missing = [name for name in (*axes, score) if name not in table]
    if missing or not axes:
        raise BadInput(
            f"Expected columns {', '.join(missing) or 'for axes'} in the table; it has {', '.join(map(str, table))}."
        )
    scores = pd.to_numeric(table[score], errors="coerce")
    outside = scores[(scores < 0) | (scores > 1)]
    if not outside.empty:
        raise BadInput(f"Expected {score}={outside.iloc[0]:g} to be a share of one, between 0 and 1.")
    columns = {
        METHOD: table.get(METHOD, pd.Series("runs", index=table.index)),
        NOISE: table.get(NOISE),
        "state": scores.notna().map({True: State.FINISHED, False: State.DIVERGED}),
        SCORE: scores,
        f"{SCORE}_low": table.get(f"{score}_low"),
        f"{SCORE}_high": table.get(f"{score}_high"),
        **{axis: table[axis] for axis in axes if axis not in (METHOD, NOISE)},
    }
    rows = pd.DataFrame(columns, index=table.index).astype(object).reset_index(drop=True)
    return drawn(arrange(rows.where(rows.notna(), None), [axis for axis in axes if axis != METHOD]), score)
