"""Arrays of the user: numpy's .npz files, folders of .npy files on disk, and map-style torch datasets.

Their preprocessing depends on the declaration alone: the user types in shape, bounds and labels; none come from the
file. A torch dataset, from the user or from torchvision, is read once from index 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import with_current_paths_of_our_classes
from dpsweep.trainers.data.arrays import (
    SUFFIX,
    UnreadableArray,
    are_bytes_within_bounds,
    are_floats_of_records,
    bounded_records,
    bounded_records_in_place,
    check_features_are_finite_of_shape,
    check_features_are_real_of_shape,
    content_hash_of_features,
    read_npy,
    read_npz_arrays_and_names,
    read_npz_shape_and_type,
    scaling_of_bounded_features,
    unit_identifier_of_each_record,
)
from dpsweep.trainers.data.arrays_on_disk import BoundedRows, FileStates, PassedRecords, RecordPass, RowFile
from dpsweep.trainers.data.columns import checked_public_range
from dpsweep.trainers.data.interface import DeclaredUnits, require_settings_are_texts
from dpsweep.trainers.data.preprocessing import of_bounded_array
from dpsweep.trainers.data.records import CONTRIBUTION_BYTES, CONTRIBUTION_KEY, FeatureRows, Records
from dpsweep.trainers.data.split import CONTENT_KEYS, HASH_BYTES
from dpsweep.trainers.data.table_files import path_in_data_folder_or_absolute
from dpsweep.trainers.data.targets import (
    check_labels_of_array_declaration,
    form_with_target,
    labels_of_array,
)
from dpsweep.trainers.user_modules import error_as_one_line, import_named_object

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form


@dataclass(frozen=True, kw_only=True)
class _NamedArrays(DeclaredUnits):
    """The declaration of arrays in numpy's files: `features` and `labels` name two of them, and all are private."""

    path: str
    features: str
    labels: str
    bounds: tuple[float, float]
    target: tuple[float, float] | None = None
    target_unit: str = ""
    label_names: tuple[str, ...] = ()

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "bounds", checked_public_range("dataset.bounds", self.bounds))
        check_labels_of_array_declaration(self)
        require_settings_are_texts(self, "path", "features", "labels")
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


@dataclass(frozen=True, kw_only=True)
class Npz(_NamedArrays):
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

    def locate(self, folder: Path | None) -> None:
        """Find the file in the user's folder."""
        if not (path := self._path(folder)).is_file():
            raise BadInput(f"{self.name} needs {path}: put it there, or say data=<folder> (or set DPSWEEP_DATA).")

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check both arrays completely, since there is no checksum.

        The features identify the data set, for every compression of the file.
        """
        features, _, _ = self._read_features_labels_and_units(folder)
        return (content_hash_of_features(features),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows of the arrays as private records, capped per unit; there are no public records."""
        features, labels, units = self._read_features_labels_and_units(folder)
        return self.in_units(bounded_records_in_place(features, labels, self.bounds), units), None

    def least_bytes_in_job(self, folder: Path | None) -> int:
        """The array of features as it is read and, if it is another one, as it is stored."""
        try:
            shape, dtype = read_npz_shape_and_type(self._path(folder), self.features)
        except UnreadableArray:
            return 0  # what is wrong with it is said where it is read
        kept = are_bytes_within_bounds(dtype, self.bounds) or are_floats_of_records(dtype)
        return math.prod(shape) * (dtype.itemsize + (0 if kept else 4))

    def _read_features_labels_and_units(
        self, folder: Path | None
    ) -> tuple[NDArray[np.generic], NDArray[np.generic], list[bytes] | None]:
        """The checked features and labels, and the units' identifiers if there is a `unit_column`."""
        self.locate(folder)
        arrays = self._read_named_arrays(self._path(folder))
        features, labels = arrays[self.features], arrays[self.labels]
        check_features_are_finite_of_shape(features, self.shape, f"{self.features} in {self.path}")
        labels = labels_of_array(labels, len(features), self, f"{self.labels} in {self.path}")
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


_ASKED_AGAIN = 64
"""The number of records of a torch dataset that are read once more before a charge, evenly spread."""


