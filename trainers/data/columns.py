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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.mismatches import Mismatches, mismatches_refused, nearest_name_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
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


class TableColumn(Protocol):
    """One column of a table. Its mismatches with a declaration are added to `found`."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def place_text(self, index: int) -> str:
        """Where the value at this index is."""
        ...

    def value_text(self, index: int) -> str:
        """The value at this index, as a message shows it."""
        ...

    def numbers(self, found: Mismatches) -> NDArray[np.float64]:
        """The finite numbers [n]; NaN for a missing one, and for any other value, which is a mismatch."""
        ...

    def days(self, form: str, found: Mismatches) -> NDArray[np.float64]:
        """The days [n] since 1970, of texts in this form; NaN for a missing one, and for a mismatch."""
        ...

    def places_in_list(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each value in the public list [n], `UNLISTED` or `EMPTY`."""
        ...

    def places_of_empty_cells(self) -> NDArray[np.bool_]:
        """Which values are missing [n]."""
        ...

    def unit_identifiers(self) -> list[bytes]:
        """The units that the values identify, one for each record; a missing one is refused."""
        ...

    def texts(self) -> list[str]:
        """The values as texts, one for each record; a missing one is empty."""
        ...


def positions_in_list(column: TableColumn, listed: Sequence[str], found: Mismatches | None = None) -> NDArray[np.int64]:
    """The position of each value in the public list [n]; a value that is not in the list is a mismatch.

    Without `found` a mismatch is refused at once.
    """
    positions = column.places_in_list(listed)
    if found is None:
        with mismatches_refused() as all_of_it:
            add_unlisted_values(column, positions < 0, listed, all_of_it)
    else:
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
        return self._parsed(lambda cell: _day_in_text(cell, form), expected, lambda value: "", found)

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
        of_value = np.array([parse(value) if value else math.nan for value in self.values] or [math.nan])
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


def _day_in_text(cell: str, form: str) -> float:
    """The days since 1970 of a day in this form, NaN for any other text."""
    try:
        return float((datetime.strptime(cell, form).date() - date(1970, 1, 1)).days)
    except ValueError:
        return math.nan


def check_header_has_columns_once(header: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse a table that does not have each of these columns once."""
    for name in names:
        if (count := header.count(name)) != 1:
            advice = nearest_name_text(name, [one for one in header if one], "name") if not count else ""
            raise BadInput(f"Expected one column {name} in {where}, got {count}.{advice}")


def clamp_and_scale_to_0_1(numbers: NDArray[np.float64], bounds: Bounds) -> NDArray[np.float64]:
    """Numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
    low, high = bounds
    return (np.clip(numbers, low, high) - low) / (high - low)


def parse_finite_number(cell: str, where: str) -> float:
    """The finite number in a cell, or `BadInput` that names the cell by `where`."""
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"Expected {where} to be a finite number, got {cell!r}.")
    return number


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


_TEXTS = ("is_string", "is_large_string", "is_string_view")
_NUMBERS = ("is_integer", "is_floating", "is_decimal", "is_boolean")
_NAMES = ("is_integer", "is_boolean")
_BYTES = ("is_binary", "is_large_binary", "is_binary_view", "is_fixed_size_binary")
_LISTS = ("is_list", "is_large_list", "is_fixed_size_list")
_FIXED = ("is_integer", "is_floating", "is_boolean")
"""The functions of `pyarrow.types` that recognise a kind of values."""


