"""Tables of texts: CSV files in any dialect, compressed or not, and spreadsheets.

How a file is read follows from its first bytes, from its header line and from the declaration, never from its records.
The first bytes tell compression and Unicode's encodings; the delimiter is the one that divides the header into the
declared names. Another encoding and a decimal comma are declared. Cells are texts: nothing guesses types or words for
missing values, so that `007` and `NA` stay what they are.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import itertools
import json
import lzma
import re
import zipfile
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, ClassVar

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.trainers.data.columns import (
    Column,
    ColumnKind,
    check_header_has_columns_once,
    column_of_cells,
    composed_text,
)

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
"""The delimiters that have a word; the first four are tried where none is declared."""

TRIED = (",", ";", "\t", "|")
DECIMALS = {"point": ".", "comma": ","}
ROWS = 1 << 14
"""The rows that are held as texts at once."""

_CHUNK = 1 << 20
_SNIFFED = 1 << 10
_UNICODE_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OTHER_FORMATS = {
    b"\xd0\xcf\x11\xe0": "an old Excel or another Office file; save it as .xlsx or .csv",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; decompress it, or compress it by gzip",
    b"PAR1": "a Parquet file; name it .parquet",
    b"ARROW1": "an Arrow file; name it .arrow",
    b"SQLite format 3": "an SQLite database; write its table as .csv or .parquet",
    b"$FL2": "an SPSS file; write it as .csv or .parquet",
    b"<stata_dta>": "a Stata file; write it as .csv or .parquet",
    b"%PDF": "a PDF file; write its table as .csv",
}
"""The first bytes of files that are no text, and what to do with them."""

_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*')
"""The line by which spreadsheets say what divides cells, before the header."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a table of texts is written, as far as it is declared; None for what its first bytes and its header tell.

    `delimiter` is a character or a word of `DELIMITERS`, `decimal` a word of `DECIMALS`, `encoding` a name of Python's
    codecs. `na_values` are texts that stand for an empty cell.
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    na_values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.delimiter is not None and (not isinstance(self.delimiter, str) or len(self.separator or "") != 1):
            raise ValueError(
                f"Expected dataset.delimiter={self.delimiter!r} to be null, one character, or one of "
                f"{', '.join(DELIMITERS)}."
            )
        if self.decimal is not None and self.mark_of_decimals not in DECIMALS.values():
            raise ValueError(f"Expected dataset.decimal={self.decimal!r} to be null or one of {', '.join(DECIMALS)}.")
        if self.encoding is not None:
            _require_text_encoding(self.encoding)
        if isinstance(self.na_values, str) or not all(isinstance(value, str) for value in self.na_values):
            raise ValueError(f"Expected dataset.na_values={self.na_values!r} to be a list of texts; quote numbers.")
        object.__setattr__(self, "na_values", tuple(map(composed_text, self.na_values)))

    @property
    def separator(self) -> str | None:
        """The character that divides cells, if it is declared."""
        return None if self.delimiter is None else DELIMITERS.get(self.delimiter, self.delimiter)

    @property
    def mark_of_decimals(self) -> str:
        """The mark before the decimals of a number."""
        return "." if self.decimal is None else DECIMALS.get(self.decimal, self.decimal)

    def column(self, name: str, file: str, cells: Sequence[str], places: Sequence[int], place: str) -> Column:
        """The column of these cells."""
        empty = frozenset(self.na_values)
        return column_of_cells(name, file, cells, places, place=place, decimal=self.mark_of_decimals, empty=empty)


PLAIN = Dialect()


def _require_text_encoding(name: object) -> None:
    try:
        is_text = isinstance(name, str) and codecs.lookup(name)._is_text_encoding
    except LookupError:
        is_text = False
    if not is_text:
        raise ValueError(f"Expected dataset.encoding={name!r} to be null or an encoding such as utf-16 or cp1252.")


Opened = tuple[list[str], Iterator[tuple[int, Sequence[str]]]]
"""The header of a table and its numbered rows."""


