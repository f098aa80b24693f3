"""Map-style torch datasets, from the user or from torchvision, read once from index 0."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.stored_classes import at_home
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.own.bounded import (
    bounded_records,
    check_features,
    check_labels,
    content_of,
    identifiers_of,
)
from dpsweep.trainers.data.own.columns import public_pair
from dpsweep.trainers.data.preprocessing import of_bounded_array
from dpsweep.trainers.data.units import by_unit
from dpsweep.trainers.user_modules import name_module

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.records import Records


@dataclass(frozen=True, kw_only=True)
class TorchDataset(Declared):
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
    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None

    def _check(self) -> None:
        object.__setattr__(self, "bounds", public_pair("dataset.bounds", self.bounds))
        if not isinstance(self.source, Mapping) or "." not in str(self.source.get("_target_")):
            raise ValueError(f"Expected dataset.source={self.source!r} to have _target_, a class as module.Class.")
        if self.test_records:
            raise ValueError(f"Expected dataset.test_records={self.test_records} == 0: all of it is private.")

    @property
    def _target(self) -> str:
        return str(self.source["_target_"])

    @property
    def preprocessing(self) -> Form:
        """The inputs of the user's class, clamped and scaled."""
        return of_bounded_array(self.shape, self.bounds)

    def locate(self, folder: Path | None) -> None:
        """Do nothing: the user's class finds its own files."""

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every record, since there is no checksum; the features identify the data set."""
        return (content_of(self._read()[0]),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All records as private records, capped per unit; there are no public records."""
        low, high = self.bounds
        features, labels, units = self._read()
        records = bounded_records(features, labels, (low, high))
        if units is None or self.contribution_cap is None:
            return records, None
        return by_unit(records, units, self.contribution_cap), None

    def _read(self) -> tuple[NDArray[np.generic], NDArray[np.int64], list[bytes] | None]:
        """The checked features and labels, and the units' identifiers if there is a `unit_column`."""
        source, size = self._dataset()
        labels = np.zeros(size, dtype=np.int64)
        features: NDArray[np.generic] = np.empty((size, *self.shape), dtype=np.float32)
        for index in range(size):
            record, labels[index] = self._pair(source, index)
            second, second_label = self._pair(source, index)
            nan_allowed = record.dtype.kind == "f"
            if second_label != labels[index] or not np.array_equal(record, second, equal_nan=nan_allowed):
                raise BadInput(
                    f"Expected {self._target} to give the same at index {index} whenever it is asked: otherwise a "
                    "held-out record could be trained on in another process. Remove random transforms."
                )
            if index == 0:
                features = np.empty((size, *self.shape), dtype=record.dtype)
            if (record.shape, record.dtype) != (self.shape, features.dtype):
                raise BadInput(
                    f"Expected {self._target} to give {features.dtype} of shape {list(self.shape)} at index {index}, "
                    f"got {record.dtype} of {list(record.shape)}."
                )
            features[index] = record
        check_features(features, self.shape, f"the inputs of {self._target}")
        check_labels(labels, size, self.classes, f"the labels of {self._target}")
        return features, labels, None if self.unit_column is None else self._identifiers(source, size)

    def _identifiers(self, source: Any, size: int) -> list[bytes]:
        where = f"{self.unit_column} of {self._target}"
        try:
            units = np.asarray(getattr(source, str(self.unit_column)))
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(f"Expected {where} to say whose each record is, got {_one_line(error)}.") from error
        return identifiers_of(units, size, where)

    def _dataset(self) -> tuple[Any, int]:
        """The dataset and its number of records."""
        module, _, name = self._target.rpartition(".")
        name_module(self._target)
        try:
            kind = getattr(import_module(module), name)
            source = kind(**{key: value for key, value in at_home(self.source).items() if key != "_target_"})
            return source, len(source)
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(
                f"Expected dataset.source._target_={self._target} to make a dataset with a length, "
                f"got {_one_line(error)}."
            ) from error

    def _pair(self, source: Any, index: int) -> tuple[NDArray[np.generic], int]:
        try:
            features, label = source[index]
            return np.asarray(features), operator.index(label)
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(
                f"Expected {self._target} to give an input and a whole number as label at index {index}, "
                f"got {_one_line(error)}."
            ) from error


def _one_line(error: Exception) -> str:
    """An error from the user's code as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
