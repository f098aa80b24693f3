"""The columns of a table, turned into inputs by public constants alone.

Numbers are clamped to public bounds and scaled to [0, 1]; categories and labels are looked up in public lists. Bounds
and lists never come from the records: a maximum or a vocabulary computed from private data is an uncharged query.

In typed columns numbers are used as they are stored, and texts, whole numbers and booleans as names of values. A
missing value is an empty text, as in a CSV file: it is refused as a number, a label or a unit, and it is in no list of
categories that does not name it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsweep.accounting.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    Bounds = tuple[float, float]


class TableColumn(Protocol):
    """One column of a table.

    Errors: `BadInput`, one sentence that names file, record and column.
    """

    def numbers_clamped_and_scaled_to_0_1(self, bounds: Bounds) -> NDArray[np.float64]:
        """The numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
        ...

    def positions_in_list(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each value in the public list [n]; a value that is not in the list is refused."""
        ...

    def one_hot(self, listed: Sequence[str]) -> NDArray[np.float64]:
        """A row of zeros and ones for each value [n, len(listed)]; only zeros if it is not in the public list."""
        ...

    def unit_identifiers(self) -> list[bytes]:
        """The units that the values identify, one for each record; a missing one is refused."""
        ...

    def texts(self) -> list[str]:
        """The values as texts, one for each record; a missing one is empty."""
        ...


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of texts: its cells by line number, or by another number that `place` names.

    Errors: `BadInput`, one sentence that names file, line and column.
    """

    name: str
    file: str
    cells: Mapping[int, str]
    place: str = "line"

    def numbers_clamped_and_scaled_to_0_1(self, bounds: Bounds) -> NDArray[np.float64]:
        """The numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
        return clamp_and_scale_to_0_1(self._finite_numbers(), bounds)

    def positions_in_list(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each cell in the public list [n]."""
        positions = self._positions_in_list_or_minus_one(listed)
        for number, cell, position in zip(self.cells, self.cells.values(), positions, strict=True):
            if position < 0:
                raise BadInput(f"Expected {self._cell_location_text(number)} from its list, got {cell!r}.")
        return positions

    def one_hot(self, listed: Sequence[str]) -> NDArray[np.float64]:
        """A row of zeros and ones for each cell [n, len(listed)]; only zeros if it is not in the public list."""
        is_one: NDArray[np.bool_] = self._positions_in_list_or_minus_one(listed)[:, None] == np.arange(len(listed))
        return is_one.astype(np.float64)

    def unit_identifiers(self) -> list[bytes]:
        """The cells as the file's bytes, one for each record; none may be empty."""
        for number, cell in self.cells.items():
            if not cell:
                raise BadInput(f"Expected {self._cell_location_text(number)} to say whose record it is.")
        return [cell.encode("utf-8", "surrogateescape") for cell in self.cells.values()]

    def texts(self) -> list[str]:
        """The cells, one for each record."""
        return list(self.cells.values())

    def _positions_in_list_or_minus_one(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each cell in the list [n], -1 if it is not there."""
        place = {value: position for position, value in enumerate(listed)}
        return np.array([place.get(cell, -1) for cell in self.cells.values()], dtype=np.int64)

    def _finite_numbers(self) -> NDArray[np.float64]:
        numbers = (parse_finite_number(cell, self._cell_location_text(number)) for number, cell in self.cells.items())
        return np.fromiter(numbers, dtype=np.float64, count=len(self.cells))

    def _cell_location_text(self, number: int) -> str:
        return f"{self.name} in {self.place} {number} of {self.file}"


def check_header_has_columns_once(header: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse a table that does not have each of these columns once."""
    for name in names:
        if header.count(name) != 1:
            raise BadInput(f"Expected one column {name} in {where}, got {header.count(name)}.")


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
    texts = tuple(map(str, values))
    if len(set(texts)) != len(texts):
        raise ValueError(f"Expected {name}={list(texts)} to be distinct.")
    return texts


def checked_public_bounds(bounds: Mapping[str, Sequence[float]]) -> dict[str, Bounds]:
    """The bounds from a data set's YAML as numbers, or a ValueError."""
    return {key: checked_public_range(f"dataset.bounds.{key}", pair) for key, pair in bounds.items()}


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

    Errors: `BadInput`, one sentence that names file, row and column; the first row is row 0.
    """

    name: str
    file: str
    values: pa.Array

    @classmethod
    def from_chunked_array(cls, name: str, file: str, values: pa.ChunkedArray) -> TypedColumn:
        """A column of a table."""
        return cls(name=name, file=file, values=_plain_arrow_array(values))

    def numbers_clamped_and_scaled_to_0_1(self, bounds: Bounds) -> NDArray[np.float64]:
        """The numbers [n], clamped to public `bounds` and scaled to [0, 1]."""
        import pyarrow as pa

        self._require_column_type(_NUMBERS, "numbers")
        numbers = self.values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            first = int(wrong.argmax())
            value = self.values[first].as_py()
            raise BadInput(
                f"Expected {self.name} in row {first} of {self.file} to be a finite number, "
                f"got {'null' if value is None else value}."
            )
        return clamp_and_scale_to_0_1(numbers, bounds)

    def positions_in_list(self, listed: Sequence[str]) -> NDArray[np.int64]:
        """The position of each value in the public list [n]; a value that is not in the list is refused."""
        return self._as_text_column().positions_in_list(listed)

    def one_hot(self, listed: Sequence[str]) -> NDArray[np.float64]:
        """A row of zeros and ones for each value [n, len(listed)]; only zeros if it is not in the public list."""
        return self._as_text_column().one_hot(listed)

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

        self._require_column_type((*_TEXTS, *_NAMES), "texts or whole numbers")
        texts = compute.fill_null(compute.utf8_trim_whitespace(self.values.cast(pa.large_string())), "")
        return Column(name=self.name, file=self.file, cells=dict(enumerate(texts.to_pylist())), place="row")

    def _require_column_type(self, kinds: Sequence[str], what: str) -> None:
        if not _is_type_of((*kinds, "is_null"), self.values.type):
            raise BadInput(f"Expected {self.name} in {self.file} to hold {what}, got {self.values.type}.")


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
