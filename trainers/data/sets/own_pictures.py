"""Pictures of the user in files, PNG and JPEG alone, of the declared size: one folder for each class.

Nothing is resized; `trainers/data/pictures.py` says what else is read and what is refused. The classes are the
declaration's: a folder's name alone would tell that its class occurs among private records. The unit of a file is found
by a pattern for its name, or by a table of the files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.columns import checked_public_texts
from dpsweep.trainers.data.interface import (
    DeclaredUnits,
    check_classes_are_labels,
    check_public_file_declaration,
    require_settings_are_texts,
)
from dpsweep.trainers.data.pictures import (
    LARGEST_OF_16_BITS,
    Orientation,
    PictureDeclaration,
    checked_orientation,
    content_fingerprint_of_pictures,
    digests_of_pictures_and_labels,
)
from dpsweep.trainers.data.preprocessing import preprocessing_form_of_array
from dpsweep.trainers.data.records import Records, Scaling
from dpsweep.trainers.data.table_files import path_in_data_folder_or_absolute, table_reader_for_file

if TYPE_CHECKING:
    from pathlib import Path

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form

    PictureFile = tuple[str, int, Path]

FILE = "file"
"""The column of a table of files that has their names."""


@dataclass(frozen=True, kw_only=True)
class UnitsOfFiles:
    """The unit of a file: the group `column` of `pattern`, or the value of `column` in the file's row of `table`.

    Guarantee: a file's unit is a function of its own name and, if there is a `table`, of its own row.
    """

    column: str
    pattern: str | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        if (self.pattern is None) is (self.table is None):
            raise ValueError(
                f"Expected dataset.unit_column={self.column} with either dataset.unit_pattern or dataset.unit_file."
            )
        if self.table is not None and (not isinstance(self.table, str) or not self.table or self.column == FILE):
            raise ValueError(
                f"Expected dataset.unit_file={self.table!r} to name a table with the columns {FILE} and another one."
            )
        if self.pattern is not None and self.column not in _compile_pattern(self.pattern).groupindex:
            raise ValueError(
                f"Expected dataset.unit_pattern={self.pattern!r} to have the group (?P<{self.column}>...), which "
                "dataset.unit_column names."
            )

    @classmethod
    def from_declaration_or_none(
        cls, column: str | None, pattern: str | None, table: str | None
    ) -> UnitsOfFiles | None:
        """What a data set declares; None if it declares no units."""
        if column is None:
            for name, value in (("unit_pattern", pattern), ("unit_file", table)):
                if value is not None:
                    raise ValueError(
                        f"Expected dataset.{name}={value} to be null where no dataset.unit_column is given."
                    )
            return None
        return cls(column=column, pattern=pattern, table=table)

    def check_declared_table_exists(self, name: str, folder: Path | None) -> None:
        """Find the table, if there is one; `name` is the data set's."""
        if self.table is not None:
            table_reader_for_file(name, self.table, folder)

    def unit_identifiers_of_files(self, files: Sequence[str], name: str, folder: Path | None) -> list[bytes]:
        """The unit of each file; one without a unit is refused.

        Errors: `BadInput`, one sentence that names the first such file.
        """
        units = (
            self._file_units_from_pattern(files)
            if self.table is None
            else self._file_units_from_table(self.table, name, folder)
        )
        for file in files:
            if not units.get(file):
                raise BadInput(f"Expected {file} to say whose record it is, by {self._unit_source_text}.")
        return [units[file] for file in files]

    @property
    def _unit_source_text(self) -> str:
        return f"dataset.unit_pattern={self.pattern!r}" if self.table is None else f"a row in {self.table}"

    def _file_units_from_pattern(self, files: Sequence[str]) -> Mapping[str, bytes]:
        pattern = _compile_pattern(str(self.pattern))
        matches = {file: pattern.fullmatch(file) for file in files}
        return {file: (match[self.column] or "").encode() for file, match in matches.items() if match is not None}

    def _file_units_from_table(self, table: str, name: str, folder: Path | None) -> Mapping[str, bytes]:
        columns = table_reader_for_file(name, table, folder).read_columns((FILE, self.column))
        files, units = (columns[column].unit_identifiers() for column in (FILE, self.column))
        listed: dict[str, bytes] = {}
        for file, unit in zip((one.decode("utf-8", "surrogateescape") for one in files), units, strict=True):
            if listed.setdefault(file, unit) != unit:
                raise BadInput(f"Expected {file} to have one unit in {table}, got two.")
        return listed


def _compile_pattern(pattern: object) -> re.Pattern[str]:
    try:
        return re.compile(pattern)  # type: ignore[call-overload,no-any-return]
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"Expected dataset.unit_pattern={pattern!r} to be a regular expression, got: {error}."
        ) from error


