"""Arrays of the user: numpy's .npz files, map-style torch datasets, and data sets of Hugging Face's library on disk.

Their preprocessing depends on the declaration alone: the user types in shape, bounds and labels; none come from the
file. A torch dataset, from the user or from torchvision, is read once from index 0. A saved data set has a picture or
an array in each row; nothing is downloaded, and pyarrow reads the files, so the library itself is not needed.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import with_current_paths_of_our_classes
from dpsweep.trainers.data.arrays import (
    UnreadableArray,
    bounded_records,
    check_features_are_finite_of_shape,
    check_labels_are_class_numbers,
    content_hash_of_features,
    read_npz_arrays_and_names,
    unit_identifier_of_each_record,
)
from dpsweep.trainers.data.columns import checked_public_range, checked_public_texts
from dpsweep.trainers.data.interface import DeclaredUnits
from dpsweep.trainers.data.preprocessing import of_bounded_array
from dpsweep.trainers.data.sets.own_pictures import (
    check_picture_shape,
    content_fingerprint_of_pictures,
    decode_picture,
    digests_of_pictures_and_labels,
)
from dpsweep.trainers.data.table_files import find_table_file_with_typed_columns, path_in_data_folder_or_absolute
from dpsweep.trainers.data.targets import (
    check_target_declaration,
    checked_label_names,
    form_with_target,
    labels_of_columns,
    names_of_label_columns,
    one_number_per_record,
    scaled_targets_of_array,
    several_labels_of_array,
)
from dpsweep.trainers.user_modules import allow_import_of_module_of_user_class

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.columns import TypedColumn
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.records import Records


@dataclass(frozen=True, kw_only=True)
class Npz(DeclaredUnits):
    """The records of an .npz file, one array of features and one of labels; all of them are private.

    `path` is relative to the user's data folder, or absolute; `features` and `labels` name the arrays in it; `bounds`
    is the public range of every number. If there is a `unit_column`, it names an array of texts or whole numbers, and
    records with equal values in it are one unit; `units` is the nominal number of units, and each keeps at most
    `contribution_cap` records. With a `target`, labels are numbers in this public range; with `label_names`, a record
    has a label of 0 or 1 for each of these names. Nothing is unpickled.
    Shapes: features [n, *shape] in [0, 1], clamped and scaled, uint8 or float32; labels whole numbers [n], float32 [n]
    in [0, 1] with a `target`, or float32 [n, names].
    """

    is_local = True

    path: str
    features: str
    labels: str
    bounds: Sequence[float]
    target: tuple[float, float] | None = None
    target_unit: str = ""
    label_names: tuple[str, ...] = ()

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "bounds", checked_public_range("dataset.bounds", self.bounds))
        object.__setattr__(self, "label_names", checked_label_names(self, None))
        object.__setattr__(self, "target", check_target_declaration(self))
        for name in ("path", "features", "labels"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"Expected dataset.{name}={getattr(self, name)!r} to be a text.")
        if self.classes == 1 and self.target is None:
            raise ValueError("Expected dataset.target, the public range of labels that are numbers, with classes=1.")
        if self.features == self.labels:
            raise ValueError(f"Expected dataset.features={self.features} and labels to be two arrays.")
        if self.unit_column in (self.features, self.labels):
            raise ValueError(f"Expected dataset.unit_column={self.unit_column} to be an array of its own.")
        if self.test_records:
            raise ValueError(f"Expected dataset.test_records={self.test_records} == 0: all of the file is private.")

    @property
    def preprocessing(self) -> Form:
        """The features, clamped and scaled."""
        return form_with_target(of_bounded_array(self.shape, self.bounds), self)

    def locate(self, folder: Path | None) -> None:
        """Find the file in the user's folder."""
        if not (path := self._path(folder)).is_file():
            raise BadInput(f"{self.name} needs {path}: put it there, or say DATA=<folder> (or set DPSWEEP_DATA).")

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check both arrays completely, since there is no checksum.

        The features identify the data set, for every compression of the file.
        """
        features, _, _ = self._read_features_labels_and_units(folder)
        return (content_hash_of_features(features),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows of the arrays as private records, capped per unit; there are no public records."""
        low, high = self.bounds
        features, labels, units = self._read_features_labels_and_units(folder)
        return self.in_units(bounded_records(features, labels, (low, high)), units), None

    def _read_features_labels_and_units(
        self, folder: Path | None
    ) -> tuple[NDArray[np.generic], NDArray[np.generic], list[bytes] | None]:
        """The checked features and labels, and the units' identifiers if there is a `unit_column`."""
        self.locate(folder)
        arrays = self._read_named_arrays(self._path(folder))
        features, labels = arrays[self.features], arrays[self.labels]
        check_features_are_finite_of_shape(features, self.shape, f"{self.features} in {self.path}")
        where = f"{self.labels} in {self.path}"
        if self.label_names:
            labels = several_labels_of_array(labels, len(features), self.label_names, where)
        elif self.target is not None:
            labels = scaled_targets_of_array(labels, len(features), self.target, where)
        else:
            check_labels_are_class_numbers(labels, len(features), self.classes, where)
        if self.unit_column is None:
            return features, labels, None
        where = f"{self.unit_column} in {self.path}"
        return features, labels, unit_identifier_of_each_record(arrays[self.unit_column], len(features), where)

    def _read_named_arrays(self, path: Path) -> dict[str, NDArray[np.generic]]:
        names = [name for name in (self.features, self.labels, self.unit_column) if name is not None]
        try:
            arrays, listed = read_npz_arrays_and_names(path, names)
        except UnreadableArray as error:
            raise BadInput(f"Expected {self.path} to be a whole .npz file of numbers, got: {error}.") from error
        for name in names:
            if name not in arrays:
                raise BadInput(f"Expected {name} among the arrays of {self.path}, got {', '.join(listed) or 'none'}.")
        return arrays

    def _path(self, folder: Path | None) -> Path:
        return (folder or Path()) / Path(self.path).expanduser()


