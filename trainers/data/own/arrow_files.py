"""Tables that pyarrow reads: Parquet files, Arrow (Feather) files, and folders of Hugging Face's `save_to_disk`.

Nothing is unpickled, and no file of a data set names code that runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.own.columns import check_header

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsweep.trainers.data.own.arrow_columns import TypedColumn

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

    def check(self) -> None:
        """Refuse the format where pyarrow is not installed."""
        if find_spec("pyarrow") is None:
            raise BadInput(f"Expected pyarrow to be installed, which reads {self.file}: pip install 'dpsweep[arrow]'.")

    def columns(self, names: Sequence[str]) -> dict[str, TypedColumn]:
        """The columns with these names."""
        from dpsweep.trainers.data.own.arrow_columns import TypedColumn

        table = self._table(names)
        check_header(table.column_names, names, self.file)
        return {name: TypedColumn.of(name, self.file, table.column(name)) for name in names}

    def content(self) -> Content:
        """The names, types and values of all columns: the same for every compression and division of the rows."""
        from dpsweep.trainers.data.own.arrow_columns import bytes_of

        table = self._table(None)
        return Content.of(
            chunk
            for name, column in zip(table.column_names, table.columns, strict=True)
            for chunk in (f"{name}\n".encode(), *bytes_of(column))
        )

    def _table(self, names: Sequence[str] | None) -> pa.Table:
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


def is_saved(path: Path) -> bool:
    """Whether a path is a folder that Hugging Face's `save_to_disk` wrote."""
    return any((path / name).is_file() for name in (STATE, SPLITS))


def read_parquet(path: Path, names: Sequence[str] | None) -> pa.Table:
    """The table in a Parquet file, with checksums of its pages compared where there are any."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(columns=_present(names, file.schema_arrow.names))


def read_arrow(path: Path, names: Sequence[str] | None) -> pa.Table:
    """The table in an Arrow or Feather file, or in a stream of Arrow data."""
    import pyarrow as pa

    with path.open("rb") as stream:
        is_file = stream.read(len(MAGIC)) == MAGIC
    with pa.OSFile(str(path)) as source:
        table = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).read_all()
    return _selected(table, names)


def read_saved(path: Path, names: Sequence[str] | None) -> pa.Table:
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


def _present(names: Sequence[str] | None, listed: Sequence[str]) -> list[str] | None:
    """The names that are there, so that a missing column has a message of ours; all if one of them is there twice."""
    if names is None or any(listed.count(name) > 1 for name in names):
        return None
    return [name for name in names if name in listed]


def _selected(table: pa.Table, names: Sequence[str] | None) -> pa.Table:
    kept = _present(names, table.column_names)
    return table if kept is None else table.select(kept)
