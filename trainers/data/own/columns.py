"""The columns of a text file, turned into inputs by public constants alone.

Numbers are clamped to public bounds and scaled to [0, 1]; categories and labels are looked up in public lists. Bounds
and lists never come from the records: a maximum or a vocabulary computed from private data is an uncharged query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a file: its cells by line number.

    Errors: `BadInput`, one sentence that names file, line and column.
    """

    name: str
    file: str
    cells: Mapping[int, str]

    def scaled(self, bounds: Bounds) -> NDArray[np.float64]:
        """The numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
        low, high = bounds
        return (np.clip(self._numbers(), low, high) - low) / (high - low)

    def positions(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each cell in the public list [n]."""
        place = {value: position for position, value in enumerate(listed)}
        for line, cell in self.cells.items():
            if cell not in place:
                raise BadInput(f"Expected {self.name} in line {line} of {self.file} from its list, got {cell!r}.")
        return np.array([place[cell] for cell in self.cells.values()], dtype=np.int64)

    def _numbers(self) -> NDArray[np.float64]:
        numbers = (finite(cell, f"{self.name} in line {line} of {self.file}") for line, cell in self.cells.items())
        return np.fromiter(numbers, dtype=np.float64, count=len(self.cells))


def finite(cell: str, where: str) -> float:
    """The finite number in a cell, or `BadInput` that names the cell by `where`."""
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"Expected {where} to be a finite number, got {cell!r}.")
    return number


def public_bounds(bounds: Mapping[str, Sequence[float]]) -> dict[str, Bounds]:
    """The bounds from a data set's YAML as numbers, or a ValueError."""
    return {key: public_pair(f"dataset.bounds.{key}", pair) for key, pair in bounds.items()}


def public_pair(name: str, pair: Sequence[float]) -> Bounds:
    """The two ends of one public range, or a ValueError."""
    listed = isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_number, pair))
    if not (listed and pair[0] < pair[1]):
        raise ValueError(f"Expected {name}={pair} to be two numbers, finite and rising.")
    return float(pair[0]), float(pair[1])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
