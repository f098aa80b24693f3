"""The parts of a reproduction: findings (a paper's claim tested on numbers), and the list of figures.

Invariant: the verdict on a claim is computed from the numbers that the finding shows, never typed. A claim on scores
has a verdict only from intervals (`dpsweep.reports.statistics`); where runs cannot tell, it is undecided.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.figures.charts import Drawing
from dpsweep.reports.reproduction import figures
from dpsweep.reports.reproduction.results.search_results import SearchResults
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict


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
    def decisive(self) -> JudgedPart | None:
        """The part that the verdict rests on: the first with the same verdict, or the first one; None without parts."""
        same = (part for part in self.parts if part.verdict is self.verdict)
        return next(same, self.parts[0] if self.parts else None)

    @property
    def holds(self) -> bool:
        """Whether the claim holds."""
        return self.verdict is Verdict.HOLDS

    @property
    def words(self) -> str:
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
                    "low": one.low if one.known else None,
                    "high": one.high if one.known else None,
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
    """A figure from a search: the experiment's name in `conf/experiment`, and the function of its results."""

    experiment: str
    make: Callable[[SearchResults], Reproduction]


def known() -> tuple[str, ...]:
    """The figures' names: the files of `reports/reproduction/figures`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(figures.__path__)))


def find(name: str) -> Computed | Trained:
    """The figure with this name; raises `BadInput` if there is none."""
    if name not in known():
        raise BadInput(f"Expected FIGURE={name or 'nothing'} to be one of {', '.join(known())}.")
    figure: Computed | Trained = importlib.import_module(f"{figures.__name__}.{name}").FIGURE
    return figure


def sheet(caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Sheet:
    """A table of formatted values: words unchanged, floats with four digits."""
    return Sheet(
        caption=caption,
        columns=tuple(columns),
        rows=tuple(tuple(Item(text=written(value)) for value in row) for row in rows),
    )


def written(value: object) -> str:
    """A value formatted for readers.

    >>> written(4.75123), written(60000), written("MNIST"), written(None)
    ('4.751', '60000', 'MNIST', '')
    """
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
