"""Tables by suffix: texts (`trainers/data/text_tables.py`), Parquet and Arrow (Feather) files, folders of Parquet
files, and folders of Hugging Face's `save_to_disk`.

The cells of CSV files and spreadsheets are texts; pyarrow reads the other formats. Nothing is unpickled, and no file of
a data set names code that runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.columns import ColumnKind, check_header_has_columns_once, composed_text
from dpsweep.trainers.data.text_tables import (
    PLAIN,
    SPREADSHEETS,
    CsvTable,
    Dialect,
    Spreadsheet,
    require_spreadsheet_reader,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsweep.trainers.data.columns import TableColumn
    from dpsweep.trainers.data.typed_columns import TypedColumn

MAGIC = b"ARROW1"
"""The first bytes of an Arrow file; a stream of Arrow data, as `save_to_disk` writes it, has none."""

STATE, SPLITS = "state.json", "dataset_dict.json"
"""The files of one saved data set, and of a folder of several."""


@dataclass(frozen=True, kw_only=True)
class ArrowFormat:
    """A format whose columns have types, by the `kind` of its files or folders.

    `pieces` reads some of the columns, a number of rows at a time, and `schema` the names and types of all.
    """

    kind: str
    pieces: Callable[[Path, Sequence[str] | None], Iterator[pa.Table]] = field(repr=False)
    schema: Callable[[Path], pa.Schema] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ArrowTable:
    """A table in a file or folder of this format; `file` is its name in messages.

    Rows are numbered from 0 in messages.
    Errors: `BadInput`, one sentence that names the file.
    """

    path: Path
    file: str
    format: ArrowFormat

    def read_columns(self, names: Sequence[str]) -> dict[str, TypedColumn]:
        """The columns with these names."""
        import pyarrow as pa

        with self._errors_refused():
            table = pa.concat_tables(list(self._checked_pieces(names)), promote_options="permissive")
        return self._columns_of_piece(table, names, 0)

    def batches(self, names: Sequence[str]) -> Iterator[Mapping[str, TypedColumn]]:
        """The columns with these names, some rows at a time."""
        first = 0
        for piece in self._checked_pieces(names):
            yield self._columns_of_piece(piece, names, first)
            first += len(piece)

    def _columns_of_piece(self, table: pa.Table, names: Sequence[str], first: int) -> dict[str, TypedColumn]:
        """The columns with these names of some rows, of which `first` is the number of the first one."""
        from dpsweep.trainers.data.typed_columns import TypedColumn

        header = [composed_text(name) for name in table.column_names]
        check_header_has_columns_once(header, names, self.file)
        return {
            name: TypedColumn.from_chunked_array(name, self.file, table.column(header.index(name)), first)
            for name in names
        }

    def kinds_of_columns(self) -> Mapping[str, ColumnKind | None]:
        """All columns by their types; no record is read."""
        from dpsweep.trainers.data.typed_columns import kind_of_type

        with self._errors_refused():
            schema = self.format.schema(self.path)
        return {composed_text(field.name): kind_of_type(field.type) for field in schema}

    def content_hash_of_table(self) -> Content:
        """The names, types and values of all columns: the same for every compression and division of the rows."""
        return Content.from_chunks(self._bytes_of_columns())

    def _bytes_of_columns(self) -> Iterator[bytes]:
        """The names, types and values of all columns as bytes; one column at a time, if their names tell them apart."""
        import pyarrow as pa

        from dpsweep.trainers.data.typed_columns import column_type_and_values_as_bytes

        with self._errors_refused():
            names = self.format.schema(self.path).names
            alone = len({composed_text(name) for name in names}) == len(names)
            for read in [[composed_text(name)] for name in names] if alone else [None]:
                table = pa.concat_tables(list(self._checked_pieces(read)), promote_options="permissive")
                for name, column in zip(table.column_names, table.columns, strict=True):
                    yield f"{name}\n".encode()
                    yield from column_type_and_values_as_bytes(column)

    def _checked_pieces(self, names: Sequence[str] | None) -> Iterator[pa.Table]:
        """The pieces with these columns, each completely checked; one without rows if there is none."""
        with self._errors_refused():
            empty = _select_columns(self.format.schema(self.path).empty_table(), names)
            for piece in self.format.pieces(self.path, names):
                piece.validate(full=True)
                empty = None
                yield piece
            if empty is not None:
                yield empty

    @contextmanager
    def _errors_refused(self) -> Iterator[None]:
        """Errors of the file are refusals."""
        import pyarrow as pa

        try:
            yield
        except BadInput:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".") or type(error).__name__
            raise BadInput(f"Expected {self.file} to be a readable {self.format.kind}, got: {reason}.") from error


def is_hugging_face_saved_dataset_folder(path: Path) -> bool:
    """Whether a path is a folder that Hugging Face's `save_to_disk` wrote."""
    return any((path / name).is_file() for name in (STATE, SPLITS))


