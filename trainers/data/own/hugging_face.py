"""Data sets of Hugging Face's library on disk, with a picture or an array in each row; nothing is downloaded.

Their preprocessing depends on the declaration alone: the user types in shape, bounds and labels; none come from the
file. pyarrow reads the files, so the library itself is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.own.bounded import bounded_records, check_features, content_of
from dpsweep.trainers.data.own.columns import listed_texts, public_pair
from dpsweep.trainers.data.own.pictures import check_picture_shape, content_of_pictures, decoded, digests_of
from dpsweep.trainers.data.own.table_files import in_folder, typed_table
from dpsweep.trainers.data.preprocessing import of_bounded_array
from dpsweep.trainers.data.units import by_unit

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.own.arrow_columns import TypedColumn
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.records import Records


@dataclass(frozen=True, kw_only=True)
class HuggingFace(Declared):
    """The rows of a folder that `save_to_disk` wrote, or of a Parquet or Arrow file; all of them are private.

    `path` is relative to the user's data folder, or absolute. `features` is the column of the inputs: pictures (PNG or
    JPEG), or lists of numbers; `bounds` is the public range of every number. `label` is the column to predict, `labels`
    the public list of its values, in the order of the classes' numbers. If there is a `unit_column`, rows with equal
    values in it are one unit; `units` is the nominal number of units, and each keeps at most `contribution_cap` rows.
    The rows of `test_path`, if there is one, are public.
    A picture's part of a split is decided by the bytes of its file and its label, so it is the same on every machine.
    Shapes: features [n, *shape] in [0, 1], clamped and scaled, uint8 or float32.
    """

    path: str
    features: str
    label: str
    labels: tuple[str, ...]
    bounds: Sequence[float]
    test_path: str | None = None
    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None

    def _check(self) -> None:
        object.__setattr__(self, "labels", listed_texts("dataset.labels", self.labels))
        object.__setattr__(self, "bounds", public_pair("dataset.bounds", self.bounds))
        for name in ("path", "features", "label", "test_path"):
            value = getattr(self, name)
            if (not isinstance(value, str) or not value) and (name, value) != ("test_path", None):
                raise ValueError(f"Expected dataset.{name}={value!r} to be a text.")
        columns = [column for column in (self.features, self.label, self.unit_column) if column is not None]
        if len(set(columns)) != len(columns):
            raise ValueError(f"Expected dataset.features, label and unit_column={columns} to be distinct.")
        if self.classes != len(self.labels):
            raise ValueError(f"Expected dataset.classes={self.classes} == {len(self.labels)}, as many as labels.")
        if (self.test_path is None) is not (self.test_records == 0):
            raise ValueError(
                f"Expected dataset.test_records={self.test_records} with dataset.test_path={self.test_path}: 0 and "
                "null, or the number of its rows and its path."
            )
        if self.test_path is not None and in_folder(self.test_path, None) == in_folder(self.path, None):
            raise ValueError(f"Expected dataset.test_path={self.test_path} to be another one than dataset.path.")

    @property
    def file(self) -> str:
        """The path of the user's data; a data set with this attribute is never downloaded."""
        return self.path

    @property
    def preprocessing(self) -> Form:
        """The numbers or pixels, clamped and scaled."""
        return {**of_bounded_array(self.shape, self.bounds), "labels": list(self.labels)}

    def locate(self, folder: Path | None) -> None:
        """Find the folders or files."""
        for path in (self.path, self.test_path):
            if path is not None:
                typed_table(self.name, path, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum; the features identify the data set."""
        self.load(folder)
        column = typed_table(self.name, self.path, folder).columns([self.features])[self.features]
        pictures = column.is_pictures
        return (content_of_pictures(column.pictures()) if pictures else content_of(column.arrays(self.shape)),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private rows, capped per unit, and the public ones if there is a `test_path`."""
        private = self._records(self.path, folder, self.unit_column)
        return private, None if self.test_path is None else self._records(self.test_path, folder, None)

    def _records(self, path: str, folder: Path | None, unit_column: str | None) -> Records:
        names = (self.features, self.label, *(() if unit_column is None else (unit_column,)))
        columns = typed_table(self.name, path, folder).columns(names)
        features, labels = columns[self.features], columns[self.label].positions(self.labels)
        records = self._pictures(features, labels) if features.is_pictures else self._arrays(features, labels)
        if unit_column is None or self.contribution_cap is None:
            return records
        return by_unit(records, columns[unit_column].identifiers(), self.contribution_cap)

    def _pictures(self, column: TypedColumn, labels: NDArray[np.int64]) -> Records:
        try:
            check_picture_shape(self.shape)
        except ValueError as error:
            raise BadInput(str(error)) from error
        contents = column.pictures()
        pixels = np.empty((len(contents), *self.shape), dtype=np.uint8)
        for row, content in enumerate(contents):
            pixels[row] = decoded(content, self.shape, f"{self.features} in row {row} of {column.file}")
        low, high = self.bounds
        return replace(bounded_records(pixels, labels, (low, high)), stored=digests_of(contents, labels.tolist()))

    def _arrays(self, column: TypedColumn, labels: NDArray[np.int64]) -> Records:
        features = column.arrays(self.shape)
        check_features(features, self.shape, f"{self.features} in {column.file}")
        low, high = self.bounds
        return bounded_records(features, labels, (low, high))
