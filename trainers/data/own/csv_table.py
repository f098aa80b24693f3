"""Tables in CSV files, whose cells are texts."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.own.columns import Column, check_header

if TYPE_CHECKING:
    from pathlib import Path

    Row = Sequence[str]

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CsvTable:
    """A CSV file with a header; `file` is its name in messages. Bytes that are not UTF-8 are kept unchanged.

    Errors: `BadInput`, one sentence that names the file.
    """

    path: Path
    file: str

    def check(self) -> None:
        """Do nothing: Python reads CSV files."""

    def columns(self, names: Sequence[str]) -> dict[str, Column]:
        """The columns with these names; a cell's number is the line in which its row ends."""
        with self._open() as (header, rows):
            check_header(header, names, f"the header of {self.file}")
            cells: dict[str, dict[int, str]] = {name: {} for name in names}
            places = {name: header.index(name) for name in names}
            for line, row in rows:
                if len(row) != len(header):
                    raise BadInput(f"Expected {len(header)} values in line {line} of {self.file}, got {len(row)}.")
                for name, place in places.items():
                    cells[name][line] = row[place].strip()
        return {name: Column(name=name, file=self.file, cells=cells[name]) for name in names}

    def content(self) -> Content:
        """The bytes of the file."""
        try:
            with self.path.open("rb") as stream:
                return Content.of(iter(partial(stream.read, _CHUNK), b""))
        except OSError as error:
            raise BadInput(f"Expected {self.file} to be a readable file, got: {error}.") from error

    @contextmanager
    def _open(self) -> Iterator[tuple[list[str], Iterator[tuple[int, Row]]]]:
        """The header and an iterator over the numbered rows."""
        try:
            with self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
                lines = csv.reader(stream, strict=True)
                header = [name.strip() for name in next(lines, [])]
                yield header, ((lines.line_num, row) for row in lines if row)
        except (OSError, csv.Error) as error:
            raise BadInput(f"Expected {self.file} to be a readable CSV file, got: {error}.") from error