ROWS = 1 << 16
"""The rows of a Parquet file that are read at once."""


def parquet_pieces(path: Path, names: Sequence[str] | None) -> Iterator[pa.Table]:
    """The rows of a Parquet file, with checksums of its pages compared where there are any."""
    import pyarrow as pa
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        kept = _names_of_present_columns(names, file.schema_arrow.names)
        for batch in file.iter_batches(ROWS, columns=kept):
            yield pa.Table.from_batches([batch])


def parquet_parts_of_folder(path: Path) -> tuple[Path, ...]:
    """The Parquet files in a folder, by name; files whose names start with a dot or an underscore are none."""
    if not path.is_dir():
        return ()
    parts = (part for part in path.iterdir() if part.suffix.lower() in (".parquet", ".pq") and part.is_file())
    return tuple(sorted(part for part in parts if not part.name.startswith((".", "_"))))


def pieces_of_parquet_folder(path: Path, names: Sequence[str] | None) -> Iterator[pa.Table]:
    """The rows of all Parquet files in a folder, one file after another.

    Errors: `BadInput` for folders within it, whose names may be values of a column.
    """
    folders = sorted(part.name for part in path.iterdir() if part.is_dir() and not part.name.startswith((".", "_")))
    if folders:
        raise BadInput(
            f"Expected {path.name} to have Parquet files and no folders, got {folders[0]}: a value in a folder's name "
            "is no column here, so write the table with all of its columns."
        )
    for part in parquet_parts_of_folder(path):
        yield from parquet_pieces(part, names)


def parquet_schema(path: Path) -> pa.Schema:
    """The names and types of a Parquet file, or of the first one in a folder."""
    import pyarrow.parquet

    first = next(iter(parquet_parts_of_folder(path)), path)
    return pyarrow.parquet.read_schema(first)


def arrow_pieces(path: Path, names: Sequence[str] | None) -> Iterator[pa.Table]:
    """The rows of an Arrow or Feather file, or of a stream of Arrow data."""
    import pyarrow as pa

    with _opened_arrow_reader(path) as reader:
        stored = getattr(reader, "num_record_batches", None)
        for batch in reader if stored is None else map(reader.get_batch, range(stored)):
            yield _select_columns(pa.Table.from_batches([batch]), names)


def arrow_schema(path: Path) -> pa.Schema:
    """The names and types of an Arrow file, or of the first one that `save_to_disk` wrote."""
    if path.is_dir():
        path /= _arrow_file_names_of_saved_dataset(path)[0]
    with _opened_arrow_reader(path) as reader:
        return reader.schema


@contextmanager
def _opened_arrow_reader(path: Path) -> Iterator[Any]:
    """The reader of an Arrow file, or of a stream of Arrow data."""
    import pyarrow as pa

    with path.open("rb") as stream:
        is_file = stream.read(len(MAGIC)) == MAGIC
    with pa.OSFile(str(path)) as source:
        yield (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source)


def pieces_of_saved_dataset(path: Path, names: Sequence[str] | None) -> Iterator[pa.Table]:
    """The rows of one data set in a folder of `save_to_disk`."""
    for name in _arrow_file_names_of_saved_dataset(path):
        yield from arrow_pieces(path / name, names)


def _arrow_file_names_of_saved_dataset(path: Path) -> Sequence[str]:
    """The files of one data set in a folder of `save_to_disk`.

    Errors: `BadInput` for a folder of several data sets; it names them.
    """
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
    return files


