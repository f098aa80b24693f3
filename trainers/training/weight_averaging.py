"""Exponential moving averages of the weights, which are scored and saved: post-processing, free of charge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Averages:
    """The averages [K, P] of K runs, or none if the runs declare no average.

    A step sets each to d * average + (1 - d) * weights, with d = min(ema, (1 + t) / (10 + t)) after t earlier steps. So
    early weights, which are near the initial ones, soon lose their influence. The average of points in a convex set
    stays in the set.
    Source: De, Berrada, Hayes, Smith, Balle 2022, Section 3 (parameter averaging).
    """

    def __init__(self, ema: float | None, averages: Sequence[Tensor | None]) -> None:
        import torch

        self._ema = ema
        self._initial = averages
        rows = [average for average in averages if average is not None]
        self._rows = torch.stack(rows) if rows else None

    def add(self, weights: Tensor, step: int) -> None:
        """Adds the weights [K, P] after the step with number `step`, counted from 0."""
        if self._ema is not None and self._rows is not None:
            self._rows.lerp_(weights, 1 - min(self._ema, (1 + step) / (10 + step)))

    def __iter__(self) -> Iterator[Tensor | None]:
        """The current average of each run."""
        return iter(self._initial if self._rows is None else self._rows)
