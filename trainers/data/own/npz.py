"""Arrays of the user in numpy's .npz format.

Their preprocessing depends on the declaration alone: the user types in the public bounds; none come from the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.array_files import UnreadableArray, read_npz
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.records import Records


@dataclass(frozen=True, kw_only=True)
class Npz(Declared):
    """The records of an .npz file, one array of features and one of labels; all of them are private.

    `path` is relative to the user's data folder, or absolute; `features` and `labels` name the arrays in it; `bounds`
    is the public range of every number. If there is a `unit_column`, it names an array of texts or whole numbers, and
    records with equal values in it are one unit; `units` is the nominal number of units, and each keeps at most
    `contribution_cap` records. Nothing is unpickled.
    Shapes: features [n, *shape] in [0, 1], clamped and scaled, uint8 or float32; labels whole numbers [n].
    """

    path: str
    features: str
    labels: str
    bounds: Sequence[float]
    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None

    def _check(self) -> None:
        object.__setattr__(self, "bounds", public_pair("dataset.bounds", self.bounds))
        for name in ("path", "features", "labels"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"Expected dataset.{name}={getattr(self, name)!r} to be a text.")
        if self.features == self.labels:
            raise ValueError(f"Expected dataset.features={self.features} and labels to be two arrays.")
        if self.unit_column in (self.features, self.labels):
            raise ValueError(f"Expected dataset.unit_column={self.unit_column} to be an array of its own.")
        if self.test_records:
            raise ValueError(f"Expected dataset.test_records={self.test_records} == 0: all of the file is private.")

    @property
    def file(self) -> str:
        """The path of the user's file; a data set with this attribute is never downloaded."""
        return self.path

    @property
    def preprocessing(self) -> Form:
        """The features, clamped and scaled."""
        return of_bounded_array(self.shape, self.bounds)

    def locate(self, folder: Path | None) -> None:
        """Find the file in the user's folder."""
        if not (path := self._path(folder)).is_file():
            raise BadInput(f"{self.name} needs {path}: put it there, or say DATA=<folder> (or set DPSWEEP_DATA).")

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check both arrays completely, since there is no checksum.

        The features identify the data set, for every compression of the file.
        """
        features, _, _ = self._read(folder)
        return (content_of(features),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows of the arrays as private records, capped per unit; there are no public records."""
        low, high = self.bounds
        features, labels, units = self._read(folder)
        records = bounded_records(features, labels, (low, high))
        if units is None or self.contribution_cap is None:
            return records, None
        return by_unit(records, units, self.contribution_cap), None

    def _read(self, folder: Path | None) -> tuple[NDArray[np.generic], NDArray[np.generic], list[bytes] | None]:
        """The checked features and labels, and the units' identifiers if there is a `unit_column`."""
        self.locate(folder)
        arrays = self._arrays(self._path(folder))
        features, labels = arrays[self.features], arrays[self.labels]
        check_features(features, self.shape, f"{self.features} in {self.path}")
        check_labels(labels, len(features), self.classes, f"{self.labels} in {self.path}")
        if self.unit_column is None:
            return features, labels, None
        where = f"{self.unit_column} in {self.path}"
        return features, labels, identifiers_of(arrays[self.unit_column], len(features), where)

    def _arrays(self, path: Path) -> dict[str, NDArray[np.generic]]:
        names = [name for name in (self.features, self.labels, self.unit_column) if name is not None]
        try:
            arrays, listed = read_npz(path, names)
        except UnreadableArray as error:
            raise BadInput(f"Expected {self.path} to be a whole .npz file of numbers, got: {error}.") from error
        for name in names:
            if name not in arrays:
                raise BadInput(f"Expected {name} among the arrays of {self.path}, got {', '.join(listed) or 'none'}.")
        return arrays

    def _path(self, folder: Path | None) -> Path:
        return (folder or Path()) / Path(self.path).expanduser()
