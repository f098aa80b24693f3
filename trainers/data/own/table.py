"""Tables of the user: a CSV file with a header, numbers as features, one column as label.

The preprocessing depends on the declaration alone: the user types in public bounds and labels; none come from the file.
If one unit, for example a patient, has several rows, `unit_column` identifies the unit of each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.interface import check_declaration
from dpsweep.trainers.data.own.columns import Column, public_bounds
from dpsweep.trainers.data.own.csv_file import CsvFile, check_labels, check_names
from dpsweep.trainers.data.preprocessing import of_columns
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.units import by_unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form


@dataclass(frozen=True, kw_only=True)
class Table:
    """The rows of a CSV file; all of them are private.

    `file` is relative to the user's data folder, or absolute. `label` is the column to predict, `labels` the public
    list of its values; `bounds` gives each feature's public range. If there is a `unit_column`, rows with equal values
    in it are one unit; `units` is the nominal number of units, and each keeps at most `contribution_cap` rows.
    Shapes: features float32 [n, features] in [0, 1], in the alphabetical order of their columns.
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
    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None
    public: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        _check_names(self)
        object.__setattr__(self, "labels", tuple(map(str, self.labels)))
        object.__setattr__(self, "bounds", dict(sorted(public_bounds(self.bounds).items())))
        check_declaration(self)
        if self.shape != (len(self.bounds),):
            raise ValueError(f"Expected dataset.shape={list(self.shape)} == [{len(self.bounds)}], as many as bounds.")
        check_labels(self.labels, self.classes)
        if len(set(self._columns)) != len(self._columns):
            raise ValueError(f"Expected dataset.label, unit_column and bounds={list(self._columns)} to be distinct.")

    @property
    def test_records(self) -> int:
        """0: a table has no public part."""
        return 0

    @property
    def preprocessing(self) -> Form:
        """The bounded columns in alphabetical order."""
        return of_columns(self.bounds, self.bounds, self.labels)

    def locate(self, folder: Path | None) -> None:
        """Find the file in the user's folder."""
        self._csv.locate(folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum: a row that cannot be read must not cost budget."""
        self._parse(folder)
        return (self._csv.content(folder),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows as private records, capped per unit; there are no public records."""
        import torch

        features, labels, units = self._parse(folder)
        records = Records(features=torch.from_numpy(features), labels=torch.from_numpy(labels))
        if units is None or self.contribution_cap is None:
            return records, None
        return by_unit(records, units, self.contribution_cap), None

    def _parse(self, folder: Path | None) -> tuple[NDArray[np.float32], NDArray[np.int64], list[bytes] | None]:
        """The scaled features, the labels, and the units' identifiers if there is a `unit_column`."""
        columns = self._csv.columns(folder, self._columns)
        features = np.column_stack([columns[name].scaled(bounds) for name, bounds in self.bounds.items()])
        labels = columns[self.label].positions(self.labels)
        units = None if self.unit_column is None else _identifiers(columns[self.unit_column])
        return features.astype(np.float32), labels, units

    @property
    def _columns(self) -> tuple[str, ...]:
        """The columns that are used."""
        unit_columns = () if self.unit_column is None else (self.unit_column,)
        return (self.label, *unit_columns, *self.bounds)

    @property
    def _csv(self) -> CsvFile:
        return CsvFile(name=self.name, file=self.file)


def _check_names(table: Table) -> None:
    """Refuse names that are not texts."""
    check_names(table.file, (table.label,), table.labels)
    for column in table.bounds:
        if not isinstance(column, str):
            raise ValueError(f"Expected dataset.bounds={column!r} to name a column; quote it.")


def _identifiers(column: Column) -> list[bytes]:
    """The units' identifiers as the file's bytes, one per record; none may be missing."""
    for line, cell in column.cells.items():
        if not cell:
            raise BadInput(f"Expected {column.name} in line {line} of {column.file} to say whose record it is.")
    return [cell.encode("utf-8", "surrogateescape") for cell in column.cells.values()]
