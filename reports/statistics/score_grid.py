"""A method's mean scores over a full grid of learning rates and of another setting, such as its clip norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpsweep.reports.statistics.point_scores import PointScores, Values, point_scores
from dpsweep.reports.statistics.run_rows import LR


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreGrid:
    """Mean scores by setting and learning rate; `places` [settings, rates] are the points' places in `points`."""

    rates: Values
    settings: Values
    places: NDArray[np.int64]
    points: PointScores

    @property
    def means(self) -> Values:
        """The mean scores [settings, rates]."""
        return np.asarray(self.points.means[self.places])

    @property
    def errors(self) -> Values:
        """The standard errors of the means [settings, rates]."""
        return np.asarray(self.points.errors[self.places])

    @property
    def draws(self) -> Values:
        """Bootstrap draws of the means [draws, settings, rates]."""
        return np.asarray(self.points.draws[:, self.places])


def score_grid(rows: pd.DataFrame, key: str) -> ScoreGrid | None:
    """The grid over the values of `key` and of the learning rate; None if points are missing, or an axis is short."""
    if not {LR, key} <= set(rows.columns) or rows[[LR, key]].isna().any(axis=None) or rows.empty:
        return None
    planned, points = rows[[key, LR]].drop_duplicates(), point_scores(rows)
    settings, rates = (np.unique(points.settings[name].to_numpy(dtype=float)) for name in (key, LR))
    if len(planned) != len(points.means) or len(points.means) != len(settings) * len(rates):
        return None
    if len(settings) < 2 or len(rates) < 3:
        return None
    places = np.lexsort((points.settings[LR].to_numpy(dtype=float), points.settings[key].to_numpy(dtype=float)))
    return ScoreGrid(rates=rates, settings=settings, places=places.reshape(len(settings), len(rates)), points=points)
