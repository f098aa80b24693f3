"""A CSV file of the user's with a header: the cells of named columns, by line number."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.own.columns import Column

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CsvFile:
    """The file of the data set `name`; `file` is relative to the user's data folder, or absolute.

    Errors: `BadInput`, one sentence that names the file, and the line where there is one.
    """

    name: str
    file: str

    def locate(self, folder: Path | None) -> None:
        """Find the file in the user's folder."""
        path = self._path(folder)
        if not path.is_file():
            raise BadInput(f"{self.name} needs {path}: put it there, or say DATA=<folder> (or set DPSWEEP_DATA).")

    def content(self, folder: Path | None) -> Content:
        """The content of the file, by which the ledger recognises it."""
        try:
            with self._path(folder).open("rb") as stream:
                return Content.of(iter(partial(stream.read, _CHUNK), b""))
        except OSError as error:
            raise BadInput(f"Expected {self.file} to be a readable file, got: {error}.") from error

    def columns(self, folder: Path | None, names: Sequence[str]) -> dict[str, Column]:
        """The columns with these names; a cell's line number is the line in which its row ends."""
        with self._open(folder) as (header, rows):
            for column in names:
                if header.count(column) != 1:
                    raise BadInput(
                        f"Expected one column {column} in the header of {self.file}, got {header.count(column)}."
                    )
            cells: dict[str, dict[int, str]] = {column: {} for column in names}
            places = {column: header.index(column) for column in names}
            for line, row in rows:
                if len(row) != len(header):
                    raise BadInput(f"Expected {len(header)} values in line {line} of {self.file}, got {len(row)}.")
                for column, place in places.items():
                    cells[column][line] = row[place].strip()
        return {column: Column(name=column, file=self.file, cells=cells[column]) for column in names}

    @contextmanager
    def _open(self, folder: Path | None) -> Iterator[tuple[list[str], Iterator[tuple[int, Sequence[str]]]]]:
        """The header and an iterator over the numbered rows; bytes that are not UTF-8 are kept unchanged."""
        self.locate(folder)
        try:
            with self._path(folder).open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
                lines = csv.reader(stream, strict=True)
                header = [name.strip() for name in next(lines, [])]
                yield header, ((lines.line_num, row) for row in lines if row)
        except (OSError, csv.Error) as error:
            raise BadInput(f"Expected {self.file} to be a readable CSV file, got: {error}.") from error

    def _path(self, folder: Path | None) -> Path:
        return (folder or Path()) / Path(self.file).expanduser()


def check_names(file: object, columns: Sequence[object], labels: Sequence[object]) -> None:
    """Refuse names that are not texts: YAML reads unquoted yes, no, on and off as booleans, which match no cell."""
    for name, value in (("file", file), *zip(("label", "text"), columns, strict=False)):
        if not isinstance(value, str) or not value:
            raise ValueError(f"Expected dataset.{name}={value!r} to be a text.")
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, (str, int)):
            raise ValueError(f"Expected dataset.labels={label!r} to be texts or whole numbers; quote yes and no.")


def check_labels(labels: Sequence[str], classes: int) -> None:
    """Refuse labels that are not as many as the classes, or not distinct."""
    if classes != len(labels):
        raise ValueError(f"Expected dataset.classes={classes} == {len(labels)}, as many as labels.")
    if len(set(labels)) != len(labels):
        raise ValueError(f"Expected dataset.labels={list(labels)} to be distinct.")