@dataclass(frozen=True, kw_only=True)
class TypedColumn:
    """One column [n] of a file, in one piece and without a dictionary.

    `first` is the number of its first row, which is 0 in a file that is read as a whole.
    Errors: `BadInput`, one sentence that names file, row and column.
    """

    name: str
    file: str
    values: pa.Array
    first: int = 0

    @classmethod
    def from_chunked_array(cls, name: str, file: str, values: pa.ChunkedArray, first: int = 0) -> TypedColumn:
        """A column of some rows of a table."""
        return cls(name=name, file=file, values=_plain_arrow_array(values), first=first)

    def place_text(self, index: int) -> str:
        """The row of a record."""
        return f"row {self.first + index} of {self.file}"

    def value_text(self, index: int) -> str:
        """The value, or null."""
        value = self.values[index].as_py()
        return "null" if value is None else repr(value) if isinstance(value, str) else str(value)

    def numbers(self, found: Mismatches) -> NDArray[np.float64]:
        """The finite numbers [n]; NaN for null and for NaN, and for an infinite one, which is a mismatch."""
        import pyarrow as pa

        self._require_column_type(_NUMBERS, "numbers")
        stored: NDArray[np.float64] = self.values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        found.add(self, np.isinf(stored), FINITE)
        return np.where(np.isinf(stored), np.nan, stored)

    def days(self, form: str, found: Mismatches) -> NDArray[np.float64]:
        """The days [n] since 1970 of dates and times, or of texts in this form; NaN for null, and for a mismatch."""
        import pyarrow as pa

        if _is_type_of(_TEXTS, self.values.type):
            return self._as_text_column().days(form, found)
        self._require_column_type(("is_date", "is_timestamp"), "days")
        days = self.values.cast(pa.date32(), safe=False).cast(pa.int32()).cast(pa.float64(), safe=False)
        numbers: NDArray[np.float64] = days.to_numpy(zero_copy_only=False)
        return numbers

    def places_in_list(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each value in the public list [n], `UNLISTED` or `EMPTY`."""
        return self._as_text_column().places_in_list(listed)

    def places_of_empty_cells(self) -> NDArray[np.bool_]:
        """Which values are null [n], or not a number."""
        if _is_type_of(_TEXTS, self.values.type):
            return self._as_text_column().places_of_empty_cells()
        from pyarrow import compute

        nulls: NDArray[np.bool_] = compute.is_null(self.values, nan_is_null=True).to_numpy(zero_copy_only=False)
        return nulls

    def unit_identifiers(self) -> list[bytes]:
        """The values as texts, one for each record; none may be missing."""
        return self._as_text_column().unit_identifiers()

    def texts(self) -> list[str]:
        """The values as texts, one for each record; a missing one is empty."""
        return self._as_text_column().texts()

    @property
    def has_picture_files(self) -> bool:
        """Whether the values are files of pictures, with or without their names."""
        return _is_type_of(("is_struct", *_BYTES), self.values.type)

    def bytes_of_picture_files(self) -> list[bytes]:
        """The files of pictures, one for each record, as Hugging Face's library stores them."""
        kind = self.values.type
        parts = {"": self.values}
        if _is_type_of(("is_struct",), kind):
            parts = dict(zip((field.name for field in kind), self.values.flatten(), strict=True))
        files = parts.get("bytes", parts.get(""))
        if files is None or not _is_type_of((*_BYTES, "is_null"), files.type):
            raise BadInput(f"Expected {self.name} in {self.file} to hold the bytes of pictures, got {kind}.")
        if files.null_count:
            row = int(_missing_value_mask(files).argmax())
            raise BadInput(f"Expected {self.name} in row {row} of {self.file} to hold a picture, got null.")
        contents: list[bytes] = files.to_pylist()
        return contents

    def numbers_of_nested_lists(self, shape: tuple[int, ...]) -> NDArray[np.generic]:
        """The numbers [n, *shape] of nested lists, or of lists of all numbers of a record."""
        values, depth = self.values, 0
        while _is_type_of(_LISTS, values.type) and depth <= len(shape):
            values, depth = _plain_arrow_array(values.flatten()), depth + 1
        sizes = shape if depth == len(shape) else (math.prod(shape),)
        if len(sizes) != depth or not _is_type_of((*_FIXED, "is_null"), values.type):
            raise BadInput(
                f"Expected {self.name} in {self.file} to hold numbers of shape {list(shape)}, got {self.values.type}."
            )
        values, before = self.values, 1
        for size in sizes:
            self._refuse_first_row_with_wrong_value(_list_lengths(values) == size, before, shape)
            values, before = _plain_arrow_array(values.flatten()), before * size
        self._refuse_first_row_with_wrong_value(~_missing_value_mask(values), before, shape)
        numbers = np.array(values.to_numpy(zero_copy_only=False))  # a copy: Arrow's memory cannot be written to
        return numbers.reshape(len(self.values), *shape)

    def _refuse_first_row_with_wrong_value(self, right: NDArray[np.bool_], values: int, shape: tuple[int, ...]) -> None:
        """Refuse the first row with a value that is not right; each row has so many `values`."""
        if not right.all():
            raise BadInput(
                f"Expected {self.name} in row {int(right.argmin()) // values} of {self.file} to hold numbers of shape "
                f"{list(shape)}, without null."
            )

    def _as_text_column(self) -> Column:
        """The values as texts without surrounding spaces; whole numbers and booleans as 17, true and false."""
        import pyarrow as pa
        from pyarrow import compute

        values = self.values
        if _is_type_of(("is_floating",), values.type):
            values = self._whole_numbers()
        self._require_column_type((*_TEXTS, *_NAMES, "is_floating"), "texts or whole numbers")
        distinct = compute.fill_null(values.cast(pa.large_string()), "").dictionary_encode()
        if isinstance(distinct, pa.ChunkedArray):
            distinct = distinct.combine_chunks()
        return Column(
            name=self.name,
            file=self.file,
            values=tuple(map(composed_text, distinct.dictionary.to_pylist())),
            codes=distinct.indices.to_numpy(zero_copy_only=False),
            places=range(self.first, self.first + len(values)),
            place="row",
        )

    def _whole_numbers(self) -> pa.Array:
        """The values of a column of floats that are all whole, as pandas stores whole numbers of which some miss."""
        import pyarrow as pa

        stored = self.values.to_numpy(zero_copy_only=False)
        missing = np.isnan(stored)
        with mismatches_refused() as found:
            broken = ~missing & ~((np.floor(stored) == stored) & (np.abs(stored) < 2**53))
            found.add(self, broken, "to be a text or a whole number")
        return pa.array(np.where(missing, 0, stored).astype(np.int64), mask=missing)

    def _require_column_type(self, kinds: Sequence[str], what: str) -> None:
        if not _is_type_of((*kinds, "is_null"), self.values.type):
            raise BadInput(f"Expected {self.name} in {self.file} to hold {what}, got {self.values.type}.")


def kind_of_type(found: pa.DataType) -> ColumnKind | None:
    """What a type says about the values of a column."""
    if _is_type_of(("is_dictionary",), found):
        return kind_of_type(found.value_type)
    kinds = {
        ColumnKind.NUMBER: ("is_integer", "is_floating", "is_decimal"),
        ColumnKind.NAME: (*_TEXTS, "is_boolean"),
        ColumnKind.DAY: ("is_date", "is_timestamp"),
    }
    return next((kind for kind, types in kinds.items() if _is_type_of(types, found)), None)


def column_type_and_values_as_bytes(values: pa.ChunkedArray | pa.Array) -> Iterator[bytes]:
    """The type and the values of a column as bytes; they depend on no version of pyarrow and on no buffer's padding."""
    import pyarrow as pa
    from pyarrow import compute

    plain = _plain_arrow_array(values)
    kind = plain.type
    families = (("string", _TEXTS), ("list", _LISTS), ("struct", ("is_struct",)))
    family = next((family for family, kinds in families if _is_type_of(kinds, kind)), str(kind))
    yield f"{family} {len(plain)}\n".encode()
    yield np.packbits(compute.is_null(plain).to_numpy(zero_copy_only=False)).tobytes() if plain.null_count else b""
    if _is_type_of((*_TEXTS, *_BYTES), kind):
        whole = compute.fill_null(plain.cast(pa.large_binary()), b"")
        yield compute.binary_length(whole).to_numpy().astype("<i8").tobytes()
        yield b"".join(whole.to_pylist())
    elif _is_type_of(_LISTS, kind):
        yield compute.fill_null(compute.list_value_length(plain), 0).to_numpy().astype("<i8").tobytes()
        yield from column_type_and_values_as_bytes(plain.flatten())
    elif _is_type_of(("is_struct",), kind):
        for name, part in zip((field.name for field in kind), plain.flatten(), strict=True):
            yield f"{name}\n".encode()
            yield from column_type_and_values_as_bytes(part)
    elif _is_type_of(_FIXED, kind):
        stored = compute.fill_null(plain, pa.scalar(0).cast(kind)).to_numpy(zero_copy_only=False)
        yield stored.astype(stored.dtype.newbyteorder("<")).tobytes()
    else:
        yield repr(plain.to_pylist()).encode()


def _missing_value_mask(values: pa.Array) -> NDArray[np.bool_]:
    """Which values are missing [n]."""
    from pyarrow import compute

    nulls: NDArray[np.bool_] = compute.is_null(values).to_numpy(zero_copy_only=False)
    return nulls


def _list_lengths(lists: pa.Array) -> NDArray[np.int64]:
    """The number of values of each list [n]; -1 where the list is missing."""
    from pyarrow import compute

    lengths: NDArray[np.int64] = compute.fill_null(compute.list_value_length(lists), -1).to_numpy().astype(np.int64)
    return lengths


def _is_type_of(kinds: Sequence[str], found: pa.DataType) -> bool:
    """Whether a type is one of these kinds."""
    from pyarrow import types

    return any(getattr(types, kind)(found) for kind in kinds)


def _plain_arrow_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The values in one piece, without a dictionary and as they are stored, not as an extension shows them."""
    import pyarrow as pa

    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(whole, pa.ExtensionArray):
        return _plain_arrow_array(whole.storage)
    if _is_type_of(("is_dictionary",), whole.type):
        return _plain_arrow_array(whole.dictionary_decode())
    return whole
