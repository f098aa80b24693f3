"""Tuning on public data: the search reads no private record, so only the run of its winner is paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.selection.composition import Composition


@dataclass(frozen=True, kw_only=True)
class Public(Composition):
    """Runs the one point that won a sweep on data declared public; `sweep` is the id of that sweep's plan.

    *Guarantee*: the price of what runs here, as under composition, and nothing for the search: it read no private
    record. The curator asserts that its data are public, and reports repeat this. Hyperparameters transfer only as far
    as the data sets are alike. Everything may be released.
    """

    name: ClassVar[str] = "public"

    sweep: str

    def __post_init__(self) -> None:
        if not isinstance(self.sweep, str) or not self.sweep.strip():
            raise ValueError(f"Expected sweep={self.sweep!r} to be the id of the public sweep's plan.")
