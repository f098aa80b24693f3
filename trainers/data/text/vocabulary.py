"""The interface of published vocabularies, which turn texts into token numbers.

A published vocabulary needs no statistics of the records. Its checksum is part of a trial's configuration, because
another vocabulary would give other inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from dpsweep.trainers.data.interface import DataSet


class Vocabulary(Protocol):
    """A map from texts to token numbers, each from 0 to `words` - 1; `padding` stands for no word."""

    @property
    def words(self) -> int:
        """The declared number of entries."""
        ...

    @property
    def padding(self) -> int:
        """The declared token number after a text's last word."""
        ...

    def check(self) -> None:
        """Read the vocabulary's file, and nothing else.

        Errors: `BadInput`, one sentence, if the file is missing, has another checksum, or contradicts the declaration.
        """

    def numbers(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The token numbers of each text [n, length]: its first words between the begin and end marks, then padding.

        Guarantee: a row is a function of its own text and of the vocabulary alone.
        """
        ...


def vocabulary_of(dataset: DataSet) -> Vocabulary | None:
    """The vocabulary of a data set with token numbers as inputs; None if its inputs are quantities."""
    return getattr(dataset, "vocabulary", None)


def padded(rows: Iterable[list[int]], length: int, padding: int) -> NDArray[np.float32]:
    """The rows, each of at most `length` numbers, as one array [n, length], filled up with `padding`.

    >>> padded([[2, 7, 3], []], 4, 0).tolist()
    [[2.0, 7.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    all_rows = list(rows)
    numbers = np.full((len(all_rows), length), padding, dtype=np.float32)
    for place, row in enumerate(all_rows):
        numbers[place, : len(row)] = row
    return numbers


class Letters(dict[int, str]):
    """A table for `str.translate` that computes its entries on demand."""

    def __init__(self, entry: Callable[[str], str]) -> None:
        self._entry = entry

    def __missing__(self, code: int) -> str:
        return self.setdefault(code, self._entry(chr(code)))
