"""Tables of the user: numbers and categories as features, one column as label.

The preprocessing depends on the declaration alone: the user types in public bounds, categories and labels; none come
from the file. If one unit, for example a patient, has several rows, `unit_column` identifies the unit of each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.trainers.data.interface import check_declaration
from dpsweep.trainers.data.own.columns import listed_texts, public_bounds
from dpsweep.trainers.data.own.table_files import in_folder, table_file
from dpsweep.trainers.data.preprocessing import of_columns
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.units import by_unit

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.own.columns import TableColumn
    from dpsweep.trainers.data.preprocessing import Form


@dataclass(frozen=True, kw_only=True)
class Table:
    """The rows of a CSV, Parquet or Arrow file, or of a folder of Hugging Face's `save_to_disk`; all are private.

    `file` is relative to the user's data folder, or absolute. `label` is the column to predict, `labels` the public
    list of its values; `bounds` gives the public range of each feature that is a number, `categories` the public list
    of values of each other feature. A category that is not in its list is a row of zeros. If there is a `unit_column`,
    rows with equal values in it are one unit; `units` is the nominal number of units, and each keeps at most
    `contribution_cap` rows. The rows of `test_file`, if there is one, are public.
    Shapes: features float32 [n, width] in [0, 1], in the alphabetical order of their columns; a category is one-hot.
    """

    name: str
    records: int
    shape: tuple[int, ...]
    classes: int
    unit: str
    file: str
    label: str
    labels: tuple[str, ...]
    bounds: Mapping[str, tuple[float, float]]
    categories: Mapping[str, tuple[str, ...]] | None = None
    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None
    test_file: str | None = None
    test_records: int = 0
    public: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        _check_names(self)
        object.__setattr__(self, "labels", listed_texts("dataset.labels", self.labels))
        object.__setattr__(self, "bounds", dict(sorted(public_bounds(self.bounds).items())))
        object.__setattr__(self, "categories", _public_lists(self.categories or {}))
        check_declaration(self)
        if self.shape != (self._width,):
            raise ValueError(
                f"Expected dataset.shape={list(self.shape)} == [{self._width}], as many as bounds"
                f"{' and values of categories' if self.categories else ''}."
            )
        if self.classes != len(self.labels):
            raise ValueError(f"Expected dataset.classes={self.classes} == {len(self.labels)}, as many as labels.")
        if len(set(self._columns)) != len(self._columns):
            names = "label, unit_column, categories and bounds" if self.categories else "label, unit_column and bounds"
            raise ValueError(f"Expected dataset.{names}={list(self._columns)} to be distinct.")
        if (self.test_file is None) is not (self.test_records == 0):
            raise ValueError(
                f"Expected dataset.test_records={self.test_records} with dataset.test_file={self.test_file}: 0 and "
                "null, or the number of its rows and its path."
            )

    @property
    def preprocessing(self) -> Form:
        """The columns in alphabetical order."""
        return of_columns(self._features, self.bounds, self.labels, self.categories, unlisted="zeros")

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder."""
        for file in self._files:
            table_file(self.name, file, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum: a row that cannot be read must not cost budget."""
        for file in self._files:
            self._parse(file, folder)
        return (table_file(self.name, self.file, folder).content(),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows of `file` as private records, capped per unit, and those of `test_file` as public ones."""
        private = self._parse(self.file, folder)
        return private, None if self.test_file is None else self._parse(self.test_file, folder)

    def _parse(self, file: str, folder: Path | None) -> Records:
        """The records of a file, with their units if they are private and there is a `unit_column`."""
        import torch

        unit_column = self.unit_column if file == self.file else None
        names = (self.label, *(() if unit_column is None else (unit_column,)), *self._features)
        columns = table_file(self.name, file, folder).columns(names)
        features = np.column_stack([self._inputs(name, columns[name]) for name in self._features])
        records = Records(
            features=torch.from_numpy(features.astype(np.float32)),
            labels=torch.from_numpy(columns[self.label].positions(self.labels)),
        )
        if unit_column is None or self.contribution_cap is None:
            return records
        return by_unit(records, columns[unit_column].identifiers(), self.contribution_cap)

    def _inputs(self, name: str, column: TableColumn) -> NDArray[np.float64]:
        """The inputs [n, width] that a column gives."""
        listed = self._listed.get(name)
        return column.scaled(self.bounds[name])[:, None] if listed is None else column.one_hot(listed)

    @property
    def _listed(self) -> Mapping[str, tuple[str, ...]]:
        return self.categories or {}

    @property
    def _features(self) -> tuple[str, ...]:
        return tuple(sorted((*self.bounds, *self._listed)))

    @property
    def _width(self) -> int:
        return len(self.bounds) + sum(map(len, self._listed.values()))

    @property
    def _columns(self) -> tuple[str, ...]:
        """The columns that are used."""
        unit_columns = () if self.unit_column is None else (self.unit_column,)
        return (self.label, *unit_columns, *self._features)

    @property
    def _files(self) -> tuple[str, ...]:
        return (self.file,) if self.test_file is None else (self.file, self.test_file)


def _public_lists(categories: Mapping[str, Sequence[object]]) -> dict[str, tuple[str, ...]]:
    """The categories from a data set's YAML as texts, or a ValueError."""
    if not isinstance(categories, Mapping):
        raise ValueError(f"Expected dataset.categories={categories} to map columns to lists of their values.")
    return {
        name: listed_texts(f"dataset.categories.{name}", values)
        for name, values in sorted(categories.items(), key=lambda item: str(item[0]))
    }


def _check_names(table: Table) -> None:
    """Refuse names that are not texts: YAML reads unquoted yes, no, on and off as booleans, which match no cell."""
    for name in ("file", "label"):
        if not isinstance(getattr(table, name), str) or not getattr(table, name):
            raise ValueError(f"Expected dataset.{name}={getattr(table, name)!r} to be a text.")
    if table.test_file is not None and (not isinstance(table.test_file, str) or not table.test_file):
        raise ValueError(f"Expected dataset.test_file={table.test_file!r} to be null or a text.")
    if in_folder(table.file, None) == in_folder(table.test_file or "", None):
        raise ValueError(f"Expected dataset.test_file={table.test_file} to be another file than dataset.file.")
    for key in ("bounds", "categories"):
        for column in getattr(table, key) if isinstance(getattr(table, key), Mapping) else ():
            if not isinstance(column, str):
                raise ValueError(f"Expected dataset.{key}={column!r} to name a column; quote it.")