@dataclass(frozen=True, kw_only=True)
class TorchDataset(DeclaredUnits):
    """The pairs of input and label that a dataset returns at indices 0, 1, ...; all of them are private.

    `source` names an importable class by `_target_` and gives its arguments; `bounds` is the public range of every
    number. If there is a `unit_column`, the dataset has an attribute of this name with a text or whole number for each
    index, and records with equal values in it are one unit; `units` is the nominal number of units, and each keeps at
    most `contribution_cap` records. Nothing is imported before a sweep needs the records.
    Guarantee: inputs are clamped to `bounds` and scaled to [0, 1], and are equal when read twice. The user's class must
    ensure that each input is a function of its own record alone and the same in every process: no random transforms,
    no statistics of other records.
    Shapes: features [n, *shape] in [0, 1], uint8 or float32.
    """

    source: Mapping[str, Any]
    bounds: Sequence[float]

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "bounds", checked_public_range("dataset.bounds", self.bounds))
        if not isinstance(self.source, Mapping) or "." not in str(self.source.get("_target_")):
            raise ValueError(f"Expected dataset.source={self.source!r} to have _target_, a class as module.Class.")
        if self.test_records:
            raise ValueError(f"Expected dataset.test_records={self.test_records} == 0: all of it is private.")

    @property
    def _target_import_path(self) -> str:
        return str(self.source["_target_"])

    @property
    def preprocessing(self) -> Form:
        """The inputs of the user's class, clamped and scaled."""
        return of_bounded_array(self.shape, self.bounds)

    def locate(self, folder: Path | None) -> None:
        """Do nothing: the user's class finds its own files."""

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every record, since there is no checksum; the features identify the data set."""
        return (content_hash_of_features(self._read_features_labels_and_units()[0]),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All records as private records, capped per unit; there are no public records."""
        low, high = self.bounds
        features, labels, units = self._read_features_labels_and_units()
        return self.in_units(bounded_records(features, labels, (low, high)), units), None

    def _read_features_labels_and_units(self) -> tuple[NDArray[np.generic], NDArray[np.int64], list[bytes] | None]:
        """The checked features and labels, and the units' identifiers if there is a `unit_column`."""
        source, size = self._dataset_and_record_count()
        labels = np.zeros(size, dtype=np.int64)
        features: NDArray[np.generic] = np.empty((size, *self.shape), dtype=np.float32)
        for index in range(size):
            record, labels[index] = self._read_features_and_label(source, index)
            second, second_label = self._read_features_and_label(source, index)
            nan_allowed = record.dtype.kind == "f"
            if second_label != labels[index] or not np.array_equal(record, second, equal_nan=nan_allowed):
                raise BadInput(
                    f"Expected {self._target_import_path} to give the same at index {index} whenever it is asked: "
                    "otherwise a "
                    "held-out record could be trained on in another process. Remove random transforms."
                )
            if index == 0:
                features = np.empty((size, *self.shape), dtype=record.dtype)
            if (record.shape, record.dtype) != (self.shape, features.dtype):
                raise BadInput(
                    f"Expected {self._target_import_path} to give {features.dtype} of shape {list(self.shape)} at "
                    f"index {index}, "
                    f"got {record.dtype} of {list(record.shape)}."
                )
            features[index] = record
        check_features_are_finite_of_shape(features, self.shape, f"the inputs of {self._target_import_path}")
        check_labels_are_class_numbers(labels, size, self.classes, f"the labels of {self._target_import_path}")
        return features, labels, None if self.unit_column is None else self._unit_identifiers(source, size)

    def _unit_identifiers(self, source: Any, size: int) -> list[bytes]:
        where = f"{self.unit_column} of {self._target_import_path}"
        try:
            units = np.asarray(getattr(source, str(self.unit_column)))
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(f"Expected {where} to say whose each record is, got {_error_as_one_line(error)}.") from error
        return unit_identifier_of_each_record(units, size, where)

    def _dataset_and_record_count(self) -> tuple[Any, int]:
        """The dataset and its number of records."""
        module, _, name = self._target_import_path.rpartition(".")
        allow_import_of_module_of_user_class(self._target_import_path)
        try:
            kind = getattr(import_module(module), name)
            source = kind(
                **{
                    key: value
                    for key, value in with_current_paths_of_our_classes(self.source).items()
                    if key != "_target_"
                }
            )
            return source, len(source)
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(
                f"Expected dataset.source._target_={self._target_import_path} to make a dataset with a length, "
                f"got {_error_as_one_line(error)}."
            ) from error

    def _read_features_and_label(self, source: Any, index: int) -> tuple[NDArray[np.generic], int]:
        try:
            features, label = source[index]
            return np.asarray(features), operator.index(label)
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(
                f"Expected {self._target_import_path} to give an input and a whole number as label at index {index}, "
                f"got {_error_as_one_line(error)}."
            ) from error