SUFFIXES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True, kw_only=True)
class ImageFolder(DeclaredUnits):
    """The pictures in `path`/CLASS/, in folders below it too; all of them are private, those in `test_path` public.

    `path` and `test_path` are relative to the user's data folder, or absolute; `labels` is the public list of classes,
    in the order of their numbers. A class without a folder has no records. If one unit has several pictures,
    `unit_column` is either the named group of `unit_pattern`, a regular expression for a file's name below `path`, or
    a column of `unit_file`, a table whose column `file` has these names.
    A record's part of a split is decided by the bytes of its file and its label, so it is the same on every machine,
    though decoders of JPEG differ. Records are in the order of their names, without their classes.
    `orientation` says what the orientation in a file's EXIF data does; a `scale` above 256 says that all pictures have
    16 bits a channel.
    Shapes: features uint8 or, of 16 bits, float32 [n, *shape], scaled to (x / scale - mean) / std by public constants.
    """

    is_local = True

    path: str
    labels: tuple[str, ...]
    scale: float = 255.0
    mean: float = 0.0
    std: float = 1.0
    test_path: str | None = None
    unit_pattern: str | None = None
    unit_file: str | None = None
    orientation: str = Orientation.STORED.value

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "labels", checked_public_texts("dataset.labels", self.labels))
        _ = self._pixel_scaling, self._unit_rule_or_none, self._picture_declaration
        require_settings_are_texts(self, "path")
        check_classes_are_labels(self, self.labels)
        check_public_file_declaration(self, "path", "test_path", "pictures")

    @property
    def preprocessing(self) -> Form:
        """The pixels, turned as declared and scaled."""
        return preprocessing_form_of_array(
            self.shape,
            self._pixel_scaling,
            bounds=(0.0, LARGEST_OF_16_BITS) if self._picture_declaration.bits == 16 else None,
            labels=self.labels,
            orientation=self.orientation,
        )

    @property
    def _pixel_scaling(self) -> Scaling:
        return Scaling(scale=self.scale, mean=self.mean, std=self.std)

    @property
    def _picture_declaration(self) -> PictureDeclaration:
        return PictureDeclaration(
            shape=self.shape,
            orientation=checked_orientation(self.orientation),
            largest=self.scale,
            range_key="dataset.scale",
            range_value=self.scale,
        )

    @property
    def _unit_rule_or_none(self) -> UnitsOfFiles | None:
        """How units are found; None if every picture is one."""
        return UnitsOfFiles.from_declaration_or_none(self.unit_column, self.unit_pattern, self.unit_file)

    def locate(self, folder: Path | None) -> None:
        """Find the folders and, if there is one, the table of units."""
        for path in self._private_and_test_paths:
            if not (place := path_in_data_folder_or_absolute(path, folder)).is_dir():
                raise BadInput(f"{self.name} needs {place}: put it there, or say data=<folder> (or set DPSWEEP_DATA).")
        if self._unit_rule_or_none is not None:
            self._unit_rule_or_none.check_declared_table_exists(self.name, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Decode every picture: one that cannot be read must not cost budget; one sentence names all of them.

        The set of the private files' contents identifies the data set, whatever their names, classes and order.
        """
        self.load(folder)
        files = self._list_picture_files(self.path, folder)
        return (content_fingerprint_of_pictures(_read_file_bytes(place, self.path) for _, _, place in files),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private pictures, capped per unit, and the public ones if there is a `test_path`."""
        self.locate(folder)
        files = self._list_picture_files(self.path, folder)
        private = self._read_picture_records(files, self.path)
        if self._unit_rule_or_none is not None:
            private = self.in_units(
                private,
                self._unit_rule_or_none.unit_identifiers_of_files([name for name, _, _ in files], self.name, folder),
            )
        if self.test_path is None:
            return private, None
        return private, self._read_picture_records(self._list_picture_files(self.test_path, folder), self.test_path)

    def _read_picture_records(self, files: Sequence[PictureFile], path: str) -> Records:
        """The records of these files."""
        import torch

        contents = [_read_file_bytes(place, path) for _, _, place in files]
        labels = [label for _, label, _ in files]
        pictures = self._picture_declaration.decode_pictures(contents, [name for name, _, _ in files], f"in {path}")
        return Records(
            features=torch.from_numpy(pictures if pictures.dtype == np.uint8 else pictures.astype(np.float32)),
            labels=torch.tensor(labels, dtype=torch.int64),
            scaling=self._pixel_scaling,
            stored=digests_of_pictures_and_labels(contents, labels),
        )

    def _list_picture_files(self, path: str, folder: Path | None) -> list[PictureFile]:
        """Each picture's name CLASS/NAME, its label and its place, in the order of names without classes."""
        root = path_in_data_folder_or_absolute(path, folder)
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
    def _private_and_test_paths(self) -> Sequence[str]:
        return (self.path,) if self.test_path is None else (self.path, self.test_path)


def _read_file_bytes(place: Path, path: str) -> bytes:
    try:
        return place.read_bytes()
    except OSError as error:
        raise BadInput(f"Expected {path} to be a readable folder of pictures, got: {error}.") from error
