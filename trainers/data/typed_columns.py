"""Columns of tables whose formats have types: Parquet and Arrow files.

Numbers are used as they are stored, and texts, whole numbers and booleans as names of values. A missing value is an
empty text, as in a CSV file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.columns import FINITE, Column, ColumnKind, composed_text
from dpsweep.trainers.data.mismatches import Mismatches, mismatches_refused

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

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
