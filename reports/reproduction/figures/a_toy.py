"""Yang et al. 2022, Section A.1: gradients on which normalization may climb, and clipping does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsweep.reports.content.formatting import number
from dpsweep.reports.figures.charts import Chart, Curve, charts
from dpsweep.reports.reproduction.finding import Computed, Finding, Reproduction, sheet

TAU = 1.0
"""tau_0, in whose units everything is: the example has no other scale."""

REGULARIZERS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
CLIP_NORMS = (1.5, 2.0, 4.0)
NORMS = np.geomspace(1e-4, 10.0, 4001)
"""Norms of the true gradient that are tried."""


@dataclass(frozen=True, kw_only=True)
class ToyRow:
    """For one r: the bound below which the paper says the descent is negative, and the norm up to which it is."""

    regularizer: float
    stated: float
    found: float

    @property
    def holds(self) -> bool:
        """Whether it is negative wherever the paper says so."""
        return self.stated <= self.found


def descent(norm: np.ndarray, factor: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """E<grad f, h g> for true gradients of these norms, over the two gradients that may be drawn, along one line.

    g is grad f and tau_0 more with probability 1/3, and tau_0 / 2 less with probability 2/3.
    """
    longer, shorter = norm + TAU, norm - TAU / 2
    return np.asarray(norm * (factor(np.abs(longer)) * longer + 2 * factor(np.abs(shorter)) * shorter) / 3)


def normalized(norm: np.ndarray, regularizer: float) -> np.ndarray:
    """The descent of normalization."""
    return descent(norm, lambda length: 1 / (regularizer + length))


def clipped(norm: np.ndarray, clip_norm: float) -> np.ndarray:
    """The descent of clipping."""
    return descent(norm, lambda length: np.minimum(1.0, clip_norm / np.maximum(length, 1e-300)))


def row(regularizer: float) -> ToyRow:
    """The largest norm that was tried up to which the descent is negative at all norms tried, 0 where at none."""
    negative = normalized(NORMS, regularizer) < 0
    last = len(NORMS) if negative.all() else int(np.argmin(negative))
    return ToyRow(
        regularizer=regularizer, stated=TAU**2 / (10 * regularizer), found=float(NORMS[last - 1]) if last else 0.0
    )


def as_stated(rows: list[ToyRow]) -> Finding:
    """The paper's own range."""
    return Finding(
        claim="For |grad f| <= tau_0^2 / (10 r) the descent of normalization is negative.",
        criterion="for every r that was tried, it is negative at all norms tried up to that bound",
        numbers="; ".join(
            f"r = {number(one.regularizer)}: up to {one.found:.3g}, said {one.stated:.3g}" for one in rows
        ),
        holds=all(one.holds for one in rows),
    )


def somewhere(rows: list[ToyRow]) -> Finding:
    """What the example is there to show."""
    return Finding(
        claim="The function value may not even decrease along E[h g] under normalization, whatever r.",
        criterion="for every r that was tried, the descent is negative at all norms below some positive one",
        numbers=f"the smallest such norm is {min(one.found for one in rows):.3g} tau_0",
        holds=all(one.found > 0 for one in rows),
    )


def clipping() -> Finding:
    """Where clipping leaves both gradients as they are."""
    errors = {
        clip: float(np.max(np.abs(clipped(inside, clip) / inside**2 - 1)))
        for clip in CLIP_NORMS
        if (inside := NORMS[clip - TAU >= NORMS]).size
    }
    return Finding(
        claim="Under clipping the descent is |grad f|^2 as long as |grad f| <= c - tau_0.",
        criterion="at all such norms that were tried, to a relative 1e-6",
        numbers="; ".join(f"c = {number(clip)}: off by {error:.1e}" for clip, error in errors.items()),
        holds=len(errors) == len(CLIP_NORMS) and max(errors.values()) <= 1e-6,
    )


def make() -> Reproduction:
    """The descent of both over the norm of the true gradient."""
    rows, shown = [row(value) for value in REGULARIZERS], np.linspace(0.005, 0.6, 120)
    x = tuple(shown)
    return Reproduction(
        title="A toy example on which normalization may climb",
        source="Yang, Zhang, Chen, Liu 2022, Section A.1",
        drawings=(
            charts(
                "figure",
                "The expected descent of normalization and of clipping over the norm of the true gradient.",
                (
                    Chart(
                        title="Normalization",
                        x_label="|grad f| / tau_0",
                        y_label="E<grad f, h g>",
                        curves=tuple(
                            Curve(label=f"r = {number(value)}", x=x, y=tuple(normalized(shown, value)))
                            for value in REGULARIZERS[1:4]
                        ),
                    ),
                    Chart(
                        title="Clipping",
                        x_label="|grad f| / tau_0",
                        y_label="E<grad f, h g>",
                        curves=tuple(
                            Curve(label=f"c = {number(value)}", x=x, y=tuple(clipped(shown, value)))
                            for value in CLIP_NORMS
                        ),
                    ),
                ),
            ),
        ),
        findings=(as_stated(rows), somewhere(rows), clipping()),
        sheets=(
            sheet(
                "Up to which |grad f| / tau_0 the descent of normalization is negative",
                ("r / tau_0", "as the paper states it", "found"),
                [(one.regularizer, one.stated, one.found) for one in rows],
            ),
        ),
        notes=(
            "The paper's explicit formula is met below tau_0 / 2. Its bound tau_0^2 / (10 r) grows without end as r "
            "falls, while the descent turns positive before tau_0 / 2 for every r.",
        ),
    )


FIGURE = Computed(make=make)
