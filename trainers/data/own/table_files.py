"""The formats of tables by suffix: CSV, Parquet, Arrow, and the folders of Hugging Face's `save_to_disk`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.own.arrow_files import ArrowTable, is_saved, read_arrow, read_parquet, read_saved
from dpsweep.trainers.data.own.csv_table import CsvTable

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.own.columns import TableColumn


class TableFile(Protocol):
    """A table of the user on disk.

    Errors: `BadInput`, one sentence that names the file.
    """

    def check(self) -> None:
        """Refuse a format whose library is not installed."""

    def columns(self, names: Sequence[str]) -> Mapping[str, TableColumn]:
        """The columns with these names, each there once."""
        ...

    def content(self) -> Content:
        """The content that identifies the table."""
        ...


def _parquet(path: Path, file: str) -> ArrowTable:
    return ArrowTable(path=path, file=file, kind="Parquet file", read=read_parquet)


def _arrow(path: Path, file: str) -> ArrowTable:
    return ArrowTable(path=path, file=file, kind="Arrow file", read=read_arrow)


def _saved(path: Path, file: str) -> ArrowTable:
    return ArrowTable(path=path, file=file, kind="saved data set", read=read_saved)


FORMATS: Mapping[str, Callable[[Path, str], ArrowTable]] = {
    ".parquet": _parquet,
    ".pq": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".ipc": _arrow,
}
"""The formats with types, by suffix; a table in a file with another suffix is read as CSV."""


def in_folder(file: str, folder: Path | None) -> Path:
    """The path of a file in the user's data folder, or the absolute path that the user wrote."""
    return (folder or Path()) / Path(file).expanduser()


def table_file(name: str, file: str, folder: Path | None) -> TableFile:
    """The user's table, found and in a format that can be read; `name` is the data set's.

    Errors: `BadInput`, one sentence that says what to do.
    """
    path = _found(name, file, folder)
    if path.is_file() and path.suffix.lower() not in FORMATS:
        return CsvTable(path=path, file=file)
    return typed_table(name, file, folder)


def typed_table(name: str, file: str, folder: Path | None) -> ArrowTable:
    """The user's table, found and in a format whose columns have types; `name` is the data set's.

    Errors: `BadInput`, one sentence that says what to do.
    """
    path = _found(name, file, folder)
    if path.is_file() and path.suffix.lower() not in FORMATS:
        raise BadInput(f"Expected {file} to be a folder of save_to_disk, or a file with one of {', '.join(FORMATS)}.")
    found = _saved(path, file) if path.is_dir() else FORMATS[path.suffix.lower()](path, file)
    found.check()
    return found


def _found(name: str, file: str, folder: Path | None) -> Path:
    path = in_folder(file, folder)
    if not path.is_file() and not is_saved(path):
        raise BadInput(f"{name} needs {path}: put it there, or say DATA=<folder> (or set DPSWEEP_DATA).")
    return path