def _error_as_one_line(error: Exception) -> str:
    """An error from the user's code as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")


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
    Shapes: features [n, *shape] in [0, 1], clamped and scaled, uint8 or float32.
    """

    is_local = True

    path: str
    features: str
    label: str | tuple[str, ...]
    labels: tuple[str, ...]
    bounds: Sequence[float]
    test_path: str | None = None

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "labels", checked_public_texts("dataset.labels", self.labels))
        object.__setattr__(self, "bounds", checked_public_range("dataset.bounds", self.bounds))
        if self.label_names:
            object.__setattr__(self, "label", checked_label_names(self, self.labels))
        for name in ("path", "features", "test_path", *(() if self.label_names else ("label",))):
            value = getattr(self, name)
            if (not isinstance(value, str) or not value) and (name, value) != ("test_path", None):
                raise ValueError(f"Expected dataset.{name}={value!r} to be a text.")
        columns = [one for one in (self.features, *self._label_columns, self.unit_column) if one is not None]
        if len(set(columns)) != len(columns):
            raise ValueError(f"Expected dataset.features, label and unit_column={columns} to be distinct.")
        if not self.label_names and self.classes != len(self.labels):
            raise ValueError(f"Expected dataset.classes={self.classes} == {len(self.labels)}, as many as labels.")
        if (self.test_path is None) is not (self.test_records == 0):
            raise ValueError(
                f"Expected dataset.test_records={self.test_records} with dataset.test_path={self.test_path}: 0 and "
                "null, or the number of its rows and its path."
            )
        if self.test_path is not None and path_in_data_folder_or_absolute(
            self.test_path, None
        ) == path_in_data_folder_or_absolute(self.path, None):
            raise ValueError(f"Expected dataset.test_path={self.test_path} to be another one than dataset.path.")

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
        return form_with_target({**of_bounded_array(self.shape, self.bounds), "labels": list(self.labels)}, self)

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
        labels = labels_of_columns([columns[name] for name in self._label_columns], self, self.labels)
        records = (
            self._records_from_picture_column(features, labels)
            if features.has_picture_files
            else self._records_from_array_column(features, labels)
        )
        return self.in_units(records, None if unit_column is None else columns[unit_column].unit_identifiers())

    def _records_from_picture_column(self, column: TypedColumn, labels: NDArray[np.generic]) -> Records:
        try:
            check_picture_shape(self.shape)
        except ValueError as error:
            raise BadInput(str(error)) from error
        contents = column.bytes_of_picture_files()
        pixels = np.empty((len(contents), *self.shape), dtype=np.uint8)
        for row, content in enumerate(contents):
            pixels[row] = decode_picture(content, self.shape, f"{self.features} in row {row} of {column.file}")
        low, high = self.bounds
        return replace(
            bounded_records(pixels, labels, (low, high)),
            stored=digests_of_pictures_and_labels(contents, one_number_per_record(labels)),
        )

    def _records_from_array_column(self, column: TypedColumn, labels: NDArray[np.generic]) -> Records:
        features = column.numbers_of_nested_lists(self.shape)
        check_features_are_finite_of_shape(features, self.shape, f"{self.features} in {column.file}")
        low, high = self.bounds
        return bounded_records(features, labels, (low, high))
