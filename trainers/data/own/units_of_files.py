"""The units that files belong to: by a pattern for their names, or by a table of the files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.own.table_files import table_file

if TYPE_CHECKING:
    from pathlib import Path

FILE = "file"
"""The column of a table of files that has their names."""


@dataclass(frozen=True, kw_only=True)
class UnitsOfFiles:
    """The unit of a file: the group `column` of `pattern`, or the value of `column` in the file's row of `table`.

    Guarantee: a file's unit is a function of its own name and, if there is a `table`, of its own row.
    """

    column: str
    pattern: str | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        if (self.pattern is None) is (self.table is None):
            raise ValueError(
                f"Expected dataset.unit_column={self.column} with either dataset.unit_pattern or dataset.unit_file."
            )
        if self.table is not None and (not isinstance(self.table, str) or not self.table or self.column == FILE):
            raise ValueError(
                f"Expected dataset.unit_file={self.table!r} to name a table with the columns {FILE} and another one."
            )
        if self.pattern is not None and self.column not in _compiled(self.pattern).groupindex:
            raise ValueError(
                f"Expected dataset.unit_pattern={self.pattern!r} to have the group (?P<{self.column}>...), which "
                "dataset.unit_column names."
            )

    @classmethod
    def declared(cls, column: str | None, pattern: str | None, table: str | None) -> UnitsOfFiles | None:
        """What a data set declares; None if it declares no units."""
        if column is None:
            for name, value in (("unit_pattern", pattern), ("unit_file", table)):
                if value is not None:
                    raise ValueError(
                        f"Expected dataset.{name}={value} to be null where no dataset.unit_column is given."
                    )
            return None
        return cls(column=column, pattern=pattern, table=table)

    def locate(self, name: str, folder: Path | None) -> None:
        """Find the table, if there is one; `name` is the data set's."""
        if self.table is not None:
            table_file(name, self.table, folder)

    def identifiers(self, files: Sequence[str], name: str, folder: Path | None) -> list[bytes]:
        """The unit of each file; one without a unit is refused.

        Errors: `BadInput`, one sentence that names the first such file.
        """
        units = self._matched(files) if self.table is None else self._listed(self.table, name, folder)
        for file in files:
            if not units.get(file):
                raise BadInput(f"Expected {file} to say whose record it is, by {self._source}.")
        return [units[file] for file in files]

    @property
    def _source(self) -> str:
        return f"dataset.unit_pattern={self.pattern!r}" if self.table is None else f"a row in {self.table}"

    def _matched(self, files: Sequence[str]) -> Mapping[str, bytes]:
        pattern = _compiled(str(self.pattern))
        matches = {file: pattern.fullmatch(file) for file in files}
        return {file: (match[self.column] or "").encode() for file, match in matches.items() if match is not None}

    def _listed(self, table: str, name: str, folder: Path | None) -> Mapping[str, bytes]:
        columns = table_file(name, table, folder).columns((FILE, self.column))
        files, units = (columns[column].identifiers() for column in (FILE, self.column))
        listed: dict[str, bytes] = {}
        for file, unit in zip((one.decode("utf-8", "surrogateescape") for one in files), units, strict=True):
            if listed.setdefault(file, unit) != unit:
                raise BadInput(f"Expected {file} to have one unit in {table}, got two.")
        return listed


def _compiled(pattern: object) -> re.Pattern[str]:
    try:
        return re.compile(pattern)  # type: ignore[call-overload,no-any-return]
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"Expected dataset.unit_pattern={pattern!r} to be a regular expression, got: {error}."
        ) from error