@dataclass(frozen=True, kw_only=True)
class Arrays(_NamedArrays):
    """The records of a folder of .npy files, which may be larger than memory; all of them are private.

    `path` is the folder, relative to the user's data folder, or absolute. `features` and `labels` name the files in it
    without their suffix; `bounds` is the public range of every number. If there is a `unit_column`, it names a file of
    texts or whole numbers, and records with equal values in it are one unit; `units` is the nominal number of units,
    and each keeps at most `contribution_cap` records. Records, splits and content are those of an .npz file with the
    same arrays, and so are labels. Features are passed once and then read batch by batch; a plan does not open them.
    Shapes: features [n, *shape] in [0, 1], clamped and scaled, uint8 or float32; labels whole numbers [n], float32 [n]
    in [0, 1] with a `target`, or float32 [n, names].
    """

    on_disk = True

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder."""
        for name in (self.features, self.labels, *(() if self.unit_column is None else (self.unit_column,))):
            if not (path := self._file(folder, name)).is_file():
                raise BadInput(f"{self.name} needs {path}: put it there, or say data=<folder> (or set DPSWEEP_DATA).")

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Pass over all records, since there is no checksum; the features identify the data set."""
        return self.verify_with_cache(folder, None)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows as private records, capped per unit, after a pass over them; there are no public records."""
        return self.load_with_cache(folder, None)

    def verify_with_cache(self, folder: Path | None, cache: Path | None) -> tuple[Content, ...]:
        """Pass over all records unless `cache` knows these files; the features identify the data set."""
        _, _, found, _ = self._find_or_pass_records(folder, cache)
        return (found.content,)

    def load_with_cache(self, folder: Path | None, cache: Path | None) -> tuple[Records, Records | None]:
        """All rows as private records, capped per unit; there are no public records."""
        import torch

        file, labels, found, units = self._find_or_pass_records(folder, cache)
        rows = BoundedRows(file=file, bounds=self.bounds, hashes=found.hashes)
        records = Records(
            features=FeatureRows(array=rows, positions=np.arange(len(labels))),
            labels=torch.from_numpy(labels),
            scaling=scaling_of_bounded_features(file.dtype, self.bounds),
        )
        return self.in_units(records, units), None

    def least_bytes_in_job(self, folder: Path | None) -> int:
        """Labels and positions of all records: features are read batch by batch."""
        return 16 * self.records

    def _find_or_pass_records(
        self, folder: Path | None, cache: Path | None
    ) -> tuple[RowFile, NDArray[np.generic], PassedRecords, list[bytes] | None]:
        """The file of features, the labels, what a pass found, and the units' identifiers if there is a column."""
        self.locate(folder)
        files = [self._file(folder, name) for name in (self.features, self.labels)]
        states = FileStates.of_files(files)
        with _refused_as_no_file_of_numbers(files[0]):
            file = RowFile.from_header(files[0])
        where = f"{self.features} in {self.path}"
        check_features_are_real_of_shape(file.dtype, file.shape, self.shape, where)
        labels = labels_of_array(
            self._read_small_array(folder, self.labels), file.shape[0], self, f"{self.labels} in {self.path}"
        )
        units = None
        if self.unit_column is not None:
            column = self._read_small_array(folder, self.unit_column)
            units = unit_identifier_of_each_record(column, file.shape[0], f"{self.unit_column} in {self.path}")
        sizes = dict.fromkeys(CONTENT_KEYS, HASH_BYTES) if units is None else {CONTRIBUTION_KEY: CONTRIBUTION_BYTES}
        looked = RecordPass(file=file, bounds=self.bounds, sizes=sizes, files=files, states=states, where=where)
        return file, labels, looked.find_or_pass_records(labels, cache), units

    def _read_small_array(self, folder: Path | None, name: str) -> NDArray[np.generic]:
        path = self._file(folder, name)
        with _refused_as_no_file_of_numbers(path):
            return read_npy(path)

    def _file(self, folder: Path | None, name: str) -> Path:
        return path_in_data_folder_or_absolute(self.path, folder) / f"{name}{SUFFIX}"


@contextmanager
def _refused_as_no_file_of_numbers(path: Path) -> Iterator[None]:
    try:
        yield
    except UnreadableArray as error:
        raise BadInput(f"Expected {path} to be a whole .npy file of numbers, got: {error}.") from error


