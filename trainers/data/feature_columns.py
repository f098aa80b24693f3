"""The columns of a table that a model learns from: each turns the cells of one column into inputs by its declaration.

A number is clamped to its public range and scaled to [0, 1], a day is the number of days since the first one of its
range, and a category has an input for each declared value. What an empty cell and an undeclared category count as is
declared too; otherwise they are mismatches, which are refused before the charge. An input is a function of its own
record and of declared constants alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.trainers.data.columns import (
    EMPTY,
    UNLISTED,
    add_unlisted_values,
    clamp_and_scale_to_0_1,
    composed_text,
    days_since_1970,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dpsweep.trainers.data.columns import Bounds, TableColumn
    from dpsweep.trainers.data.mismatches import Mismatches

ZEROS, OWN = "zeros", "category"
"""What a category that is not declared may become: zeros in all inputs, or a one in an input of its own."""

OTHER = "(other)"
"""The name of that input."""

OTHER_ADVICE = (
    f" Mend the list or the file, or accept what is not declared: dataset.other={ZEROS} makes it zeros, "
    f"dataset.other={OWN} a category of its own."
)


@dataclass(frozen=True, kw_only=True)
class FeatureColumn(ABC):
    """A column of inputs, by its name in the table."""

    name: str

    @property
    @abstractmethod
    def input_names(self) -> tuple[str, ...]:
        """What each of the inputs [width] says."""

    @abstractmethod
    def inputs(self, column: TableColumn, found: Mismatches) -> NDArray[np.float64]:
        """The inputs [n, width] in [0, 1]; a mismatch is added to `found`, and its inputs mean nothing."""

    @property
    @abstractmethod
    def form(self) -> dict[str, Any]:
        """The preprocessing of this column, as it is released with a model."""


@dataclass(frozen=True, kw_only=True)
class _RangedColumn(FeatureColumn):
    """Numbers within a public range; with `missing`, what an empty cell counts as, and a second input that says so."""

    bounds: Bounds
    missing: float | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        """The number, and whether it is missing."""
        return (self.name,) if self.missing is None else (self.name, f"{self.name} missing")

    def _inputs_of_numbers(
        self, numbers: NDArray[np.float64], column: TableColumn, found: Mismatches, what: str
    ) -> NDArray[np.float64]:
        """The inputs of numbers [n] that are NaN where the cell is empty, or where it is a mismatch."""
        absent = np.isnan(numbers)
        if self.missing is None:
            empty = column.places_of_empty_cells() & absent
            found.add(
                column,
                empty,
                f"to have a {what}",
                lambda value: (
                    f" dataset.missing={{{self.name}: ...}} declares a constant that stands for it, and adds an input "
                    "that says where."
                ),
            )
            return clamp_and_scale_to_0_1(numbers, self.bounds)[:, None]
        filled = np.where(absent, self.missing, numbers)
        return np.stack([clamp_and_scale_to_0_1(filled, self.bounds), absent.astype(np.float64)], axis=1)


@dataclass(frozen=True, kw_only=True)
class NumberColumn(_RangedColumn):
    """A number, clamped to `bounds`."""

    def inputs(self, column: TableColumn, found: Mismatches) -> NDArray[np.float64]:
        """The scaled number."""
        return self._inputs_of_numbers(column.numbers(found), column, found, "number")

    @property
    def form(self) -> dict[str, Any]:
        """The range, and the constant for a missing number."""
        constant = {} if self.missing is None else {"missing": self.missing}
        return {"name": self.name, "low": self.bounds[0], "high": self.bounds[1], **constant}


@dataclass(frozen=True, kw_only=True)
class DayColumn(_RangedColumn):
    """A day, as the number of days since the first one of its range; `date_format` is that of `datetime.strptime`."""

    first: str
    date_format: str

    def inputs(self, column: TableColumn, found: Mismatches) -> NDArray[np.float64]:
        """The scaled number of days."""
        days = column.days(self.date_format, found) - days_since_1970(self.first)
        return self._inputs_of_numbers(days, column, found, "day")

    @property
    def form(self) -> dict[str, Any]:
        """The range in days since the first one, that day, and the days that stand for a missing one."""
        constant = {} if self.missing is None else {"missing": self.missing}
        days = {"low": self.bounds[0], "high": self.bounds[1], "first_day": self.first, "format": self.date_format}
        return {"name": self.name, **days, **constant}


@dataclass(frozen=True, kw_only=True)
class CategoryColumn(FeatureColumn):
    """A category with public `values`, one-hot.

    `other` says what a value that is not among them becomes: None to refuse it, `ZEROS` or `OWN`. `missing` is the name
    of the category of an empty cell, one of the values or one more; None to treat it as any other value.
    """

    values: tuple[str, ...]
    other: str | None = None
    missing: str | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        """The values, and what is not among them."""
        return tuple(f"{self.name}: {value}" for value in (*self._listed, *((OTHER,) if self.other == OWN else ())))

    def inputs(self, column: TableColumn, found: Mismatches) -> NDArray[np.float64]:
        """A row of zeros, with a one at the value."""
        places = column.places_in_list(self.values)
        if self.missing is not None:
            places = np.where(places == EMPTY, self._listed.index(self.missing), places)
        if self.other is None:
            advice = f" An empty cell is declared by dataset.missing={{{self.name}: unknown}}, a category of its own."
            found.add(column, places == EMPTY, "to have a category", lambda value: advice)
            add_unlisted_values(column, places == UNLISTED, self.values, found, OTHER_ADVICE)
        elif self.other == OWN:
            places = np.where(places < 0, len(self._listed), places)
        is_one: NDArray[np.bool_] = places[:, None] == np.arange(len(self.input_names))
        return is_one.astype(np.float64)

    @property
    def form(self) -> dict[str, Any]:
        """The values, and what a value becomes that is not among them."""
        unlisted = {} if self.other is None else {"unlisted": self.other}
        constant = {} if self.missing is None else {"missing": self.missing}
        return {"name": self.name, "values": list(self._listed), **unlisted, **constant}

    @property
    def _listed(self) -> tuple[str, ...]:
        """The values, with that of an empty cell."""
        return self.values if self.missing is None or self.missing in self.values else (*self.values, self.missing)


def inputs_of_columns(columns: Sequence[FeatureColumn], read: Any, found: Mismatches) -> NDArray[np.float32]:
    """The inputs [n, width] of all columns, side by side; `read` has the table's columns by name."""
    parts = [column.inputs(read[column.name], found) for column in columns]
    return np.concatenate(parts, axis=1).astype(np.float32)