def _names_of_present_columns(names: Sequence[str] | None, listed: Sequence[str]) -> list[str] | None:
    """The names as the table has them; None for all if one is missing or there twice, which has a message of ours."""
    composed = [composed_text(name) for name in listed]
    if names is None or any(composed.count(name) != 1 for name in names):
        return None
    return [listed[composed.index(name)] for name in names]


def _select_columns(table: pa.Table, names: Sequence[str] | None) -> pa.Table:
    kept = _names_of_present_columns(names, table.column_names)
    return table if kept is None else table.select(kept)


class TableFile(Protocol):
    """A table of the user on disk.

    Errors: `BadInput`, one sentence that names the file.
    """

    def read_columns(self, names: Sequence[str]) -> Mapping[str, TableColumn]:
        """The columns with these names, each there once."""

    def batches(self, names: Sequence[str]) -> Iterator[Mapping[str, TableColumn]]:
        """The same columns, some rows at a time; one batch at least."""

    def kinds_of_columns(self) -> Mapping[str, ColumnKind | None]:
        """All columns, and what their types say, None where there are none; no record is read."""

    def content_hash_of_table(self) -> Content:
        """The content that identifies the table."""


_PARQUET = ArrowFormat(kind="Parquet file", pieces=parquet_pieces, schema=parquet_schema)
_PARQUET_FOLDER = ArrowFormat(kind="folder of Parquet files", pieces=pieces_of_parquet_folder, schema=parquet_schema)
_ARROW = ArrowFormat(kind="Arrow file", pieces=arrow_pieces, schema=arrow_schema)
_SAVED_DATASET = ArrowFormat(kind="saved data set", pieces=pieces_of_saved_dataset, schema=arrow_schema)

FORMATS: Mapping[str, ArrowFormat] = {
    ".parquet": _PARQUET,
    ".pq": _PARQUET,
    ".arrow": _ARROW,
    ".feather": _ARROW,
    ".ipc": _ARROW,
}
"""The formats with types, by suffix; a table in a file with another suffix is read as CSV."""


def path_in_data_folder_or_absolute(file: str, folder: Path | None) -> Path:
    """The path of a file in the user's data folder, or the absolute path that the user wrote."""
    return (folder or Path()) / Path(file).expanduser()


def table_reader_for_file(name: str, file: str, folder: Path | None, dialect: Dialect = PLAIN) -> TableFile:
    """The user's table, found and in a format that can be read; `name` is the data set's, `dialect` that of texts.

    Errors: `BadInput`, one sentence that says what to do.
    """
    path = _require_existing_table_path(name, file, folder)
    if path.is_file() and path.suffix.lower() not in FORMATS:
        if path.suffix.lower() not in SPREADSHEETS:
            return CsvTable(path=path, file=file, dialect=dialect)
        require_spreadsheet_reader(file)
        return Spreadsheet(path=path, file=file, dialect=dialect)
    if dialect != PLAIN:
        raise BadInput(
            f"Expected dataset.delimiter, decimal, encoding and na_values to be left out with {file}, whose columns "
            "have types."
        )
    return find_table_file_with_typed_columns(name, file, folder)


def find_table_file_with_typed_columns(name: str, file: str, folder: Path | None) -> ArrowTable:
    """The user's table, found and in a format whose columns have types; `name` is the data set's.

    Errors: `BadInput`, one sentence that says what to do.
    """
    path = _require_existing_table_path(name, file, folder)
    if path.is_file() and path.suffix.lower() not in FORMATS:
        raise BadInput(f"Expected {file} to be a folder of save_to_disk, or a file with one of {', '.join(FORMATS)}.")
    if find_spec("pyarrow") is None:
        raise BadInput(f"Expected pyarrow to be installed, which reads {file}: pip install 'dpsweep[arrow]'.")
    of_folder = _SAVED_DATASET if is_hugging_face_saved_dataset_folder(path) else _PARQUET_FOLDER
    return ArrowTable(path=path, file=file, format=FORMATS[path.suffix.lower()] if path.is_file() else of_folder)


def _require_existing_table_path(name: str, file: str, folder: Path | None) -> Path:
    path = path_in_data_folder_or_absolute(file, folder)
    if not path.is_file() and not is_hugging_face_saved_dataset_folder(path) and not parquet_parts_of_folder(path):
        raise BadInput(f"{name} needs {path}: put it there, or say data=<folder> (or set DPSWEEP_DATA).")
    return path
