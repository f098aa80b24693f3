"""The interface of every data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from trainers.data.records import Records


class DataSet(Protocol):
    """A public declaration of a data set, and the way to its records.

    Nominal sizes are public constants: sample rates, delta and score denominators use them, never `len`.
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
        """The number of labels."""
        ...

    @property
    def unit(self) -> str:
        """What one record stands for, whom the guarantee protects."""
        ...

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder or download them, reading no record.

        Errors: `BadInput`, one sentence that says which file to put where.
        """

    def verify(self, folder: Path | None) -> None:
        """Check the files against their checksums, parsing nothing: a damaged file must not cost budget.

        Errors: `BadInput`, one sentence that names the file.
        """

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private records and the public test records, verified.

        Errors: `BadInput`, one sentence that names the file and what is wrong with it.
        """


def check_declaration(dataset: DataSet) -> None:
    """Refuse a declaration whose public numbers make no sense."""
    for name, value in (("records", dataset.records), ("test_records", dataset.test_records)):
        if not (isinstance(value, int) and value >= (name == "records")):
            raise ValueError(f"Expected dataset.{name}={value} to be a number of records.")
    if not (isinstance(dataset.classes, int) and dataset.classes >= 2):
        raise ValueError(f"Expected dataset.classes={dataset.classes} >= 2.")
    if not dataset.shape or not all(isinstance(size, int) and size >= 1 for size in dataset.shape):
        raise ValueError(f"Expected dataset.shape={list(dataset.shape)} of sizes >= 1.")
