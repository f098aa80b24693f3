"""What a table holds against what its declaration says: collected over the whole table, then refused in one sentence.

A refusal comes before the charge. It names the first place, the value, how many rows are concerned and the nearest
declared value. It quotes private records, so it is for the curator: it is printed, and no plan, result or page has it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dpsweep.accounting.printing import BadInputInLines, escape_invisible_characters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

CUTOFF = 0.6
"""The least similarity of two names, of at most 1, at which one may be meant by the other."""

LISTED = 8
"""The most names that a sentence lists."""


class Places(Protocol):
    """A column of which values are compared with a declaration."""

    @property
    def name(self) -> str:
        """Its name."""

    def place_text(self, index: int) -> str:
        """Where the value at this index is, such as `line 3 of visits.csv`."""

    def value_text(self, index: int) -> str:
        """The value at this index, as a message shows it."""


@dataclass
class _Mismatch:
    """Values of one column that are not what is expected: the first one in a sentence, and how many rows have one."""

    sentence: str
    advice: str
    rows: int


@dataclass
class Mismatches:
    """The mismatches of a table so far, by column and expectation."""

    _by_kind: dict[tuple[str, str], _Mismatch] = field(default_factory=dict)

    def add(self, column: Places, wrong: Mask, expected: str, advice: Callable[[str], str] = lambda value: "") -> None:
        """Records the values that are not `expected`; `advice` says of the first one what would mend it."""
        if not wrong.any():
            return
        kind, rows = (column.name, expected), int(wrong.sum())
        if kind in self._by_kind:
            self._by_kind[kind].rows += rows
            return
        first = int(wrong.argmax())
        value = column.value_text(first)
        name = escape_invisible_characters(column.name)
        self._by_kind[kind] = _Mismatch(
            sentence=f"Expected {name} in {column.place_text(first)} {expected}, got {value}",
            advice=advice(value),
            rows=rows,
        )

    def require_none(self) -> None:
        """Raises `BadInput` for all mismatches, one a line, so that one round mends a declaration."""
        lines = []
        for mismatch in self._by_kind.values():
            more = f"; {mismatch.rows} rows have such a value" if mismatch.rows > 1 else ""
            lines.append(escape_invisible_characters(f"{mismatch.sentence}{more}.{mismatch.advice}"))
        if lines:
            further = [f"{len(lines) - LISTED} further columns do not match."] if len(lines) > LISTED else []
            raise BadInputInLines("\n".join(lines[:LISTED] + further))


@contextmanager
def mismatches_refused() -> Iterator[Mismatches]:
    """Mismatches to add to; raises `BadInput` at the end if there are any."""
    found = Mismatches()
    yield found
    found.require_none()


def nearest_name_text(name: str, listed: Sequence[str], what: str) -> str:
    """Which of the listed names may be meant, or which there are, in a sentence that follows a space."""
    nearest = nearest_name(name, listed)
    if nearest is not None:
        return f" The nearest {what} is {nearest!r}."
    shown = ", ".join(map(repr, listed[:LISTED])) + (
        f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    )
    return f" Known: {shown}." if listed else ""


def nearest_name(name: str, listed: Sequence[str]) -> str | None:
    """The listed name that is most like this one, whatever the case; None if none is like it."""
    folded: dict[str, str] = {}
    for one in listed:
        folded.setdefault(one.casefold(), one)
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=CUTOFF)
    return folded[close[0]] if close else None