@dataclass(frozen=True, kw_only=True)
class TableOfTexts(ABC):
    """A table whose cells are texts; `file` is its name in messages.

    Errors: `BadInput`, one sentence that names the file.
    """

    place: ClassVar[str] = "line"
    """What the number of a row counts."""

    path: Path
    file: str
    dialect: Dialect = PLAIN

    @abstractmethod
    def content_hash_of_table(self) -> Content:
        """The content that identifies the table."""

    @abstractmethod
    def _open_header_and_rows(self, names: Sequence[str]) -> AbstractContextManager[Opened]:
        """The header and the numbered rows; `names` are columns that the header should have."""

    def read_columns(self, names: Sequence[str]) -> Mapping[str, Column]:
        """The columns with these names."""
        (columns,) = self._batches(names, rows=None)
        return columns

    def batches(self, names: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """The columns with these names, some rows at a time; one batch at least."""
        return self._batches(names, rows=ROWS)

    def kinds_of_columns(self) -> Mapping[str, ColumnKind | None]:
        """All columns by the header, whose kinds it does not say."""
        with self._open_header_and_rows(()) as (header, _):
            return dict.fromkeys(header)

    def _batches(self, names: Sequence[str], rows: int | None) -> Iterator[Mapping[str, Column]]:
        with self._open_header_and_rows(names) as (header, numbered):
            check_header_has_columns_once(header, names, f"the header of {self.file}")
            wanted = [(header.index(name), name) for name in names]
            first = True
            while first or rows is not None:
                chunk = list(itertools.islice(numbered, rows))
                if not chunk and not first:
                    return
                first = False
                places = array("q", (place for place, _ in chunk))
                for place, row in chunk:
                    if len(row) != len(header):
                        self._require_width(row, header, place)
                cells = list(zip(*(row for _, row in chunk), strict=False)) or [()] * len(header)
                columns = {
                    name: self.dialect.column(name, self.file, cells[index], places, self.place)
                    for index, name in wanted
                }
                for column in columns.values():
                    self._require_decoded(column)
                yield columns

    def _require_width(self, row: Sequence[str], header: Sequence[str], place: int) -> None:
        """Refuse a row that has not the header's width, but for an empty cell after a last delimiter."""
        if len(row) == len(header) + 1 and not row[-1].strip():
            return
        comma = " A number with a decimal comma needs quotes around it there." if len(row) > len(header) else ""
        raise BadInput(f"Expected {len(header)} values in {self.place} {place} of {self.file}, got {len(row)}.{comma}")

    def _require_decoded(self, column: Column) -> None:
        """Refuse texts with bytes that the encoding does not have."""
        if "".join(column.values).isascii():
            return
        for code, value in enumerate(column.values):
            if any("\ud800" <= letter <= "\udfff" for letter in value):
                index = int((column.codes == code).argmax())
                raise BadInput(
                    f"Expected {column.name} in {column.place_text(index)} to be {self.dialect.encoding or 'UTF-8'}, "
                    f"got {_stored_bytes(value)!r}. {_ENCODING_ADVICE}"
                )


def _stored_bytes(text: str) -> bytes:
    """The bytes of a text as they stand in the file, where its encoding has no letters for some."""
    return text.encode("utf-8", "surrogateescape")


_ENCODING_ADVICE = "dataset.encoding=cp1252 (or latin-1, or another) declares how letters are stored."


@dataclass(frozen=True, kw_only=True)
class CsvTable(TableOfTexts):
    """A CSV file with a header, compressed or not."""

    def content_hash_of_table(self) -> Content:
        """The bytes of the file, decompressed: the same in every compression."""
        with self._readable_bytes() as stream:
            return Content.from_chunks(iter(partial(stream.read, _CHUNK), b""))

    @contextmanager
    def _readable_bytes(self) -> Iterator[IO[bytes]]:
        """The decompressed bytes; errors of the disk and of a compression are refusals."""
        try:
            with ExitStack() as stack:
                yield _opened_and_decompressed(self.path, self.file, stack)
        except BadInput:
            raise
        except (OSError, EOFError, csv.Error, zipfile.BadZipFile, lzma.LZMAError, UnicodeError, ValueError) as error:
            reason = escape_invisible_characters(" ".join(str(error).split())).rstrip(".") or type(error).__name__
            quotes = "; quotes within quotes are doubled" if isinstance(error, csv.Error) else ""
            raise BadInput(f"Expected {self.file} to be a readable CSV file, got: {reason}{quotes}.") from error

    @contextmanager
    def _open_header_and_rows(self, names: Sequence[str]) -> Iterator[Opened]:
        """The header and an iterator over the numbered rows."""
        with self._readable_bytes() as stream:
            lines = enumerate(self._decoded(stream))
            separator, before, first = self._declared_separator_and_header_line(lines)
            delimiter = separator or _delimiter_of_header(first, names)
            rows = csv.reader(itertools.chain([first], (line for _, line in lines)), delimiter=delimiter, strict=True)
            header = [composed_text(name) for name in next(rows, [])]
            self._require_readable_header(header, names)
            yield header, ((before + rows.line_num, row) for row in rows if _is_filled(row))

    def _decoded(self, stream: IO[bytes]) -> IO[str]:
        """The text of the file, in the encoding that its first bytes or the declaration name."""
        start = stream.peek(_SNIFFED)[:_SNIFFED] if hasattr(stream, "peek") else b""
        marked = next((name for mark, name in _UNICODE_MARKS if start.startswith(mark)), None)
        declared = self.dialect.encoding
        if (
            declared is not None
            and marked is not None
            and codecs.lookup(declared).name
            not in (codecs.lookup(marked).name, codecs.lookup(marked.removesuffix("-sig")).name)
        ):
            raise BadInput(
                f"Expected dataset.encoding={declared} to be left out: {self.file} starts with a mark of "
                f"{marked.removesuffix('-sig').upper()}."
            )
        encoding = marked or declared or "utf-8"
        if marked is None and b"\0" in start and not _is_wide(declared):
            raise BadInput(
                f"Expected {self.file} to be a text, got bytes of 0 in its first lines. If it is UTF-16, "
                "dataset.encoding=utf-16-le or utf-16-be says so."
            )
        errors = "strict" if _is_wide(encoding) else "surrogateescape"
        return io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline="")

    def _declared_separator_and_header_line(self, lines: Iterator[tuple[int, str]]) -> tuple[str | None, int, str]:
        """What divides cells, if the declaration or a line before the header says it, and the header's first line.

        The number in between counts the lines before it.
        """
        filled = ((before, line) for before, line in lines if line.strip())
        (before, first), separator = next(filled, (0, "")), self.dialect.separator
        if (said := _SEPARATOR_LINE.fullmatch(first)) is not None:
            return separator or said.group(1), *next(filled, (0, ""))
        return separator, before, first

    def _require_readable_header(self, header: Sequence[str], names: Sequence[str]) -> None:
        """Refuse a header in another encoding, or one that nothing known divides."""
        for name in header:
            if any("\ud800" <= letter <= "\udfff" for letter in name):
                raise BadInput(
                    f"Expected the header of {self.file} to be {self.dialect.encoding or 'UTF-8'}, got "
                    f"{_stored_bytes(name)!r}. {_ENCODING_ADVICE}"
                )
        if len(header) == 1 and len(names) > 1:
            raise BadInput(
                f"Expected the header of {self.file} to have the columns {', '.join(names)}, got the one name "
                f"{escape_invisible_characters(header[0])!r}: dataset.delimiter says what divides it."
            )


