"""Text files of whole numbers, one record a line: read quickly, refused with the line and column of what is wrong."""

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
"""A limit for columns whose format sets none: up to it, whole numbers are exact in every type."""
_ROWS = 512
_WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, kw_only=True)
class NumberFile:
    """A text file of one record a line, each of as many whole numbers, after `texts` columns that are not read.

    `columns` are the names of all columns, for sentences; `limits` says between which two numbers each of the read
    ones lies by the file's format. `first` is the line that the records begin in.
    """

    file: str
    columns: Sequence[str]
    limits: Sequence[tuple[float, float]]
    separator: str = ","
    texts: int = 0
    first: int = 1

    def read(self, content: bytes, records: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Some records after others, and their numbers [k, columns]: never do all of them lie in memory so wide.

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
            if (found := line.count(mark) + 1) != len(self.columns):
                raise BadInput(f"Expected {len(self.columns)} values in line {place} of {self.file}, got {found}.")
        read = mark.join(line.split(mark, self.texts)[-1] for line in lines)
        try:
            with warnings.catch_warnings(action="error"):
                numbers = np.fromstring(read, dtype=np.int64, sep=self.separator)
        except (ValueError, DeprecationWarning) as error:  # older numpy warns of what newer refuses
            raise self._refusal(lines, first) from error
        if numbers.size != len(lines) * len(self.limits):
            raise self._refusal(lines, first)
        table = numbers.reshape(len(lines), len(self.limits))
        low, high = np.array(self.limits).T
        if not ((low <= table) & (table <= high)).all():
            raise self._refusal(lines, first)
        return table

    def _refusal(self, lines: Sequence[bytes], first: int) -> BadInput:
        """What is wrong with the first cell that is; slow, since only one sentence is wanted of it."""
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
    """The limits in words; none where there are none."""
    if high < ANY:
        return f" in {low:.0f}..{high:.0f}"
    return f" >= {low:.0f}" if low > -ANY else ""
