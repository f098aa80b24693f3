"""Texts as numbers of words from a published vocabulary, so that none is taken from the records.

A vocabulary is named by its checksum, which is part of a trial's configuration: other numbers would be other inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from dpsweep.trainers.data.interface import DataSet


class Vocabulary(Protocol):
    """What turns a text into numbers, each from 0 to `words` - 1; `padding` stands for no word."""

    @property
    def words(self) -> int:
        """The declared number of entries."""
        ...

    @property
    def padding(self) -> int:
        """The declared number after a text's last word."""
        ...

    def check(self) -> None:
        """Read the vocabulary's file, and nothing else.

        Errors: `BadInput`, one sentence, where it is missing, another one, or not what is declared.
        """

    def numbers(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The numbers of each text [n, length]: its first words between the marks of begin and end, then padding.

        Guarantee: a row is a function of its own text and of the vocabulary alone.
        """
        ...


def vocabulary_of(dataset: DataSet) -> Vocabulary | None:
    """The vocabulary whose numbers are the data set's inputs; None where its inputs are quantities."""
    return getattr(dataset, "vocabulary", None)


def padded(rows: Iterable[list[int]], length: int, padding: int) -> NDArray[np.float32]:
    """The rows as one array [n, length], each at most so long, with `padding` behind them.

    >>> padded([[2, 7, 3], []], 4, 0).tolist()
    [[2.0, 7.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    kept = list(rows)
    numbers = np.full((len(kept), length), padding, dtype=np.float32)
    for place, row in enumerate(kept):
        numbers[place, : len(row)] = row
    return numbers


class Letters(dict[int, str]):
    """A table for `str.translate`, whose entries are made as they are asked for."""

    def __init__(self, entry: Callable[[str], str]) -> None:
        self._entry = entry

    def __missing__(self, code: int) -> str:
        return self.setdefault(code, self._entry(chr(code)))
