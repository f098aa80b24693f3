"""Averages of the weights over the steps, which are what is scored and kept: post-processing, free of charge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Averages:
    """The averages [K, P] of K runs side by side, or none where the runs want none.

    A step makes each d * average + (1 - d) * weights, d = min(ema, (1 + t) / (10 + t)) after t earlier steps: early
    weights, which have hardly left their start, soon count for nothing. A mean of points of a convex set lies in it.
    Source: De, Berrada, Hayes, Smith, Balle 2022, Section 3 (parameter averaging).
    """

    def __init__(self, ema: float | None, averages: Sequence[Tensor | None]) -> None:
        import torch

        self._ema = ema
        self._kept = averages
        wanted = [average for average in averages if average is not None]
        self._rows = torch.stack(wanted) if wanted else None

    def add(self, weights: Tensor, step: int) -> None:
        """Counts these weights [K, P], which have `step` steps behind them but for the last."""
        if self._ema is not None and self._rows is not None:
            self._rows.lerp_(weights, 1 - min(self._ema, (1 + step) / (10 + step)))

    def __iter__(self) -> Iterator[Tensor | None]:
        """Each run's own, as it stands."""
        return iter(self._kept if self._rows is None else self._rows)
