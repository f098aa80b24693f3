"""Yang et al. 2022, Section A.1: gradients for which normalization may increase the loss and clipping does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from dpsweep.reports.content.formatting import setting_text
from dpsweep.reports.figures.charts import Chart, curves_of_columns, draw_charts
from dpsweep.reports.reproduction.figures.yang_searches import YANG
from dpsweep.reports.reproduction.finding import Computed, Finding, Reproduction, sheet_of_formatted_values
from dpsweep.reports.statistics.verdict import Verdict

_finding = partial(Finding, paper="Yang et al. 2022", where="Section A.1")

TAU = 1.0
"""tau_0, the unit of all norms: the example has no other scale."""

REGULARIZERS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
CLIP_NORMS = (1.5, 2.0, 4.0)
BRACKET = (0.3, 1.0)
"""Regularizers between which the paper's range begins to be right."""

NORMS = np.geomspace(1e-4, 10.0, 4001)
"""Norms of the true gradient at which the descent is computed."""


@dataclass(frozen=True, kw_only=True)
class ToyRow:
    """For one r: the paper's bound below which the descent is negative, and the largest norm at which it is."""

    regularizer: float
    stated: float
    computed: float

    @property
    def is_descent_negative_up_to_bound(self) -> bool:
        """Whether the descent is negative up to the paper's bound."""
        return self.stated <= self.computed


def expected_descent_for_factor(norm: np.ndarray, factor: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """E<grad f, h g> in one dimension for true gradients grad f of these norms.

    g = grad f + tau_0 with probability 1/3, and g = grad f - tau_0 / 2 with probability 2/3.
    """
    longer, shorter = norm + TAU, norm - TAU / 2
    return np.asarray(norm * (factor(np.abs(longer)) * longer + 2 * factor(np.abs(shorter)) * shorter) / 3)


def descent_of_normalization(norm: np.ndarray, regularizer: float) -> np.ndarray:
    """The descent of normalization."""
    return expected_descent_for_factor(norm, lambda length: 1 / (regularizer + length))


def descent_of_clipping(norm: np.ndarray, clip_norm: float) -> np.ndarray:
    """The descent of clipping."""
    return expected_descent_for_factor(norm, lambda length: np.minimum(1.0, clip_norm / np.maximum(length, 1e-300)))


def row_of_regularizer(regularizer: float) -> ToyRow:
    """The largest of `NORMS` up to which the descent is negative at all of them; 0 if it is nowhere negative."""
    negative = descent_of_normalization(NORMS, regularizer) < 0
    last = len(NORMS) if negative.all() else int(np.argmin(negative))
    return ToyRow(
        regularizer=regularizer, stated=TAU**2 / (10 * regularizer), computed=float(NORMS[last - 1]) if last else 0.0
    )


def regularizer_above_which_range_holds() -> float:
    """The r above which the paper's range holds: where the descent at the end of that range is 0."""

    def descent_at_range_end(regularizer: float) -> float:
        return float(descent_of_normalization(np.array(TAU**2 / (10 * regularizer)), regularizer))

    return float(brentq(descent_at_range_end, *BRACKET))


def finding_on_normalization_descent_range(rows: list[ToyRow]) -> Finding:
    """The paper's range, and the regularizers for which it is right."""
    least = regularizer_above_which_range_holds()
    agree = all(one.is_descent_negative_up_to_bound == (one.regularizer > least) for one in rows)
    some = {one.is_descent_negative_up_to_bound for one in rows} == {True, False}
    return _finding(
        topic="Normalization climbs for |grad f| <= tau_0^2 / (10 r)",
        claim="For |grad f| <= tau_0^2 / (10 r) the descent of normalization is negative.",
        criterion="it is negative at all norms tried up to that bound, for every r that was tried in the scope",
        numbers="; ".join(
            f"r = {setting_text(one.regularizer)}: up to {one.computed:.3g}, stated {one.stated:.3g}" for one in rows
        ),
        verdict=Verdict.from_condition(all(one.is_descent_negative_up_to_bound for one in rows) or (some and agree)),
        scope=f"only for r > {math.ceil(1000 * least) / 1000:g} tau_0" if some and agree else "",
    )


def finding_that_small_gradients_descend(rows: list[ToyRow]) -> Finding:
    """The purpose of the example: the descent is negative for small gradients."""
    return _finding(
        topic="Normalization may climb, whatever r",
        claim="The function value may not even decrease along E[h g] under normalization, whatever r.",
        criterion="for every r that was tried, the descent is negative at all norms below some positive one",
        numbers=f"the smallest such norm is {min(one.computed for one in rows):.3g} tau_0",
        verdict=Verdict.from_condition(all(one.computed > 0 for one in rows)),
    )


def finding_on_descent_in_unclipped_range() -> Finding:
    """The range in which clipping changes neither gradient."""
    errors = {
        clip: float(np.max(np.abs(descent_of_clipping(inside, clip) / inside**2 - 1)))
        for clip in CLIP_NORMS
        if (inside := NORMS[clip - TAU >= NORMS]).size
    }
    return _finding(
        topic="Clipping descends as |grad f|^2 for |grad f| <= c - tau_0",
        claim="Under clipping the descent is |grad f|^2 as long as |grad f| <= c - tau_0.",
        criterion="at all such norms that were tried, to a relative 1e-6",
        numbers="; ".join(
            f"c = {setting_text(clip)}: off by less than {_next_power_of_ten_text(error)}"
            for clip, error in errors.items()
        ),
        verdict=Verdict.from_condition(len(errors) == len(CLIP_NORMS) and max(errors.values()) <= 1e-6),
    )


def _next_power_of_ten_text(error: float) -> str:
    """The next power of ten: rounding errors differ between machines."""
    return f"1e{math.floor(math.log10(max(error, 1e-300))) + 1}"


def make_reproduction() -> Reproduction:
    """The descent of both methods over the norm of the true gradient."""
    rows, shown = [row_of_regularizer(value) for value in REGULARIZERS], np.linspace(0.005, 0.6, 120)
    descents = {
        "Normalization": {f"r = {setting_text(r)}": descent_of_normalization(shown, r) for r in REGULARIZERS[1:4]},
        "Clipping": {f"c = {setting_text(c)}": descent_of_clipping(shown, c) for c in CLIP_NORMS},
    }
    return Reproduction(
        title="A toy example on which normalization may climb",
        source=f"{YANG}, Section A.1",
        drawing=draw_charts(
            "figure",
            "The expected descent of normalization and of clipping over the norm of the true gradient.",
            *(
                Chart(
                    title=title,
                    x_label="|grad f| / tau_0",
                    y_label="E<grad f, h g>",
                    curves=curves_of_columns(pd.DataFrame(curves, index=shown)),
                )
                for title, curves in descents.items()
            ),
        ),
        findings=(
            finding_on_normalization_descent_range(rows),
            finding_that_small_gradients_descend(rows),
            finding_on_descent_in_unclipped_range(),
        ),
        sheets=(
            sheet_of_formatted_values(
                "Largest |grad f| / tau_0 up to which the descent of normalization is negative",
                ("r / tau_0", "stated by the paper", "computed"),
                [(one.regularizer, one.stated, one.computed) for one in rows],
            ),
        ),
        notes=(
            "The paper's explicit formula is correct below tau_0 / 2. Its bound tau_0^2 / (10 r) grows without limit "
            "as r falls, but for every r the descent becomes positive before tau_0 / 2.",
        ),
    )


FIGURES = {"a_toy": Computed(make=make_reproduction)}