def _is_filled(row: Sequence[str]) -> bool:
    """Whether a row is one: spreadsheets write rows of empty cells after the last one."""
    return len(row) == 1 or any(row)


def _is_wide(encoding: str | None) -> bool:
    """Whether letters of an encoding have several bytes, one of which may be 0."""
    return encoding is not None and codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))


def _delimiter_of_header(line: str, names: Sequence[str]) -> str:
    """The delimiter that divides a header line into these names, or else into the most cells."""
    headers = {
        delimiter: [composed_text(name) for name in next(csv.reader([line], delimiter=delimiter), [])]
        for delimiter in TRIED
    }
    return max(TRIED, key=lambda one: (sum(headers[one].count(name) == 1 for name in names), len(headers[one])))


def _opened_and_decompressed(path: Path, file: str, stack: ExitStack) -> IO[bytes]:
    """The bytes of a file, decompressed as its first bytes say."""
    with path.open("rb") as stream:
        start = stream.read(16)
    for magic, what in _OTHER_FORMATS.items():
        if start.startswith(magic):
            raise BadInput(f"Expected {file} to be a text table, got {what}.")
    if start.startswith(b"PK\x03\x04"):
        return _opened_zip_member(path, file, stack)
    opened: Mapping[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
    opener = next((opener for magic, opener in opened.items() if start.startswith(magic)), None)
    raw = stack.enter_context(path.open("rb") if opener is None else opener(path))
    return io.BufferedReader(raw) if opener is not None else raw


def _opened_zip_member(path: Path, file: str, stack: ExitStack) -> IO[bytes]:
    """The bytes of the one file in an archive."""
    archive = stack.enter_context(zipfile.ZipFile(path))
    members = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
    if len(members) != 1:
        raise BadInput(f"Expected {file} to be an archive of one file, got {len(members)}: unpack it and name one.")
    if members[0].flag_bits & 1:
        raise BadInput(f"Expected {file} to be an archive without a password: unpack it.")
    return io.BufferedReader(stack.enter_context(archive.open(members[0])))  # type: ignore[type-var]


SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")

MOST_UNPACKED = 500_000_000
"""The most bytes of a workbook's unpacked parts: its reader holds them all in memory."""


def require_spreadsheet_reader(file: str) -> None:
    """Refuse a workbook where its reader is not installed."""
    if find_spec("python_calamine") is None:
        raise BadInput(
            f"Expected python-calamine to be installed, which reads {file}: pip install 'dpsweep[excel]', or save the "
            "sheet as CSV."
        )


@dataclass(frozen=True, kw_only=True)
class Spreadsheet(TableOfTexts):
    """The one sheet of a workbook, with a header in its first row; `file` is its name in messages.

    Whole numbers are texts such as `17`, days are `2026-11-26`, and booleans are true and false. A row's number is that
    of the sheet.
    """

    place = "row"

    _rows: list[list[str]] = field(default_factory=list, init=False, repr=False, compare=False)

    def content_hash_of_table(self) -> Content:
        """The texts of all cells: what formats and formulas a workbook has plays no part."""
        return Content.from_chunks(json.dumps(row).encode() + b"\n" for row in self._sheet_rows())

    @contextmanager
    def _open_header_and_rows(self, names: Sequence[str]) -> Iterator[Opened]:
        rows = self._sheet_rows()
        header = [composed_text(name) for name in rows[0]] if rows else []
        yield header, ((place, row) for place, row in enumerate(rows[1:], start=2) if _is_filled(row))

    def _sheet_rows(self) -> list[list[str]]:
        """The cells of the sheet as texts; a workbook whose directory says that it is too large is not unpacked."""
        from python_calamine import CalamineWorkbook

        if not self._rows:
            try:
                if zipfile.is_zipfile(self.path):
                    with zipfile.ZipFile(self.path) as archive:
                        size = sum(member.file_size for member in archive.infolist())
                    if size > MOST_UNPACKED:
                        raise ValueError(
                            f"it unpacks to {size / 1e6:.0f} MB, more than {MOST_UNPACKED / 1e6:.0f}: save it as CSV"
                        )
                workbook = CalamineWorkbook.from_path(self.path)
                sheets = workbook.sheet_names
                if len(sheets) == 1:
                    found = workbook.get_sheet_by_index(0).to_python(skip_empty_area=False)
                    self._rows.extend([_text_of_cell(cell) for cell in row] for row in found)
            except Exception as error:  # the library raises classes of its own, below Exception alone
                reason = escape_invisible_characters(" ".join(str(error).split())).rstrip(".")
                raise BadInput(f"Expected {self.file} to be a readable workbook, got: {reason}.") from error
            if len(sheets) != 1:
                raise BadInput(
                    f"Expected {self.file} to have one sheet, got {', '.join(sheets)}: save the one that is meant as a "
                    "workbook of its own, or as CSV."
                )
        return self._rows


def _text_of_cell(cell: Any) -> str:
    """The text of a cell of a workbook."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    text = cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
    return text.removesuffix("T00:00:00")
