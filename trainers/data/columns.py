"""The columns of a table, turned into inputs by public constants alone.

Numbers are clamped to public bounds and scaled to [0, 1]; categories and labels are looked up in public lists. Bounds
and lists never come from the records: a maximum or a vocabulary computed from private data is an uncharged query.

Texts are compared without the spaces around them and in Unicode's composed form (NFC), since one letter has several
encodings. In typed columns numbers are used as they are stored, and texts, whole numbers and booleans as names of
values. A missing value is an empty text, as in a CSV file.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.mismatches import Mismatches, Places, mismatches_refused, nearest_name_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Bounds = tuple[float, float]

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number in a text; unlike `float`, no underscores, no digits of other scripts, no words."""

PLAIN = b"0123456789.-"
"""What numbers are made of in most files: a text of these alone that `float` reads is a finite number."""

EMPTY, UNLISTED = -2, -1
"""The positions in a list of a value that is missing, and of one that is not in the list."""

ISO = "%Y-%m-%d"
"""The format of days unless another one is declared."""

FINITE = "to be a finite number"


class ColumnKind(Enum):
    """What the type of a column says about its values."""

    NUMBER = auto()
    NAME = auto()
    DAY = auto()


class TableColumn(Places, Protocol):
    """One column of a table. Its mismatches with a declaration are added to `found`."""

    def numbers(self, found: Mismatches) -> NDArray[np.float64]:
        """The finite numbers [n]; NaN for a missing one, and for any other value, which is a mismatch."""

    def days(self, form: str, found: Mismatches) -> NDArray[np.float64]:
        """The days [n] since 1970, of texts in this form; NaN for a missing one, and for a mismatch."""

    def places_in_list(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each value in the public list [n], `UNLISTED` or `EMPTY`."""

    def places_of_empty_cells(self) -> NDArray[np.bool_]:
        """Which values are missing [n]."""

    def unit_identifiers(self) -> list[bytes]:
        """The units that the values identify, one for each record; a missing one is refused."""

    def texts(self) -> list[str]:
        """The values as texts, one for each record; a missing one is empty."""


def positions_in_list(column: TableColumn, listed: Sequence[str], found: Mismatches) -> NDArray[np.int64]:
    """The position of each value in the public list [n]; a value that is not in the list is a mismatch."""
    positions = column.places_in_list(listed)
    add_unlisted_values(column, positions < 0, listed, found)
    return positions


def add_unlisted_values(
    column: TableColumn, wrong: NDArray[np.bool_], listed: Sequence[str], found: Mismatches, advice: str = ""
) -> None:
    """Adds the values that are not in a list."""
    found.add(
        column,
        wrong,
        "to be a declared value",
        lambda value: nearest_name_text(value.strip("'\""), listed, "declared value") + advice,
    )


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of texts [n]: each record's distinct text, and the place of each record in the file.

    `values` are the distinct texts, `codes` [n] says which of them a record has, and `places` [n] are line numbers, or
    other numbers that `place` names. `decimal` is the mark before the decimals of a number.

    Errors: `BadInput`, one sentence that names file, line and column.
    """

    name: str
    file: str
    values: tuple[str, ...]
    codes: NDArray[np.int32]
    places: Sequence[int]
    place: str = "line"
    decimal: str = "."

    @classmethod
    def from_cells(cls, name: str, file: str, cells: Mapping[int, str], place: str = "line") -> Column:
        """The column with these cells by their place."""
        return column_of_cells(name, file, list(cells.values()), list(cells), place=place)

    def place_text(self, index: int) -> str:
        """The line of a record."""
        return f"{self.place} {self.places[index]} of {self.file}"

    def value_text(self, index: int) -> str:
        """The cell in quotes."""
        cell = self.values[self.codes[index]]
        return repr(cell) if cell else "an empty cell"

    def numbers(self, found: Mismatches) -> NDArray[np.float64]:
        """The finite numbers [n]; NaN for an empty cell, and for any other value, which is a mismatch."""
        if self.decimal == "." and not "".join(self.values).encode("utf-8", "surrogateescape").translate(None, PLAIN):
            with suppress(ValueError):  # "1-2" or an empty cell
                return np.array(list(map(float, self.values)), dtype=np.float64)[self.codes]
        return self._parsed(self._number_in_text, FINITE, _advice_on_number, found)

    def days(self, form: str, found: Mismatches) -> NDArray[np.float64]:
        """The days [n] since 1970; NaN for an empty cell, and for a mismatch."""
        expected = f"to be a day as {datetime(2026, 11, 26).strftime(form)} (dataset.date_format)"
        return self._parsed(lambda cell: days_since_1970(cell, form), expected, lambda value: "", found)

    def places_in_list(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each cell in the public list [n], `UNLISTED` or `EMPTY`."""
        place = {"": EMPTY} | {value: position for position, value in enumerate(listed)}
        return np.array([place.get(value, UNLISTED) for value in self.values] or [0], dtype=np.int64)[self.codes]

    def places_of_empty_cells(self) -> NDArray[np.bool_]:
        """Which cells are empty [n]."""
        return self._is_empty

    def unit_identifiers(self) -> list[bytes]:
        """The cells in UTF-8, one for each record; none may be empty."""
        with mismatches_refused() as found:
            found.add(self, self._is_empty, "to say whose record it is")
        names = [value.encode("utf-8", "surrogateescape") for value in self.values]
        return [names[code] for code in self.codes]

    def texts(self) -> list[str]:
        """The cells, one for each record."""
        return [self.values[code] for code in self.codes]

    @cached_property
    def _is_empty(self) -> NDArray[np.bool_]:
        return np.array([not value for value in self.values] or [False])[self.codes]

    def _parsed(
        self, parse: Callable[[str], float], expected: str, advice: Callable[[str], str], found: Mismatches
    ) -> NDArray[np.float64]:
        """The number [n] that each cell stands for; NaN for an empty one, and for a mismatch."""
        of_value = np.full(max(1, len(self.values)), math.nan)
        for place, value in enumerate(self.values):
            with suppress(ValueError):  # no number or day: a mismatch
                of_value[place] = parse(value) if value else math.nan
        numbers: NDArray[np.float64] = of_value[self.codes]
        found.add(self, np.isnan(numbers) & ~self._is_empty, expected, advice)
        return numbers

    def _number_in_text(self, cell: str) -> float:
        """The finite number in a cell, NaN if there is none."""
        if self.decimal != ".":
            cell = "no number" if "." in cell else cell.replace(self.decimal, ".")
        number = float(cell) if NUMBER.fullmatch(cell) else math.nan
        return number if math.isfinite(number) else math.nan


def column_of_cells(
    name: str,
    file: str,
    cells: Sequence[str],
    places: Sequence[int],
    *,
    place: str = "line",
    decimal: str = ".",
    empty: frozenset[str] = frozenset(),
) -> Column:
    """The column of these cells, in composed form and without spaces around them; texts of `empty` are none."""
    if len(set(cells[:SAMPLE])) * 2 > len(cells[:SAMPLE]):
        values, codes = cells, np.arange(len(cells), dtype=np.int32)
    else:
        values = list(dict.fromkeys(cells))
        place_of = {value: code for code, value in enumerate(values)}
        codes = np.fromiter(map(place_of.__getitem__, cells), dtype=np.int32, count=len(cells))
    composed = composed_texts(values)
    return Column(
        name=name,
        file=file,
        values=tuple("" if value in empty else value for value in composed) if empty else tuple(composed),
        codes=codes,
        places=places,
        place=place,
        decimal=decimal,
    )


SAMPLE = 256
"""Cells of a column that tell whether its distinct values are few: then each is looked at once."""


def composed_texts(texts: Sequence[str]) -> list[str]:
    """The texts without the spaces around them, in Unicode's composed form."""
    stripped = [text.strip() for text in texts]
    return stripped if "".join(stripped).isascii() else list(map(composed_text, stripped))


def composed_text(text: str) -> str:
    """The text without the spaces around it, in Unicode's composed form."""
    stripped = text.strip()
    return stripped if stripped.isascii() else unicodedata.normalize("NFC", stripped)


def _advice_on_number(value: str) -> str:
    """What would mend a value that is no number."""
    cell = value.strip("'")
    if "," in cell or (cell.count(".") and cell.replace(".", "").replace(",", "").isdigit()):
        return (
            " A decimal comma is declared by dataset.decimal=comma; marks between thousands are not read, since 1,234 "
            "may be either."
        )
    if cell.casefold() in MISSING_WORDS:
        return (
            f" dataset.na_values=[{value}] says that it stands for an empty cell, and dataset.missing what such a cell "
            "counts as."
        )
    if cell.casefold() in ("true", "false", "yes", "no"):
        return " Declare the column in dataset.categories, with its values in quotes."
    return ""


MISSING_WORDS = frozenset(
    {"na", "n/a", "nan", "null", "none", "nil", "missing", "unknown", "?", "-", "--", ".", "#n/a"}
)
"""Words that often stand for an empty cell, in lower case; they are never read so unless it is declared."""


def days_since_1970(day: str, form: str = ISO) -> float:
    """The days since 1970 of a day in this form; raises ValueError for any other text."""
    return float((datetime.strptime(day, form).date() - date(1970, 1, 1)).days)


def check_header_has_columns_once(header: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse a table that does not have each of these columns once."""
    for name in names:
        if (count := header.count(name)) != 1:
            advice = " Rename the others in a copy of the file."
            if not count:
                advice = nearest_name_text(name, [one for one in header if one], "name")
            raise BadInput(f"Expected one column {name} in {where}, got {count}.{advice}")


def clamp_and_scale_to_0_1(numbers: NDArray[np.float64], bounds: Bounds) -> NDArray[np.float64]:
    """Numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
    low, high = bounds
    return (np.clip(numbers, low, high) - low) / (high - low)


def checked_public_texts(name: str, values: Sequence[object]) -> tuple[str, ...]:
    """A public list of values from a data set's YAML as distinct texts, or a ValueError.

    YAML reads unquoted yes, no, on and off as booleans, which match no cell.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise ValueError(f"Expected {name}={values!r} to be a list of values.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ValueError(f"Expected {name}={value!r} to be texts or whole numbers; quote yes and no.")
    texts = tuple(composed_text(str(value)) for value in values)
    if len(set(texts)) != len(texts):
        raise ValueError(f"Expected {name}={list(texts)} to be distinct.")
    return texts


def checked_public_bounds(bounds: Mapping[str, Sequence[float]]) -> dict[str, Bounds]:
    """The bounds from a data set's YAML as numbers, or a ValueError."""
    return {
        composed_text(key) if isinstance(key, str) else key: checked_public_range(f"dataset.bounds.{key}", pair)
        for key, pair in bounds.items()
    }


def checked_public_range(name: str, pair: Sequence[float]) -> Bounds:
    """The two ends of one public range, or a ValueError."""
    listed = isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_finite_number, pair))
    if not (listed and pair[0] < pair[1]):
        raise ValueError(f"Expected {name}={pair} to be two numbers, finite and rising.")
    return float(pair[0]), float(pair[1])


def _is_finite_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
