"""Data sets of Hugging Face's library on disk, and Parquet or Arrow files, with a picture or an array in each row.

The preprocessing depends on the declaration alone. Nothing is downloaded, and pyarrow reads the files, so the library
itself is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.arrays import (
    bounded_records,
    check_features_are_finite_of_shape,
    content_hash_of_features,
)
from dpsweep.trainers.data.columns import checked_public_range, checked_public_texts
from dpsweep.trainers.data.interface import (
    DeclaredUnits,
    check_classes_are_labels,
    check_public_file_declaration,
    require_distinct_columns,
    require_settings_are_texts,
)
from dpsweep.trainers.data.mismatches import mismatches_refused
from dpsweep.trainers.data.pictures import (
    Orientation,
    PictureDeclaration,
    checked_orientation,
    content_fingerprint_of_pictures,
    digests_of_pictures_and_labels,
)
from dpsweep.trainers.data.preprocessing import of_bounded_array
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.table_files import find_table_file_with_typed_columns
from dpsweep.trainers.data.targets import (
    checked_label_names,
    form_with_target,
    labels_of_columns,
    names_of_label_columns,
    one_number_per_record,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.typed_columns import TypedColumn


@dataclass(frozen=True, kw_only=True)
class HuggingFace(DeclaredUnits):
    """The rows of a folder that `save_to_disk` wrote, or of a Parquet or Arrow file; all of them are private.

    `path` is relative to the user's data folder, or absolute. `features` is the column of the inputs: pictures (PNG or
    JPEG), or lists of numbers; `bounds` is the public range of every number. `label` is the column to predict, `labels`
    the public list of its values, in the order of the classes' numbers; a list as `label` names the columns of several
    labels per record, which have the same two values. If there is a `unit_column`, rows with equal values in it are one
    unit; `units` is the nominal number of units, and each keeps at most `contribution_cap` rows. The rows of
    `test_path`, if there is one, are public.
    A picture's part of a split is decided by the bytes of its file and its label, so it is the same on every machine.
    `orientation` says what the orientation in a picture's EXIF data does; an upper bound above 256 says that all
    pictures have 16 bits a channel.
    Shapes: features [n, *shape] in [0, 1], clamped and scaled, uint8 or float32.
    """

    is_local = True

    path: str
    features: str
    label: str | tuple[str, ...]
    labels: tuple[str, ...]
    bounds: tuple[float, float]
    test_path: str | None = None
    orientation: str = Orientation.STORED.value

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "labels", checked_public_texts("dataset.labels", self.labels))
        object.__setattr__(self, "bounds", checked_public_range("dataset.bounds", self.bounds))
        checked_orientation(self.orientation)
        if self.label_names:
            object.__setattr__(self, "label", checked_label_names(self, self.labels))
        else:
            check_classes_are_labels(self, self.labels)
            require_settings_are_texts(self, "label")
        require_settings_are_texts(self, "path", "features")
        require_distinct_columns(
            "features, label and unit_column", (self.features, *self._label_columns, self.unit_column)
        )
        check_public_file_declaration(self, "path", "test_path", "rows")

    @property
    def label_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of several labels; empty if there is one."""
        return names_of_label_columns(self.label)

    @property
    def _label_columns(self) -> tuple[str, ...]:
        return self.label_names or (str(self.label),)

    @property
    def preprocessing(self) -> Form:
        """The numbers or pixels, clamped and scaled."""
        form = of_bounded_array(self.shape, self.bounds, orientation=self.orientation)
        return form_with_target({**form, "labels": list(self.labels)}, self)

    def locate(self, folder: Path | None) -> None:
        """Find the folders or files."""
        for path in (self.path, self.test_path):
            if path is not None:
                find_table_file_with_typed_columns(self.name, path, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum; the features identify the data set."""
        self.load(folder)
        column = find_table_file_with_typed_columns(self.name, self.path, folder).read_columns([self.features])[
            self.features
        ]
        pictures = column.has_picture_files
        return (
            content_fingerprint_of_pictures(column.bytes_of_picture_files())
            if pictures
            else content_hash_of_features(column.numbers_of_nested_lists(self.shape)),
        )

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private rows, capped per unit, and the public ones if there is a `test_path`."""
        private = self._read_records(self.path, folder, self.unit_column)
        return private, None if self.test_path is None else self._read_records(self.test_path, folder, None)

    def _read_records(self, path: str, folder: Path | None, unit_column: str | None) -> Records:
        names = (self.features, *self._label_columns, *(() if unit_column is None else (unit_column,)))
        columns = find_table_file_with_typed_columns(self.name, path, folder).read_columns(names)
        features = columns[self.features]
        with mismatches_refused() as found:
            labels = labels_of_columns([columns[name] for name in self._label_columns], self, self.labels, found)
        records = (
            self._records_from_picture_column(features, labels)
            if features.has_picture_files
            else self._records_from_array_column(features, labels)
        )
        return self.in_units(records, None if unit_column is None else columns[unit_column].unit_identifiers())

    def _records_from_picture_column(self, column: TypedColumn, labels: NDArray[np.generic]) -> Records:
        try:
            declaration = PictureDeclaration(
                shape=self.shape,
                orientation=checked_orientation(self.orientation),
                largest=self.bounds[1],
                range_key="dataset.bounds",
                range_value=list(self.bounds),
                range_form="[0, {}]",
            )
        except ValueError as error:
            raise BadInput(str(error)) from error
        contents = column.bytes_of_picture_files()
        names = [f"{self.features} in row {row}" for row in range(len(contents))]
        pixels = declaration.decode_pictures(contents, names, f"of {column.file}")
        return replace(
            bounded_records(pixels, labels, self.bounds),
            stored=digests_of_pictures_and_labels(contents, one_number_per_record(labels)),
        )

    def _records_from_array_column(self, column: TypedColumn, labels: NDArray[np.generic]) -> Records:
        if self.orientation != Orientation.STORED:
            raise BadInput(
                f"Expected dataset.orientation={self.orientation} to be stored: {self.features} in {column.file} holds "
                "numbers, not pictures."
            )
        features = column.numbers_of_nested_lists(self.shape)
        check_features_are_finite_of_shape(features, self.shape, f"{self.features} in {column.file}")
        return bounded_records(features, labels, self.bounds)
