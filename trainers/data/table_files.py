"""Tables by suffix: CSV, Parquet and Arrow (Feather) files, and folders of Hugging Face's `save_to_disk`.

The cells of CSV files are texts; pyarrow reads the other formats. Nothing is unpickled, and no file of a data set names
code that runs.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.columns import Column, check_header_has_columns_once

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsweep.trainers.data.columns import TableColumn, TypedColumn

    Row = Sequence[str]

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CsvTable:
    """A CSV file with a header; `file` is its name in messages. Bytes that are not UTF-8 are kept unchanged.

    Errors: `BadInput`, one sentence that names the file.
    """

    path: Path
    file: str

    def require_reader_library(self) -> None:
        """Do nothing: Python reads CSV files."""

    def read_columns(self, names: Sequence[str]) -> dict[str, Column]:
        """The columns with these names; a cell's number is the line in which its row ends."""
        with self._open_header_and_rows() as (header, rows):
            check_header_has_columns_once(header, names, f"the header of {self.file}")
            cells: dict[str, dict[int, str]] = {name: {} for name in names}
            places = {name: header.index(name) for name in names}
            for line, row in rows:
                if len(row) != len(header):
                    raise BadInput(f"Expected {len(header)} values in line {line} of {self.file}, got {len(row)}.")
                for name, place in places.items():
                    cells[name][line] = row[place].strip()
        return {name: Column(name=name, file=self.file, cells=cells[name]) for name in names}

    def content_hash_of_table(self) -> Content:
        """The bytes of the file."""
        try:
            with self.path.open("rb") as stream:
                return Content.from_chunks(iter(partial(stream.read, _CHUNK), b""))
        except OSError as error:
            raise BadInput(f"Expected {self.file} to be a readable file, got: {error}.") from error

    @contextmanager
    def _open_header_and_rows(self) -> Iterator[tuple[list[str], Iterator[tuple[int, Row]]]]:
        """The header and an iterator over the numbered rows."""
        try:
            with self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
                lines = csv.reader(stream, strict=True)
                header = [name.strip() for name in next(lines, [])]
                yield header, ((lines.line_num, row) for row in lines if row)
        except (OSError, csv.Error) as error:
            raise BadInput(f"Expected {self.file} to be a readable CSV file, got: {error}.") from error


MAGIC = b"ARROW1"
"""The first bytes of an Arrow file; a stream of Arrow data, as `save_to_disk` writes it, has none."""

STATE, SPLITS = "state.json", "dataset_dict.json"
"""The files of one saved data set, and of a folder of several."""


@dataclass(frozen=True, kw_only=True)
class ArrowTable:
    """A table in a file or folder of this `kind`; `file` is its name in messages, `read` reads it with some columns.

    Rows are numbered from 0 in messages.
    Errors: `BadInput`, one sentence that names the file.
    """

    path: Path
    file: str
    kind: str
    read: Callable[[Path, Sequence[str] | None], pa.Table] = field(repr=False)

    def require_reader_library(self) -> None:
        """Refuse the format where pyarrow is not installed."""
        if find_spec("pyarrow") is None:
            raise BadInput(f"Expected pyarrow to be installed, which reads {self.file}: pip install 'dpsweep[arrow]'.")

    def read_columns(self, names: Sequence[str]) -> dict[str, TypedColumn]:
        """The columns with these names."""
        from dpsweep.trainers.data.columns import TypedColumn

        table = self._read_checked_table(names)
        check_header_has_columns_once(table.column_names, names, self.file)
        return {name: TypedColumn.from_chunked_array(name, self.file, table.column(name)) for name in names}

    def content_hash_of_table(self) -> Content:
        """The names, types and values of all columns: the same for every compression and division of the rows."""
        from dpsweep.trainers.data.columns import column_type_and_values_as_bytes

        table = self._read_checked_table(None)
        return Content.from_chunks(
            chunk
            for name, column in zip(table.column_names, table.columns, strict=True)
            for chunk in (f"{name}\n".encode(), *column_type_and_values_as_bytes(column))
        )

    def _read_checked_table(self, names: Sequence[str] | None) -> pa.Table:
        """The table, completely checked."""
        import pyarrow as pa

        try:
            table = self.read(self.path, names)
            table.validate(full=True)
        except BadInput:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".") or type(error).__name__
            raise BadInput(f"Expected {self.file} to be a readable {self.kind}, got: {reason}.") from error
        return table


def is_hugging_face_saved_dataset_folder(path: Path) -> bool:
    """Whether a path is a folder that Hugging Face's `save_to_disk` wrote."""
    return any((path / name).is_file() for name in (STATE, SPLITS))