@dataclass(frozen=True, kw_only=True)
class TorchDataset(DeclaredUnits):
    """The pairs of input and label that a dataset returns at indices 0, 1, ...; all of them are private.

    `source` names an importable class by `_target_` and gives its arguments; `bounds` is the public range of every
    number. If there is a `unit_column`, the dataset has an attribute of this name with a text or whole number for each
    index, and records with equal values in it are one unit; `units` is the nominal number of units, and each keeps at
    most `contribution_cap` records. Nothing is imported before a sweep needs the records.
    Guarantee: inputs are clamped to `bounds` and scaled to [0, 1]. Where the user's class gives each record from that
    record alone, and the same in every process, no held-out record is trained on.
    Why: a search is charged the larger of training and scoring, not their sum, so no run may train on a record by which
    another is scored. A load reads each record once, and the record's part of the split is a function of that reading,
    of its unit or of its position: all runs of one load agree. Loads in other processes agree if they read the same.
    Before a charge, `verify` reads each record once and asks for 64 of them once more, at indices that depend on the
    number of records alone: of the same object, and of a new one, as a job makes it, the last index first. Refused are
    random transforms, states that count readings, and orders or samples drawn when the object is made, unless all of
    these records happen to be the same three times: a transform that changes one reading in ten escapes with a
    probability below 1e-8. The digest of all inputs, which `verify` returns, is compared by the ledger with those of
    earlier commands, and by the coordinator with that of a `verify` after the runs have ended: the user is told that
    they differ. Jobs do not know the digest. So what differs in jobs alone, by process, machine or time, nobody
    notices, and the author of the class has to leave it out.
    Labels are whole numbers, numbers in a `target` range, or with `label_names` a list of 0 and 1 for each record.
    Shapes: features [n, *shape] in [0, 1], uint8 or float32.
    """

    source: Mapping[str, Any]
    bounds: tuple[float, float]
    target: tuple[float, float] | None = None
    target_unit: str = ""
    label_names: tuple[str, ...] = ()

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "bounds", checked_public_range("dataset.bounds", self.bounds))
        check_labels_of_array_declaration(self)
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
        return form_with_target(of_bounded_array(self.shape, self.bounds), self)

    def locate(self, folder: Path | None) -> None:
        """Do nothing: the user's class finds its own files."""

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every record, since there is no checksum, and a few once more; the features identify the data set."""
        source, size = self._dataset_and_record_count()
        features, labels, _ = self._read_features_labels_and_units(source, size)
        self._check_few_are_the_same_again(source, features, labels)
        del source  # it may keep all of its files in memory
        source, size = self._dataset_and_record_count()
        if size != len(features):
            raise BadInput(
                f"Expected {self._target_import_path} to have the same length whenever it is made, got {len(features)} "
                f"and {size}."
            )
        self._check_few_are_the_same_again(source, features, labels)
        return (content_hash_of_features(features),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All records as private records, each read once, capped per unit; there are no public records."""
        features, read, units = self._read_features_labels_and_units(*self._dataset_and_record_count())
        labels = labels_of_array(read, len(features), self, f"the labels of {self._target_import_path}")
        return self.in_units(bounded_records(features, labels, self.bounds), units), None

    def _read_features_labels_and_units(
        self, source: Any, size: int
    ) -> tuple[NDArray[np.generic], NDArray[np.generic], list[bytes] | None]:
        """The checked features and labels as given, each read once, and the units' identifiers if there are any."""
        labels = np.zeros((size, len(self.label_names)) if self.label_names else size, dtype=self._type_of_labels)
        features: NDArray[np.generic] = np.empty((size, *self.shape), dtype=np.float32)
        for index in range(size):
            record, labels[index] = self._read_features_and_label(source, index)
            if index == 0:
                features = np.empty((size, *self.shape), dtype=record.dtype)
            if (record.shape, record.dtype) != (self.shape, features.dtype):
                raise BadInput(
                    f"Expected {self._target_import_path} to give {features.dtype} of shape {list(self.shape)} at "
                    f"index {index}, got {record.dtype} of {list(record.shape)}."
                )
            features[index] = record
        check_features_are_finite_of_shape(features, self.shape, f"the inputs of {self._target_import_path}")
        labels_of_array(labels, size, self, f"the labels of {self._target_import_path}")
        return features, labels, None if self.unit_column is None else self._unit_identifiers(source, size)

    def _check_few_are_the_same_again(
        self, source: Any, features: NDArray[np.generic], labels: NDArray[np.generic]
    ) -> None:
        """Refuse a dataset that gives another input or label at one of a few indices than it gave before."""
        few = np.unique(np.linspace(0, len(labels) - 1, min(_ASKED_AGAIN, len(labels)), dtype=np.int64))
        for index in reversed(few.tolist()):
            record, label = self._read_features_and_label(source, index)
            same = np.array_equal(label, labels[index]) and np.array_equal(record, features[index])
            if record.dtype != features.dtype or not same:
                raise BadInput(
                    f"Expected {self._target_import_path} to give the same at index {index} whenever it is asked: "
                    "otherwise a held-out record could be trained on in another process. Remove random transforms, and "
                    "anything drawn or counted when it is made or read."
                )

    def _unit_identifiers(self, source: Any, size: int) -> list[bytes]:
        where = f"{self.unit_column} of {self._target_import_path}"
        try:
            units = np.asarray(getattr(source, str(self.unit_column)))
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(f"Expected {where} to say whose each record is, got {error_as_one_line(error)}.") from error
        return unit_identifier_of_each_record(units, size, where)

    def _dataset_and_record_count(self) -> tuple[Any, int]:
        """The dataset and its number of records."""
        try:
            source = import_named_object(self._target_import_path)(
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
                f"got {error_as_one_line(error)}."
            ) from error

    @property
    def _type_of_labels(self) -> type[np.generic]:
        return np.int64 if self.target is None and not self.label_names else np.float64

    def _read_features_and_label(self, source: Any, index: int) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        what = "a whole number" if self._type_of_labels is np.int64 else "a number"
        if self.label_names:
            what = f"{len(self.label_names)} numbers of 0 and 1"
        try:
            features, label = source[index]
            numbers = np.asarray(operator.index(label) if self._type_of_labels is np.int64 else label)
            if numbers.shape != ((len(self.label_names),) if self.label_names else ()):
                raise ValueError(f"labels of shape {list(numbers.shape)}")
            return np.asarray(features), numbers.astype(self._type_of_labels)
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(
                f"Expected {self._target_import_path} to give an input and {what} as label at index {index}, "
                f"got {error_as_one_line(error)}."
            ) from error
