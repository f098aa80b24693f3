"""Pictures of the user, in one folder for each class.

The classes are the declaration's: a folder's name alone would tell that its class occurs among private records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.own.columns import listed_texts
from dpsweep.trainers.data.own.pictures import check_picture_shape, content_of_pictures, decoded, digests_of
from dpsweep.trainers.data.own.table_files import in_folder
from dpsweep.trainers.data.own.units_of_files import UnitsOfFiles
from dpsweep.trainers.data.preprocessing import of_array
from dpsweep.trainers.data.records import Records, Scaling
from dpsweep.trainers.data.units import by_unit

if TYPE_CHECKING:
    from pathlib import Path

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form

    PictureFile = tuple[str, int, Path]

SUFFIXES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True, kw_only=True)
class ImageFolder(Declared):
    """The pictures in `path`/CLASS/, in folders below it too; all of them are private, those in `test_path` public.

    `path` and `test_path` are relative to the user's data folder, or absolute; `labels` is the public list of classes,
    in the order of their numbers. A class without a folder has no records. If one unit has several pictures,
    `unit_column` is either the named group of `unit_pattern`, a regular expression for a file's name below `path`, or
    a column of `unit_file`, a table whose column `file` has these names.
    A record's part of a split is decided by the bytes of its file and its label, so it is the same on every machine,
    though decoders of JPEG differ. Records are in the order of their names, without their classes.
    Shapes: features uint8 [n, *shape], scaled to (x / scale - mean) / std by public constants.
    """

    path: str
    labels: tuple[str, ...]
    scale: float = 255.0
    mean: float = 0.0
    std: float = 1.0
    test_path: str | None = None
    unit_column: str | None = None
    unit_pattern: str | None = None
    unit_file: str | None = None
    units: int | None = None
    contribution_cap: int | None = None

    def _check(self) -> None:
        object.__setattr__(self, "labels", listed_texts("dataset.labels", self.labels))
        check_picture_shape(self.shape)
        _ = self._scaling, self._units
        for name in ("path", "test_path"):
            value = getattr(self, name)
            if (not isinstance(value, str) or not value) and (name, value) != ("test_path", None):
                raise ValueError(f"Expected dataset.{name}={value!r} to name a folder.")
        if self.classes != len(self.labels):
            raise ValueError(f"Expected dataset.classes={self.classes} == {len(self.labels)}, as many as labels.")
        if (self.test_path is None) is not (self.test_records == 0):
            raise ValueError(
                f"Expected dataset.test_records={self.test_records} with dataset.test_path={self.test_path}: 0 and "
                "null, or the number of its pictures and its path."
            )

    @property
    def file(self) -> str:
        """The path of the user's folder; a data set with this attribute is never downloaded."""
        return self.path

    @property
    def preprocessing(self) -> Form:
        """The pixels, scaled."""
        return of_array(self.shape, self._scaling, labels=self.labels)

    @property
    def _scaling(self) -> Scaling:
        return Scaling(scale=self.scale, mean=self.mean, std=self.std)

    @property
    def _units(self) -> UnitsOfFiles | None:
        """How units are found; None if every picture is one."""
        return UnitsOfFiles.declared(self.unit_column, self.unit_pattern, self.unit_file)

    def locate(self, folder: Path | None) -> None:
        """Find the folders and, if there is one, the table of units."""
        for path in self._paths:
            if not (place := in_folder(path, folder)).is_dir():
                raise BadInput(f"{self.name} needs {place}: put it there, or say DATA=<folder> (or set DPSWEEP_DATA).")
        if self._units is not None:
            self._units.locate(self.name, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Decode every picture: one that cannot be read must not cost budget.

        The set of the private files' contents identifies the data set, whatever their names, classes and order.
        """
        self.load(folder)
        files = self._files(self.path, folder)
        return (content_of_pictures(_content(place, self.path) for _, _, place in files),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private pictures, capped per unit, and the public ones if there is a `test_path`."""
        self.locate(folder)
        files = self._files(self.path, folder)
        private = self._records(files, self.path)
        if self._units is not None and self.contribution_cap is not None:
            units = self._units.identifiers([name for name, _, _ in files], self.name, folder)
            private = by_unit(private, units, self.contribution_cap)
        if self.test_path is None:
            return private, None
        return private, self._records(self._files(self.test_path, folder), self.test_path)

    def _records(self, files: Sequence[PictureFile], path: str) -> Records:
        """The records of these files."""
        import torch

        contents = [_content(place, path) for _, _, place in files]
        labels = [label for _, label, _ in files]
        pictures = np.empty((len(files), *self.shape), dtype=np.uint8)
        for picture, content, (name, _, _) in zip(pictures, contents, files, strict=True):
            picture[:] = decoded(content, self.shape, f"{name} in {path}")
        return Records(
            features=torch.from_numpy(pictures),
            labels=torch.tensor(labels, dtype=torch.int64),
            scaling=self._scaling,
            stored=digests_of(contents, labels),
        )

    def _files(self, path: str, folder: Path | None) -> list[PictureFile]:
        """Each picture's name CLASS/NAME, its label and its place, in the order of names without classes."""
        root = in_folder(path, folder)
        try:
            children = sorted(child for child in root.iterdir() if not child.name.startswith("."))
            files = sorted(
                (file.relative_to(child).as_posix(), child.name)
                for child in children
                for file in child.rglob("*")
                if file.is_file() and not file.name.startswith(".")
            )
        except OSError as error:
            raise BadInput(f"Expected {path} to be a readable folder of pictures, got: {error}.") from error
        if loose := [child.name for child in children if child.suffix.lower() in SUFFIXES]:
            raise BadInput(f"Expected {loose[0]} in {path} to lie in the folder of a class.")
        if unknown := [child.name for child in children if child.is_dir() and child.name not in self.labels]:
            raise BadInput(
                f"Expected the folders in {path} to be among dataset.labels={list(self.labels)}, got "
                f"{unknown[0]!r}: if you may publish that this class exists, add it to dataset.labels."
            )
        if other := [f"{name}/{file}" for file, name in files if not file.lower().endswith(SUFFIXES)]:
            raise BadInput(f"Expected {other[0]} in {path} to be a {' or '.join(SUFFIXES)}.")
        return [(f"{name}/{file}", self.labels.index(name), root / name / file) for file, name in files]

    @property
    def _paths(self) -> Sequence[str]:
        return (self.path,) if self.test_path is None else (self.path, self.test_path)


def _content(place: Path, path: str) -> bytes:
    try:
        return place.read_bytes()
    except OSError as error:
        raise BadInput(f"Expected {path} to be a readable folder of pictures, got: {error}.") from error
