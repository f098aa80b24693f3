"""The parts of a reproduction: findings (a paper's claim tested on numbers), and the list of figures.

Invariant: the verdict on a claim is computed from the numbers that the finding shows, never typed.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpsweep.accounting.errors import BadInput
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.figures.charts import Drawing
from dpsweep.reports.reproduction import figures


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim in words, its criterion, the numbers, and whether they meet the criterion."""

    claim: str
    criterion: str
    numbers: str
    holds: bool

    @property
    def verdict(self) -> str:
        """`holds` or `does not hold`."""
        return "holds" if self.holds else "does not hold"


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A reproduced figure: pictures, findings, tables of numbers, and notes for the reader."""

    title: str
    source: str
    drawings: tuple[Drawing, ...]
    findings: tuple[Finding, ...]
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Computed:
    """A figure without training: its numbers come from the accountants, always at the paper's scale."""

    make: Callable[[], Reproduction]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A figure from a sweep: the experiment's name in `conf/experiment`, and the function of its results."""

    experiment: str
    make: Callable[[Sweep], Reproduction]


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
