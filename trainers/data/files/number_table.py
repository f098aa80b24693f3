"""Fast parser for text files of whole numbers, one record per line; errors name the line and column."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.own.columns import finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

ANY = 2.0**53
"""The limit for columns without one in their format: whole numbers up to it are exact in every type."""
_ROWS = 512
_WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, kw_only=True)
class NumberFile:
    """A text file with one record per line: `texts` columns that are skipped, then whole numbers.

    `columns` are the names of all columns, for error messages; `limits` are the lowest and highest number that the
    file's format allows in each column that is read. `first` is the line number of the first record.
    """

    file: str
    columns: Sequence[str]
    limits: Sequence[tuple[float, float]]
    separator: str = ","
    texts: int = 0
    first: int = 1

    def read(self, content: bytes, records: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Blocks of records: a slice of positions, and their numbers [k, columns]; one block at a time saves memory.

        Errors: `BadInput`, one sentence with file, line and column, for anything but `records` lines of numbers
        within the limits.
        """
        lines = content.rstrip().splitlines()[self.first - 1 :]
        if len(lines) != records:
            raise BadInput(f"Expected {records} records in {self.file}, got {len(lines)} lines of them.")
        for start in range(0, records, _ROWS):
            block = lines[start : start + _ROWS]
            yield slice(start, start + len(block)), self._block([line.rstrip() for line in block], self.first + start)

    def _block(self, lines: Sequence[bytes], first: int) -> NDArray[np.int64]:
        mark = self.separator.encode()
        for place, line in enumerate(lines, start=first):
            if (cells := line.count(mark) + 1) != len(self.columns):
                raise BadInput(f"Expected {len(self.columns)} values in line {place} of {self.file}, got {cells}.")
        text = mark.join(line.split(mark, self.texts)[-1] for line in lines)
        try:
            with warnings.catch_warnings(action="error"):
                numbers = np.fromstring(text, dtype=np.int64, sep=self.separator)
        except (ValueError, DeprecationWarning) as error:  # older numpy warns where newer numpy raises
            raise self._refusal(lines, first) from error
        if numbers.size != len(lines) * len(self.limits):
            raise self._refusal(lines, first)
        table = numbers.reshape(len(lines), len(self.limits))
        low, high = np.array(self.limits).T
        if not ((low <= table) & (table <= high)).all():
            raise self._refusal(lines, first)
        return table

    def _refusal(self, lines: Sequence[bytes], first: int) -> BadInput:
        """The error for the first wrong cell; it may be slow, because it runs once."""
        for place, line in enumerate(lines, start=first):
            cells = line.decode("utf-8", "replace").split(self.separator)[self.texts :]
            for cell, name, (low, high) in zip(cells, self.columns[self.texts :], self.limits, strict=True):
                where = f"{name} in line {place} of {self.file}"
                try:
                    number = finite(cell, where)
                except BadInput as refusal:
                    return refusal
                if not (low <= number <= high and _WHOLE.fullmatch(cell.strip())):
                    return BadInput(f"Expected {where} to be a whole number{_within(low, high)}, got {cell!r}.")
        return BadInput(f"Expected whole numbers in lines {first} to {first + len(lines) - 1} of {self.file}.")


def _within(low: float, high: float) -> str:
    """The limits in words; an empty text if there are none."""
    if high < ANY:
        return f" in {low:.0f}..{high:.0f}"
    return f" >= {low:.0f}" if low > -ANY else ""
