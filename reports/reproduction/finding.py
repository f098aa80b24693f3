"""The parts of a reproduction: findings (a paper's claim tested on numbers), their text, and the list of figures.

Invariant: the verdict on a claim is computed from the numbers that the finding shows, never typed. A claim on scores
has a verdict only from intervals (`dpsweep.reports.statistics`); where runs cannot tell, it is undecided.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import iter_modules
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.reproduction import figures
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict, joint_verdict


@dataclass(frozen=True, kw_only=True)
class JudgedPart:
    """A part of a criterion: the quantity with its interval as text, and the verdict on this part alone."""

    text: str
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim in words, its criterion, the numbers, and the verdict that they give.

    `topic` is the claim in a few words, the same for every data set. `estimates` are the quantities whose intervals
    decide it, `parts` the verdict on each; both are empty where no chance is involved. `scope` restricts a verdict, for
    example `for r > 0.4`.
    """

    topic: str

    claim: str
    criterion: str
    numbers: str
    verdict: Verdict
    estimates: tuple[IntervalEstimate, ...] = ()
    parts: tuple[JudgedPart, ...] = ()
    scope: str = ""

    @property
    def decisive_part(self) -> JudgedPart | None:
        """The part that the verdict rests on: the first with the same verdict, or the first one; None without parts."""
        same = (part for part in self.parts if part.verdict is self.verdict)
        return next(same, self.parts[0] if self.parts else None)

    @property
    def holds(self) -> bool:
        """Whether the claim holds."""
        return self.verdict is Verdict.HOLDS

    @property
    def verdict_text(self) -> str:
        """The verdict with its scope, for readers."""
        return f"{self.verdict} {self.scope}".strip()

    def to_json(self) -> dict[str, Any]:
        """The finding as plain values; an interval that is unknown has the ends null."""
        return {
            "topic": self.topic,
            "claim": self.claim,
            "criterion": self.criterion,
            "numbers": self.numbers,
            "verdict": self.verdict.value,
            "scope": self.scope,
            "intervals": [
                {
                    "name": one.name,
                    "value": one.value if math.isfinite(one.value) else None,
                    "low": one.low if one.has_interval else None,
                    "high": one.high if one.has_interval else None,
                }
                for one in self.estimates
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A reproduced figure: pictures, findings, tables, notes, and differences from the paper's setting."""

    title: str
    source: str
    drawings: tuple[Drawing, ...]
    findings: tuple[Finding, ...]
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Computed:
    """A figure without training: its numbers come from the accountants, always at the paper's scale."""

    make: Callable[[], Reproduction]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A figure from the search of its experiment, which has the figure's name; `make` takes the search's results."""

    make: Callable[[SearchResults], Reproduction]


@cache
def _figures_by_name() -> Mapping[str, Computed | Trained]:
    """The figures by name: all `FIGURES` of the modules in `reports/reproduction/figures`."""
    modules = (importlib.import_module(f"{figures.__name__}.{found.name}") for found in iter_modules(figures.__path__))
    return {name: figure for module in modules for name, figure in module.FIGURES.items()}


def figure_names() -> tuple[str, ...]:
    """The figures' names."""
    return tuple(sorted(_figures_by_name()))


def find_figure(name: str) -> Computed | Trained:
    """The figure with this name; raises `BadInput` if there is none."""
    if name not in _figures_by_name():
        raise BadInput(f"Expected FIGURE={name or 'nothing'} to be one of {', '.join(figure_names())}.")
    return _figures_by_name()[name]


def sheet_of_formatted_values(caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Sheet:
    """A table of formatted values: words unchanged, floats with four digits."""
    return Sheet(
        caption=caption,
        columns=tuple(columns),
        rows=tuple(tuple(Item(text=value_text(value)) for value in row) for row in rows),
    )


def value_text(value: object) -> str:
    """A value formatted for readers.

    >>> value_text(4.75123), value_text(60000), value_text("MNIST"), value_text(None)
    ('4.751', '60000', 'MNIST', '')
    """
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def percentage_points_text(share: float) -> str:
    """A difference of shares, in percentage points.

    >>> percentage_points_text(0.0312)
    '3.1 points'
    """
    return f"{100 * share:.1f} points"


def estimate_text_in_percentage_points(one: IntervalEstimate) -> str:
    """A difference of scores.

    >>> estimate_text_in_percentage_points(IntervalEstimate(name="gap", value=0.012, low=0.004, high=0.02))
    'gap 1.2 points [0.4, 2.0]'
    """
    return _estimate_text_with_interval(one, percentage_points_text(one.value), lambda end: f"{100 * end:.1f}")


def estimate_text_in_percent(one: IntervalEstimate) -> str:
    """A share.

    >>> estimate_text_in_percent(IntervalEstimate(name="lr", value=0.93, low=0.9, high=0.95))
    'lr 93.0% [90.0, 95.0]'
    """
    return _estimate_text_with_interval(one, f"{one.value:.1%}", lambda end: f"{100 * end:.1f}")


def estimate_text_as_number(one: IntervalEstimate) -> str:
    """A plain number.

    >>> estimate_text_as_number(IntervalEstimate(name="e", value=-1.18, low=-1.21, high=-1.15))
    'e -1.18 [-1.21, -1.15]'
    """
    return _estimate_text_with_interval(one, f"{one.value:.3g}", lambda end: f"{end:.3g}")


def text_listing_estimates(estimates: Iterable[IntervalEstimate], form: Callable[[IntervalEstimate], str]) -> str:
    """All estimates in one sentence."""
    return "; ".join(map(form, estimates))


def judged_parts_of_estimates_in_range(
    estimates: Iterable[IntervalEstimate],
    form: Callable[[IntervalEstimate], str],
    least: float = -math.inf,
    most: float = math.inf,
) -> tuple[JudgedPart, ...]:
    """The parts of a criterion by which each of these estimates is between `least` and `most`."""
    return tuple(
        JudgedPart(text=form(one), verdict=one.verdict_that_value_is_between(least, most)) for one in estimates
    )


def joint_verdict_of_parts(parts: Iterable[JudgedPart]) -> Verdict:
    """The verdict on a claim of several parts; undecided if it has none."""
    return joint_verdict(part.verdict for part in parts)


def _estimate_text_with_interval(one: IntervalEstimate, value: str, form: Callable[[float], str]) -> str:
    name = one.name.strip()
    if math.isnan(one.value):
        return f"{name}: nothing to estimate it from"
    return f"{name} {value} " + (f"[{form(one.low)}, {form(one.high)}]" if one.has_interval else "(no interval)")
