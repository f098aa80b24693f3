"""The parts of a reproduction: findings (a paper's claim tested on numbers), their text, and the list of figures.

Invariant: the verdict on a claim is computed from the numbers that the finding shows, never typed. A claim on scores
has a verdict only from intervals (`dpsweep.reports.statistics`); where runs cannot tell, it is undecided.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pkgutil import iter_modules
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.notation import delta_text_rounded_up
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.reproduction import figures
from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.verdict import (
    IntervalEstimate,
    Verdict,
    confidence_of_each_interval,
    joint_verdict,
    verdict_on_direction_and_margin,
)

ACCOUNT = (
    "The data set is a public benchmark, or made up. Its runs were charged to an account in a separate ledger of this "
    "figure: the price is what the same runs would cost on private records."
)
PUBLIC = (
    "The data set is a public benchmark, or made up, and was declared public for this figure: its runs reveal the "
    "exact training loss, so they protect nobody, whatever their noise."
)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """How a quantity is written: the factor, the number format and the word behind it."""

    factor: float = 1.0
    form: str = ".3g"
    word: str = ""

    def number_text(self, value: float) -> str:
        """The number without its word."""
        return f"{self.factor * value:{self.form}}"

    def value_text(self, value: float) -> str:
        """The value for readers.

        >>> POINTS.value_text(0.0312), PERCENT.value_text(0.93), NUMBER.value_text(-1.1801)
        ('3.1 points', '93.0%', '-1.18')
        """
        return f"{self.number_text(value)}{self.word}"

    def estimate_text(self, one: IntervalEstimate) -> str:
        """A named quantity with its interval.

        >>> POINTS.estimate_text(IntervalEstimate(name="gap", value=0.012, low=0.004, high=0.02))
        'gap 1.2 points [0.4, 2.0]'
        """
        name = one.name.strip()
        if math.isnan(one.value):
            return f"{name}: nothing to estimate it from"
        ends = f"[{self.number_text(one.low)}, {self.number_text(one.high)}]" if one.has_interval else "(no interval)"
        return f"{name} {self.value_text(one.value)} {ends}"


POINTS, PERCENT, NUMBER = Unit(factor=100, form=".1f", word=" points"), Unit(factor=100, form=".1f", word="%"), Unit()


@dataclass(frozen=True, kw_only=True)
class Margin:
    """The range that a claim's criterion gives a quantity, from `least` to `most`, and where these numbers are from.

    The claim's direction is the range from `above` to `below`, which is wider; without them it is the same.
    """

    source: str
    unit: Unit = POINTS
    least: float = -math.inf
    most: float = math.inf
    above: float | None = None
    below: float | None = None

    def verdict_on_range(self, one: IntervalEstimate) -> Verdict:
        """Whether the quantity is in the criterion's range."""
        return one.verdict_that_value_is_between(self.least, self.most)

    def verdict_on_direction(self, one: IntervalEstimate) -> Verdict:
        """Whether the quantity has the claim's direction: strictly above `above` and below `below`."""
        least = self.least if self.above is None else math.nextafter(self.above, math.inf)
        most = self.most if self.below is None else math.nextafter(self.below, -math.inf)
        return one.verdict_that_value_is_between(least, most)

    @property
    def range_text(self) -> str:
        """The range for readers."""
        if math.isinf(self.most):
            return f"at least {self.unit.value_text(self.least)}"
        if math.isinf(self.least):
            return f"at most {self.unit.value_text(self.most)}"
        return f"{self.unit.number_text(self.least)} to {self.unit.value_text(self.most)}"

    def flip_text(self, estimates: Sequence[IntervalEstimate]) -> str:
        """The margin up to which, or from which on, the claim holds for these quantities.

        >>> better = Margin(source="", least=0.01, above=0.0)
        >>> better.flip_text([IntervalEstimate(name="", value=0.02, low=0.005, high=0.03)])
        'holds up to a margin of 0.5 points'
        """
        if not all(one.has_interval for one in estimates):
            return "no margin: a quantity has no interval"
        low, high = min(one.low for one in estimates), max(one.high for one in estimates)
        if math.isinf(self.most):
            least = self.least if self.above is None else self.above
            reach = f"up to a margin of {self.unit.value_text(low)}"
            return f"holds {reach}" if low >= least else f"holds at no margin above {self.unit.value_text(least)}"
        if math.isinf(self.least):
            return f"holds from a limit of {self.unit.value_text(high)} on"
        middle = (self.least + self.most) / 2
        return (
            f"holds from {self.unit.number_text(middle)} +- {self.unit.value_text(max(middle - low, high - middle))} on"
        )


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity of a claim before its level of confidence is known, and the margin on it."""

    name: str
    estimate: Callable[[str, float], IntervalEstimate]
    margin: Margin


@dataclass(frozen=True, kw_only=True)
class Part:
    """A quantity of a criterion with its interval, and the margin on it."""

    estimate: IntervalEstimate
    margin: Margin

    @property
    def text(self) -> str:
        """The quantity with its interval, for readers."""
        return self.margin.unit.estimate_text(self.estimate)

    @property
    def verdict(self) -> Verdict:
        """The verdict on this part alone."""
        return verdict_on_parts((self,))


@dataclass(frozen=True, kw_only=True)
class ClaimEvidence:
    """What a table says of a claim: the parts, the verdict that they give together, and what else is to be told.

    `flip` says at which margin the verdict would turn, if it is not that of each part.
    """

    parts: tuple[Part, ...]
    verdict: Verdict
    remark: str = ""
    flip: str = ""

    @property
    def flip_text(self) -> str:
        """For each margin of the claim, the one at which its verdict would turn."""
        return self.flip or "; ".join(
            margin.flip_text([part.estimate for part in self.parts if part.margin == margin])
            for margin in dict.fromkeys(part.margin for part in self.parts)
        )


def verdict_on_parts(parts: Iterable[Part]) -> Verdict:
    """The verdict on a claim whose parts must all hold; undecided if it has none."""
    known = tuple(parts)
    return verdict_on_direction_and_margin(
        joint_verdict(part.margin.verdict_on_direction(part.estimate) for part in known),
        joint_verdict(part.margin.verdict_on_range(part.estimate) for part in known),
    )


def weigh(
    quantities: Iterable[Quantity], *, shows_differences: bool = True, remark: str = "", joint: int = 0
) -> ClaimEvidence:
    """The evidence of quantities whose intervals hold jointly, or with others of which there are `joint` in all.

    A search whose points do not differ by more than noise cannot show that there is no difference between methods:
    without `shows_differences` a claim that would hold is undecided.
    """
    known = tuple(quantities)
    level = confidence_of_each_interval(joint or len(known))
    parts = tuple(Part(estimate=one.estimate(one.name, level), margin=one.margin) for one in known)
    verdict = verdict_on_parts(parts)
    blind = verdict is Verdict.HOLDS and not shows_differences
    return ClaimEvidence(parts=parts, verdict=Verdict.UNDECIDED if blind else verdict, remark=remark)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim in words, its criterion, the numbers, and the verdict that they give.

    `topic` is the claim in a few words, the same for every data set; `paper` and `where` say who makes it, and `ours`
    that no paper does. `parts` are the quantities that decide it, none where no chance is involved; `remark` is what
    the table says beside them, and `flip` the margin at which the verdict would turn. `scope` restricts a verdict, for
    example `for r > 0.4`.
    """

    topic: str

    claim: str
    criterion: str
    numbers: str
    verdict: Verdict
    paper: str
    where: str = ""
    ours: bool = False
    parts: tuple[Part, ...] = ()
    remark: str = ""
    flip: str = ""
    scope: str = ""

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
        texts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "parts"}
        return texts | {
            "intervals": [
                {
                    "name": one.name,
                    "value": one.value if math.isfinite(one.value) else None,
                    "low": one.low if one.has_interval else None,
                    "high": one.high if one.has_interval else None,
                }
                for one in (part.estimate for part in self.parts)
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A reproduced figure: its picture, findings, tables, notes, and differences from the paper's setting.

    The findings of a figure with training are those of the registry on its table (`registry`).
    """

    title: str
    source: str
    drawing: Drawing
    sheets: tuple[Sheet, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Computed:
    """A figure without training: its numbers come from the accountants, always at the paper's scale."""

    make: Callable[[], Reproduction]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A figure from the search of its experiment, which has the figure's name; its parts are made of the results."""

    title: str
    source: str
    draw: Callable[[SearchResults], Drawing]
    sheets: tuple[Callable[[SearchResults], Sheet], ...] = ()
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()

    def make(self, results: SearchResults, findings: tuple[Finding, ...] = ()) -> Reproduction:
        """The figure of these results, with a note on who is protected, and the price where someone is."""
        prices = (_sheet_of_prices_by_accountant(results),) if results.prices else ()
        return Reproduction(
            title=self.title,
            source=self.source,
            drawing=self.draw(results),
            sheets=(*prices, *(sheet(results) for sheet in self.sheets)),
            findings=findings,
            notes=(*self.notes, ACCOUNT if results.prices else PUBLIC),
            differences=self.differences,
        )


def _sheet_of_prices_by_accountant(results: SearchResults) -> Sheet:
    """Epsilon of one run by the papers' accountant and by ours, and of the whole search."""
    return sheet_of_formatted_values(
        f"Price: epsilon at delta {delta_text_rounded_up(results.facts.delta)}",
        ("noise multiplier", "one run, papers' accountant", "one run, our accountant", "the whole search"),
        [(one.noise_multiplier, one.papers, one.ours, results.facts.epsilon) for one in results.prices],
    )


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
        raise BadInput(f"Expected FIGURE={name} to be one of {', '.join(figure_names())}.")
    return _figures_by_name()[name]


def sheet_of_formatted_values(caption: str, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> Sheet:
    """A table of formatted values: words unchanged, floats with four digits."""
    return Sheet.from_cells(caption, columns, (map(value_text, row) for row in rows))


def value_text(value: object) -> str:
    """A value formatted for readers.

    >>> value_text(4.75123), value_text(60000), value_text("MNIST"), value_text(None)
    ('4.751', '60000', 'MNIST', '')
    """
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
