"""The columns of a table, turned into inputs by public constants alone.

Numbers are clamped to public bounds and scaled to [0, 1]; categories and labels are looked up in public lists. Bounds
and lists never come from the records: a maximum or a vocabulary computed from private data is an uncharged query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsweep.accounting.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Bounds = tuple[float, float]


class TableColumn(Protocol):
    """One column of a table.

    Errors: `BadInput`, one sentence that names file, record and column.
    """

    def scaled(self, bounds: Bounds) -> NDArray[np.float64]:
        """The numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
        ...

    def positions(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each value in the public list [n]; a value that is not in the list is refused."""
        ...

    def one_hot(self, listed: Sequence[str]) -> NDArray[np.float64]:
        """A row of zeros and ones for each value [n, len(listed)]; only zeros if it is not in the public list."""
        ...

    def identifiers(self) -> list[bytes]:
        """The units that the values identify, one for each record; a missing one is refused."""
        ...

    def texts(self) -> list[str]:
        """The values as texts, one for each record; a missing one is empty."""
        ...


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of texts: its cells by line number, or by another number that `place` names.

    Errors: `BadInput`, one sentence that names file, line and column.
    """

    name: str
    file: str
    cells: Mapping[int, str]
    place: str = "line"

    def scaled(self, bounds: Bounds) -> NDArray[np.float64]:
        """The numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
        return scaled(self._numbers(), bounds)

    def positions(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each cell in the public list [n]."""
        positions = self._found(listed)
        for number, cell, position in zip(self.cells, self.cells.values(), positions, strict=True):
            if position < 0:
                raise BadInput(f"Expected {self._at(number)} from its list, got {cell!r}.")
        return positions

    def one_hot(self, listed: Sequence[str]) -> NDArray[np.float64]:
        """A row of zeros and ones for each cell [n, len(listed)]; only zeros if it is not in the public list."""
        is_one: NDArray[np.bool_] = self._found(listed)[:, None] == np.arange(len(listed))
        return is_one.astype(np.float64)

    def identifiers(self) -> list[bytes]:
        """The cells as the file's bytes, one for each record; none may be empty."""
        for number, cell in self.cells.items():
            if not cell:
                raise BadInput(f"Expected {self._at(number)} to say whose record it is.")
        return [cell.encode("utf-8", "surrogateescape") for cell in self.cells.values()]

    def texts(self) -> list[str]:
        """The cells, one for each record."""
        return list(self.cells.values())

    def _found(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each cell in the list [n], -1 if it is not there."""
        place = {value: position for position, value in enumerate(listed)}
        return np.array([place.get(cell, -1) for cell in self.cells.values()], dtype=np.int64)

    def _numbers(self) -> NDArray[np.float64]:
        numbers = (finite(cell, self._at(number)) for number, cell in self.cells.items())
        return np.fromiter(numbers, dtype=np.float64, count=len(self.cells))

    def _at(self, number: int) -> str:
        return f"{self.name} in {self.place} {number} of {self.file}"


def check_header(header: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse a table that does not have each of these columns once."""
    for name in names:
        if header.count(name) != 1:
            raise BadInput(f"Expected one column {name} in {where}, got {header.count(name)}.")


def scaled(numbers: NDArray[np.float64], bounds: Bounds) -> NDArray[np.float64]:
    """Numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
    low, high = bounds
    return (np.clip(numbers, low, high) - low) / (high - low)


def finite(cell: str, where: str) -> float:
    """The finite number in a cell, or `BadInput` that names the cell by `where`."""
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"Expected {where} to be a finite number, got {cell!r}.")
    return number


def listed_texts(name: str, values: Sequence[object]) -> tuple[str, ...]:
    """A public list of values from a data set's YAML as distinct texts, or a ValueError.

    YAML reads unquoted yes, no, on and off as booleans, which match no cell.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise ValueError(f"Expected {name}={values!r} to be a list of values.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ValueError(f"Expected {name}={value!r} to be texts or whole numbers; quote yes and no.")
    texts = tuple(map(str, values))
    if len(set(texts)) != len(texts):
        raise ValueError(f"Expected {name}={list(texts)} to be distinct.")
    return texts


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