def feature_columns_of_declaration(
    bounds: Mapping[str, Bounds],
    dates: Mapping[str, Sequence[str]],
    categories: Mapping[str, tuple[str, ...]],
    missing: Mapping[str, float | str],
    date_format: str,
    other: str | None,
) -> tuple[FeatureColumn, ...]:
    """The columns of a declaration in the alphabetical order of their names.

    Errors: ValueError for days, or constants for empty cells, that make no sense.
    """
    constants = {composed_text(name): value for name, value in missing.items()}
    columns: list[FeatureColumn] = [
        NumberColumn(name=name, bounds=pair, missing=_constant_number(name, constants.pop(name, None), pair))
        for name, pair in bounds.items()
    ]
    columns += [
        _day_column(composed_text(name), days, constants.pop(composed_text(name), None), date_format)
        for name, days in dates.items()
    ]
    columns += [
        CategoryColumn(name=name, values=values, other=other, missing=_constant_text(name, constants.pop(name, None)))
        for name, values in categories.items()
    ]
    if constants:
        raise ValueError(
            f"Expected dataset.missing={sorted(constants)} to name columns of bounds, dates or categories."
        )
    return tuple(sorted(columns, key=lambda column: column.name))


def _constant_number(name: str, constant: object, bounds: Bounds) -> float | None:
    if constant is None:
        return None
    if isinstance(constant, bool) or not isinstance(constant, (int, float)) or not bounds[0] <= constant <= bounds[1]:
        raise ValueError(
            f"Expected dataset.missing.{name}={constant!r} to be a number from {bounds[0]:g} to {bounds[1]:g}, "
            "its bounds."
        )
    return float(constant)


def _constant_text(name: str, constant: object) -> str | None:
    if constant is not None and (not isinstance(constant, str) or not constant):
        raise ValueError(f"Expected dataset.missing.{name}={constant!r} to be the name of a category.")
    return None if constant is None else composed_text(str(constant))


def _day_column(name: str, days: Sequence[str], constant: object, date_format: str) -> DayColumn:
    try:
        first, last = days
        begin, end = map(days_since_1970, (first, last))
        if end <= begin:
            raise ValueError(f"{last} is not after {first}")
        missing = None if constant is None else days_since_1970(str(constant)) - begin
    except (TypeError, ValueError) as cause:
        raise ValueError(
            f"Expected dataset.dates.{name}={days} to be the first and the last day, as [2015-01-01, 2024-12-31], and "
            f"dataset.missing.{name} a day as well: {cause}. dataset.date_format says how the file writes days."
        ) from cause
    if missing is not None and not 0 <= missing <= end - begin:
        raise ValueError(f"Expected dataset.missing.{name}={constant} to be a day from {first} to {last}.")
    return DayColumn(name=name, bounds=(0.0, end - begin), missing=missing, first=first, date_format=date_format)
