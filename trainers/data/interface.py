"""The interface of every data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dpsweep.accounting.numbers import positive_int

if TYPE_CHECKING:
    from pathlib import Path

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.records import Records


class DataSet(Protocol):
    """A public declaration of a data set, and the way to its records.

    Nominal sizes are public constants: sample rates, delta and score denominators use them, never `len`.
    Where one unit, a patient say, has several records, the declaration has three more fields: `unit_column`,
    which says whose record each is, `units`, their nominal number, and `contribution_cap`, the most records
    that one unit may contribute. Without them every record is a unit. A field `public` may say that its records
    are nobody's secret: then nothing protects them. A property `preprocessing` may say what makes a raw record into an
    input (`trainers/data/preprocessing.py`): it leaves with a released model.
    """

    @property
    def name(self) -> str:
        """The name of its account."""
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
        """Whom the guarantee protects: 'record', or what the units of a data set with a `unit_column` are called."""
        ...

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder or download them, reading no record.

        Errors: `BadInput`, one sentence that says which file to put where.
        """

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the files against their checksums, or all that is in them: a damaged file must not cost budget.

        Returns what each file with private records holds, by which the data set is recognised. A file whose records
        are all public is checked and left out: two data sets that share one are not one.
        Errors: `BadInput`, one sentence that names the file.
        """
        ...

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private records and the public test records, verified.

        Errors: `BadInput`, one sentence that names the file and what is wrong with it.
        """


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The public numbers that every data set declares; what is derived from it says where its records come from."""

    name: str
    records: int
    test_records: int
    shape: tuple[int, ...]
    classes: int
    unit: str
    public: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        check_declaration(self)
        self._check()

    def _check(self) -> None:
        """Refuse what else in the declaration makes no sense, and turn lists of the YAML into tuples."""


def nominal_units(dataset: DataSet | Declared) -> int:
    """The nominal number of private units: the declared one, or of records where each is a unit."""
    return dataset.records if unit_column(dataset) is None else dataset.units  # type: ignore[union-attr]


def is_public(dataset: DataSet | Declared) -> bool:
    """Whether the records were declared to be nobody's secret; a data set that knows no such word is private."""
    return getattr(dataset, "public", False)


def unit_column(dataset: DataSet | Declared) -> str | None:
    """The column that says whose record each is; None where every record is a unit."""
    return getattr(dataset, "unit_column", None)


def check_declaration(dataset: DataSet | Declared) -> None:
    """Refuse a declaration whose public numbers make no sense."""
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
    """A level above records is declared as a whole or not at all."""
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
