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


def _parquet(path: Path, file: str) -> TableFile:
    return ArrowTable(path=path, file=file, kind="Parquet file", read=read_parquet)


def _arrow(path: Path, file: str) -> TableFile:
    return ArrowTable(path=path, file=file, kind="Arrow file", read=read_arrow)


def _saved(path: Path, file: str) -> TableFile:
    return ArrowTable(path=path, file=file, kind="saved data set", read=read_saved)


def _csv(path: Path, file: str) -> TableFile:
    return CsvTable(path=path, file=file)


FORMATS: Mapping[str, Callable[[Path, str], TableFile]] = {
    ".parquet": _parquet,
    ".pq": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".ipc": _arrow,
}
"""The formats by suffix; a file with another suffix is read as CSV."""


def in_folder(file: str, folder: Path | None) -> Path:
    """The path of a file in the user's data folder, or the absolute path that the user wrote."""
    return (folder or Path()) / Path(file).expanduser()


def table_file(name: str, file: str, folder: Path | None) -> TableFile:
    """The user's table, found and in a format that can be read; `name` is the data set's.

    Errors: `BadInput`, one sentence that says what to do.
    """
    path = in_folder(file, folder)
    if not path.is_file() and not is_saved(path):
        raise BadInput(f"{name} needs {path}: put it there, or say DATA=<folder> (or set DPSWEEP_DATA).")
    found = (_saved if path.is_dir() else FORMATS.get(path.suffix.lower(), _csv))(path, file)
    found.check()
    return found