def read_parquet(path: Path, names: Sequence[str] | None) -> pa.Table:
    """The table in a Parquet file, with checksums of its pages compared where there are any."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(columns=_names_of_present_columns(names, file.schema_arrow.names))


def read_arrow(path: Path, names: Sequence[str] | None) -> pa.Table:
    """The table in an Arrow or Feather file, or in a stream of Arrow data."""
    import pyarrow as pa

    with path.open("rb") as stream:
        is_file = stream.read(len(MAGIC)) == MAGIC
    with pa.OSFile(str(path)) as source:
        table = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).read_all()
    return _select_columns(table, names)


def read_hugging_face_saved_dataset(path: Path, names: Sequence[str] | None) -> pa.Table:
    """The table of one data set in a folder of `save_to_disk`.

    Errors: `BadInput` for a folder of several data sets; it names them.
    """
    import pyarrow as pa

    if not (path / STATE).is_file():
        splits = json.loads((path / SPLITS).read_text(encoding="utf-8"))["splits"]
        raise BadInput(
            f"Expected {path} to be one saved data set, got the parts {', '.join(map(str, splits))}: name the folder "
            f"of one of them, {path.name}/{splits[0]}."
        )
    state: dict[str, Any] = json.loads((path / STATE).read_text(encoding="utf-8"))
    files = [str(entry["filename"]) for entry in state["_data_files"]]
    if not files or any(Path(name).name != name for name in files):
        raise ValueError(f"no names of files in {STATE}")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise ValueError("a selection of rows, which a newer version of the library writes as rows")
    return pa.concat_tables([read_arrow(path / name, names) for name in files])


def _names_of_present_columns(names: Sequence[str] | None, listed: Sequence[str]) -> list[str] | None:
    """The names that are there, so that a missing column has a message of ours; all if one of them is there twice."""
    if names is None or any(listed.count(name) > 1 for name in names):
        return None
    return [name for name in names if name in listed]


def _select_columns(table: pa.Table, names: Sequence[str] | None) -> pa.Table:
    kept = _names_of_present_columns(names, table.column_names)
    return table if kept is None else table.select(kept)


class TableFile(Protocol):
    """A table of the user on disk.

    Errors: `BadInput`, one sentence that names the file.
    """

    def require_reader_library(self) -> None:
        """Refuse a format whose library is not installed."""

    def read_columns(self, names: Sequence[str]) -> Mapping[str, TableColumn]:
        """The columns with these names, each there once."""
        ...

    def content_hash_of_table(self) -> Content:
        """The content that identifies the table."""
        ...


def _parquet_table_file(path: Path, file: str) -> ArrowTable:
    return ArrowTable(path=path, file=file, kind="Parquet file", read=read_parquet)


def _arrow_table_file(path: Path, file: str) -> ArrowTable:
    return ArrowTable(path=path, file=file, kind="Arrow file", read=read_arrow)


def _hugging_face_dataset_table_file(path: Path, file: str) -> ArrowTable:
    return ArrowTable(path=path, file=file, kind="saved data set", read=read_hugging_face_saved_dataset)


FORMATS: Mapping[str, Callable[[Path, str], ArrowTable]] = {
    ".parquet": _parquet_table_file,
    ".pq": _parquet_table_file,
    ".arrow": _arrow_table_file,
    ".feather": _arrow_table_file,
    ".ipc": _arrow_table_file,
}
"""The formats with types, by suffix; a table in a file with another suffix is read as CSV."""


def path_in_data_folder_or_absolute(file: str, folder: Path | None) -> Path:
    """The path of a file in the user's data folder, or the absolute path that the user wrote."""
    return (folder or Path()) / Path(file).expanduser()


def table_reader_for_file(name: str, file: str, folder: Path | None) -> TableFile:
    """The user's table, found and in a format that can be read; `name` is the data set's.

    Errors: `BadInput`, one sentence that says what to do.
    """
    path = _require_existing_table_path(name, file, folder)
    if path.is_file() and path.suffix.lower() not in FORMATS:
        return CsvTable(path=path, file=file)
    return find_table_file_with_typed_columns(name, file, folder)


def find_table_file_with_typed_columns(name: str, file: str, folder: Path | None) -> ArrowTable:
    """The user's table, found and in a format whose columns have types; `name` is the data set's.

    Errors: `BadInput`, one sentence that says what to do.
    """
    path = _require_existing_table_path(name, file, folder)
    if path.is_file() and path.suffix.lower() not in FORMATS:
        raise BadInput(f"Expected {file} to be a folder of save_to_disk, or a file with one of {', '.join(FORMATS)}.")
    found = _hugging_face_dataset_table_file(path, file) if path.is_dir() else FORMATS[path.suffix.lower()](path, file)
    found.require_reader_library()
    return found


def _require_existing_table_path(name: str, file: str, folder: Path | None) -> Path:
    path = path_in_data_folder_or_absolute(file, folder)
    if not path.is_file() and not is_hugging_face_saved_dataset_folder(path):
        raise BadInput(f"{name} needs {path}: put it there, or say DATA=<folder> (or set DPSWEEP_DATA).")
    return path
