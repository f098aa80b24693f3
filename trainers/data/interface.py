"""The interface that every data set implements, and the checks of its public declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.numbers import positive_int

if TYPE_CHECKING:
    from pathlib import Path

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.records import Records


class DataSet(Protocol):
    """A public declaration of a data set, and access to its records.

    Nominal sizes are public constants: sample rates, delta and score denominators use them, never `len`.
    If one unit, for example a patient, has several records, the declaration has three more fields: `unit_column`, the
    column that identifies the unit of each record; `units`, the nominal number of units; and `contribution_cap`, the
    largest number of records that one unit may contribute. Without them every record is a unit. The optional field
    `public` declares all records public: then no guarantee protects them. The optional property `preprocessing` states
    how a raw record becomes an input (`trainers/data/preprocessing.py`); it is released together with a model. The
    optional property `caution` is a sentence about what a guarantee for a record leaves out; every page shows it. The
    optional attribute `per_position` says that a record has a label for each position of its input. The optional
    attribute `nonzero` says about how many inputs of a record are not 0, where most are: a public number, by which
    stacked models read sparse rows.
    """

    @property
    def name(self) -> str:
        """The name of the data set's account."""
        ...

    @property
    def records(self) -> int:
        """The nominal number of private records."""
        ...

    @property
    def test_records(self) -> int:
        """The nominal number of public test records, 0 where there are none."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        ...

    @property
    def classes(self) -> int:
        """The number of labels; 1 where the label is a number."""
        ...

    @property
    def unit(self) -> str:
        """The unit that the guarantee protects: 'record', or the name of the units that `unit_column` identifies."""
        ...

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder or download them, without reading a record.

        Errors: `BadInput`, one sentence that names the missing file and the folder for it.
        """

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the files against their checksums, or parse them fully: a damaged file must not cost budget.

        Returns the content of each file with private records, by which the ledger recognises the data set. A file
        whose records are all public is checked and left out: two data sets may share a public file.
        Errors: `BadInput`, one sentence that names the file.
        """
        ...

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private records and the public test records, verified.

        Errors: `BadInput`, one sentence that names the file and its defect.
        """


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The public numbers that every data set declares; derived classes add the source of the records.

    `left_out` says which records of the files are no records of the data set, by a rule for each record alone; None if
    all are. Whether a record is there then depends on its content. So the number of records is no constant where one
    record replaces another, and this adjacency is refused. Where one is added or removed, a record that is left out
    changes nothing, and the guarantee holds.
    """

    leaves_out: ClassVar[str | None] = None
    """The only rule that a derived class knows."""

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
        check_declaration(self)
        if self.left_out not in (None, self.leaves_out):
            known = "null" if self.leaves_out is None else f"null or {self.leaves_out!r}"
            raise ValueError(f"Expected dataset.left_out={self.left_out!r} to be {known}.")
        self._check()

    def _check(self) -> None:
        """Refuse other invalid fields of the declaration, and turn lists from YAML into tuples."""


def nominal_units(dataset: DataSet | Declared) -> int:
    """The nominal number of private units: the declared `units`, or `records` if every record is a unit."""
    return dataset.records if unit_column(dataset) is None else dataset.units  # type: ignore[union-attr]


def is_public(dataset: DataSet | Declared) -> bool:
    """Whether all records were declared public; a data set without the field `public` is private."""
    return getattr(dataset, "public", False)


def check_neighbours(dataset: DataSet | Declared, adjacency: Adjacency) -> None:
    """Raises `BadInput` for units, or records that are left out by their content, where one replaces another."""
    if adjacency is not Adjacency.REPLACE_ONE:
        return
    expected = f"Expected privacy.adjacency={adjacency} to be {Adjacency.ADD_OR_REMOVE_ONE} with"
    if unit_column(dataset) is not None:
        raise BadInput(
            f"{expected} a dataset.unit_column: a {dataset.unit} that replaces another may be in the other part of the "
            "split."
        )
    rule = getattr(dataset, "left_out", None)
    if rule is not None and not is_public(dataset):
        raise BadInput(
            f"{expected} dataset.left_out='{rule}': whether a record is there depends on its content, so the number of "
            "records is no constant where one record replaces another."
        )


def unit_column(dataset: DataSet | Declared) -> str | None:
    """The column that identifies the unit of each record; None if every record is a unit."""
    return getattr(dataset, "unit_column", None)


def check_declaration(dataset: DataSet | Declared) -> None:
    """Refuse a declaration with invalid public numbers."""
    for name, value in (("records", dataset.records), ("test_records", dataset.test_records)):
        if not (isinstance(value, int) and value >= (name == "records")):
            raise ValueError(f"Expected dataset.{name}={value} to be a number of records.")
    if not (isinstance(dataset.classes, int) and dataset.classes >= 1):
        raise ValueError(f"Expected dataset.classes={dataset.classes} >= 1.")
    if not isinstance(is_public(dataset), bool):
        raise ValueError(f"Expected dataset.public={is_public(dataset)!r} to be true or false.")
    if not dataset.shape or not all(isinstance(size, int) and size >= 1 for size in dataset.shape):
        raise ValueError(f"Expected dataset.shape={list(dataset.shape)} of sizes >= 1.")
    _check_units(dataset)


def _check_units(dataset: DataSet | Declared) -> None:
    """Refuse a partial declaration of units: `unit_column`, `units` and `contribution_cap` come together."""
    column, unit = unit_column(dataset), dataset.unit
    numbers = {name: getattr(dataset, name, None) for name in ("units", "contribution_cap")}
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
    for name, value in numbers.items():
        positive_int(f"dataset.{name}", value)
    if dataset.records < nominal_units(dataset):
        raise ValueError(f"Expected dataset.units={nominal_units(dataset)} <= dataset.records={dataset.records}.")
