"""The interface that every data set implements, and the checks of its public declaration."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpsweep.accounting.codec import positive_int
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import assign_units_and_cap_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.vocabularies import Vocabulary


class DataSet(ABC):
    """A public declaration of a data set, and access to its records; every data set inherits from it.

    Nominal sizes are public constants: sample rates, delta and score denominators use them, never `len`. A declaration
    has the first six members; it leaves out each other one whose value here suits it.

    If one unit, for example a patient, has several records, a declaration has three more members: `unit_column`, the
    column that identifies the unit of each record; `units`, the nominal number of units; and `contribution_cap`, the
    largest number of records that one unit may contribute. Without them every record is a unit. `public` declares all
    records public: then no guarantee protects them. `left_out` says which records of the files are no records of the
    data set, by a rule for each record alone. `per_position` says that a record has a label for each position of its
    input. `nonzero` says about how many inputs of a record are not 0, where most are: a public number, by which stacked
    models read sparse rows. `vocabulary` is that of token numbers, None if inputs are quantities. `is_local` says that
    the files are the user's own, which are never downloaded, and that a plan may read them. `on_disk` says that a job
    reads records batch by batch and does not hold them.

    `target` is the public range of a label that is a number: labels are clamped to it and scaled to [0, 1]. Without it
    such labels are used as they are. `target_unit` is the name of their unit, empty if it has none.
    `label_names` are the names of the labels of a record that has several, each of them 0 or 1; `classes` is their
    number. They are empty where a record has one label.
    """

    name: str
    """The name of the data set's account."""
    records: int
    """The nominal number of private records."""
    test_records: int
    """The nominal number of public test records, 0 where there are none."""
    shape: tuple[int, ...]
    """The shape of one input."""
    classes: int
    """The number of labels; 1 where the label is a number."""
    unit: str
    """The unit that the guarantee protects: 'record', or the name of the units that `unit_column` identifies."""

    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None
    public: bool = False
    left_out: str | None = None
    per_position: bool = False
    nonzero: int | None = None
    target: tuple[float, float] | None = None
    target_unit: str = ""
    label_names: tuple[str, ...] = ()
    vocabulary: Vocabulary | None = None
    is_local: bool = False
    on_disk: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuses a field that is declared without a value and would silently have the default of this class."""
        super().__init_subclass__(**options)
        if taken := [name for name in get_annotations(cls) if name not in cls.__dict__ and hasattr(DataSet, name)]:
            raise TypeError(
                f"Expected {cls.__name__}.{taken[0]} to have a value, since DataSet has one: write its default, or "
                "`= dataclasses.field()` where it must be given."
            )

    @property
    def preprocessing(self) -> Form | None:
        """How a raw record becomes an input (`trainers/data/preprocessing.py`); it is released with a model."""
        return None

    @property
    def declared_values(self) -> Mapping[int, str]:
        """The inputs that are 1 where a record has a declared value, by their place, with the value's name."""
        return {}

    @property
    def is_generated(self) -> bool:
        """Whether records come from a random generator and from no file, so that nobody pays for them."""
        return False

    @property
    def caution(self) -> str | None:
        """A sentence about what a guarantee for a record leaves out, which every page shows."""
        return None

    @abstractmethod
    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder or download them, without reading a record.

        Errors: `BadInput`, one sentence that names the missing file and the folder for it.
        """

    @abstractmethod
    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the files against their checksums, or parse them fully: a damaged file must not cost budget.

        Returns the content of each file with private records, by which the ledger recognises the data set. A file
        whose records are all public is checked and left out: two data sets may share a public file.
        Errors: `BadInput`, one sentence that names the file.
        """

    @abstractmethod
    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private records and the public test records, verified.

        Errors: `BadInput`, one sentence that names the file and its defect.
        """

    def verify_with_cache(self, folder: Path | None, cache: Path | None) -> tuple[Content, ...]:
        """Does what `verify` does; a data set on disk keeps in the private folder `cache` what its pass found."""
        return self.verify(folder)

    def load_with_cache(self, folder: Path | None, cache: Path | None) -> tuple[Records, Records | None]:
        """Does what `load` does; a data set on disk finds in the private folder `cache` what an earlier pass found."""
        return self.load(folder)

    def least_bytes_in_job(self, folder: Path | None) -> int:
        """The least bytes that a job holds of the records, by declared numbers and the headers of files alone."""
        return self.records * math.prod(self.shape)

    def missing_files(self, folder: Path | None) -> str:
        """A sentence on files that are not there yet; empty if they are. Opens and downloads nothing."""
        try:
            self.locate(folder)
        except BadInput as missing:
            return str(missing)
        return ""

    def in_units(self, records: Records, identifiers: Sequence[bytes] | None) -> Records:
        """The private records with the units that `identifiers` name, capped; without these every record is a unit."""
        if identifiers is None or self.contribution_cap is None:
            return records
        return assign_units_and_cap_records(records, identifiers, self.contribution_cap)


@dataclass(frozen=True, kw_only=True)
class Declared(DataSet):
    """The public numbers that every data set declares; derived classes add the source of the records.

    `left_out` says which records of the files are no records of the data set, by a rule for each record alone; None if
    all are. Whether a record is there then depends on its content. So the number of records is no constant where one
    record replaces another, and this adjacency is refused. Where one is added or removed, a record that is left out
    changes nothing, and the guarantee holds.
    """

    leaves_out: ClassVar[str | None] = None
    """The only rule that a derived class knows."""

    sizes: ClassVar[tuple[int | str, ...]] = ()
    """The sizes of `shape` that a derived class knows: numbers, or what they count; empty if it knows all shapes."""

    only_classes: ClassVar[int | None] = None
    """The only number of classes that a derived class knows; None if it knows all numbers."""

    name: str
    records: int
    test_records: int
    shape: tuple[int, ...]
    classes: int
    unit: str
    public: bool = False
    left_out: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        check_dataset_declaration(self)
        if self.left_out not in (None, self.leaves_out):
            known = "null" if self.leaves_out is None else f"null or {self.leaves_out!r}"
            raise ValueError(f"Expected dataset.left_out={self.left_out!r} to be {known}.")
        if self.sizes and not _are_known_sizes(self.shape, self.sizes):
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [{', '.join(map(str, self.sizes))}].")
        if self.only_classes not in (None, self.classes):
            raise ValueError(f"Expected dataset.classes={self.classes} == {self.only_classes}.")
        self._check_declared_fields()

    def _check_declared_fields(self) -> None:
        """Refuse other invalid fields of the declaration, and turn lists from YAML into tuples."""


def _are_known_sizes(shape: tuple[int, ...], sizes: tuple[int | str, ...]) -> bool:
    return len(shape) == len(sizes) and all(
        isinstance(known, str) or size == known for size, known in zip(shape, sizes, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class DeclaredUnits(Declared):
    """The declaration of a data set that may say whose each record is."""

    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None


def nominal_units(dataset: DataSet) -> int:
    """The nominal number of private units: the declared `units`, or `records` if every record is a unit."""
    if dataset.unit_column is None:
        return dataset.records
    if dataset.units is None:
        raise ValueError(f"Expected dataset.units to be given with dataset.unit_column={dataset.unit_column}.")
    return dataset.units


def check_adjacency_suits_dataset(dataset: DataSet, adjacency: Adjacency) -> None:
    """Raises `BadInput` for units, or records that are left out by their content, where one replaces another."""
    if adjacency is not Adjacency.REPLACE_ONE:
        return
    expected = f"Expected privacy.adjacency={adjacency} to be {Adjacency.ADD_OR_REMOVE_ONE} with"
    if dataset.unit_column is not None:
        raise BadInput(
            f"{expected} a dataset.unit_column: a {dataset.unit} that replaces another may be in the other part of the "
            "split."
        )
    rule = dataset.left_out
    if rule is not None and not dataset.public:
        raise BadInput(
            f"{expected} dataset.left_out='{rule}': whether a record is there depends on its content, so the number of "
            "records is no constant where one record replaces another."
        )


def check_dataset_declaration(dataset: DataSet) -> None:
    """Refuse a declaration with invalid public numbers."""
    for name, value in (("records", dataset.records), ("test_records", dataset.test_records)):
        if not (isinstance(value, int) and value >= (name == "records")):
            raise ValueError(f"Expected dataset.{name}={value} to be a number of records.")
    if not (isinstance(dataset.classes, int) and dataset.classes >= 1):
        raise ValueError(f"Expected dataset.classes={dataset.classes} >= 1.")
    if not isinstance(dataset.public, bool):
        raise ValueError(f"Expected dataset.public={dataset.public!r} to be true or false.")
    if not dataset.shape or not all(isinstance(size, int) and size >= 1 for size in dataset.shape):
        raise ValueError(f"Expected dataset.shape={list(dataset.shape)} of sizes >= 1.")
    _check_units_declared_completely(dataset)


def require_settings_are_texts(dataset: DataSet, *names: str) -> None:
    """Refuse settings that are not texts: YAML reads unquoted yes, no, on and off as booleans, which match no cell."""
    for name in names:
        value = getattr(dataset, name)
        if not isinstance(value, str) or not value:
            raise ValueError(f"Expected dataset.{name}={value!r} to be a text.")


def require_distinct_columns(keys: str, columns: Sequence[str | None]) -> None:
    """Refuse a column that several of these keys name; None stands for a key without a column."""
    names = [name for name in columns if name is not None]
    if len(set(names)) != len(names):
        raise ValueError(f"Expected dataset.{keys}={names} to be distinct.")


def check_classes_are_labels(dataset: DataSet, labels: Sequence[str]) -> None:
    """Refuse another number of classes than that of the public list of labels."""
    if dataset.classes != len(labels):
        raise ValueError(f"Expected dataset.classes={dataset.classes} == {len(labels)}, as many as labels.")


def check_public_file_declaration(dataset: DataSet, private_key: str, public_key: str, content: str) -> None:
    """Refuse public records in the file or folder of the private ones, without their number, or without a file."""
    private, public = getattr(dataset, private_key), getattr(dataset, public_key)
    if public is not None and (not isinstance(public, str) or not public):
        raise ValueError(f"Expected dataset.{public_key}={public!r} to be null or a text.")
    if (public is None) is not (dataset.test_records == 0):
        raise ValueError(
            f"Expected dataset.test_records={dataset.test_records} with dataset.{public_key}={public}: 0 and null, or "
            f"the number of its {content} and its path."
        )
    if public is not None and Path(public).expanduser().resolve() == Path(private).expanduser().resolve():
        raise ValueError(f"Expected dataset.{public_key}={public} to be another one than dataset.{private_key}.")


def _check_units_declared_completely(dataset: DataSet) -> None:
    """Refuse a partial declaration of units: `unit_column`, `units` and `contribution_cap` come together."""
    column, unit = dataset.unit_column, dataset.unit
    numbers = {"units": dataset.units, "contribution_cap": dataset.contribution_cap}
    if column is None:
        if unit != "record":
            raise ValueError(f"Expected dataset.unit={unit!r} to be 'record' where no dataset.unit_column is given.")
        for name, value in numbers.items():
            if value is not None:
                raise ValueError(f"Expected dataset.{name}={value} to be null where no dataset.unit_column is given.")
        return
    if not isinstance(column, str) or not column:
        raise ValueError(f"Expected dataset.unit_column={column!r} to name a column.")
    if not isinstance(unit, str) or unit in ("", "record"):
        raise ValueError(
            f"Expected dataset.unit={unit!r} to say what dataset.unit_column={column} holds: patient, user."
        )
    meanings = (f"about how many of unit={unit} there are", "the most records of one that are used")
    missing = [
        f"dataset.{name}, {text}"
        for (name, value), text in zip(numbers.items(), meanings, strict=True)
        if value is None
    ]
    if missing:
        raise ValueError(f"Expected dataset.unit_column={column} with {' and '.join(missing)}.")
    for name, value in numbers.items():
        positive_int(f"dataset.{name}", value)
    if dataset.records < nominal_units(dataset):
        raise ValueError(f"Expected dataset.units={nominal_units(dataset)} <= dataset.records={dataset.records}.")
