"""RoBERTa's byte-pair vocabulary: bytes, merged into longer pieces in the order of pair frequency."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.numbers import positive_int
from dpsweep.trainers.data.text.vocabulary import Letters, padded
from dpsweep.trainers.pretrained_files import Published

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

PAD, BEGIN, END = "<pad>", "<s>", "</s>"
_SPACE = r"[ \t-\r]"
_WORD = re.compile(
    rf"'(?:[stmd]|re|ve|ll)| ?[a-zA-Z]+| ?[0-9]+| ?(?:(?!{_SPACE})[^a-zA-Z0-9])+|{_SPACE}+(?=\Z|{_SPACE})|{_SPACE}+"
)
"""A suffix ('s), letters, digits or other characters, with one preceding space; further spaces are a word."""


@dataclass(frozen=True, kw_only=True)
class BytePairs:
    """A `tokenizer.json` with a vocabulary and its merges; `words` is the number of entries.

    Source: Sennrich, Haddow, Birch, Neural Machine Translation of Rare Words with Subword Units, ACL 2016, over the
    bytes of a text (Radford et al. 2019, GPT-2), in the form of Liu et al. 2019 (RoBERTa).
    """

    package: str | None
    file: str
    sha256: str
    words: int
    padding: int = 1

    def __post_init__(self) -> None:
        positive_int("dataset.vocabulary.words", self.words)

    def check(self) -> None:
        """Read the file; see `Vocabulary`."""
        _ = self._tables

    def numbers(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The numbers of each text [n, length]; see `Vocabulary`."""
        cache: dict[str, list[int]] = {}  # it saves time and does not change the result
        return padded((self._row(text, length, cache) for text in texts), length, self.padding)

    def _row(self, text: str, length: int, cache: dict[str, list[int]]) -> list[int]:
        places, _ = self._tables
        row = [places[BEGIN]]
        for word in split(text):
            if word not in cache:
                cache[word] = self._pieces(word)
            row += cache[word]
        return [*row[: length - 1], places[END]]

    def _pieces(self, word: str) -> list[int]:
        """The numbers of a word's pieces after all merges; merges of lowest rank come first."""
        places, ranks = self._tables
        parts = [LETTERS[byte] for byte in word.encode("utf-8", "surrogateescape")]
        while len(parts) > 1 and (pair := min(pairwise(parts), key=lambda two: ranks.get(two, len(ranks)))) in ranks:
            parts = list(_merged(parts, pair))
        return [places[part] for part in parts]

    @cached_property
    def _tables(self) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
        """The number of every piece, and the rank of every merge."""
        try:
            content = json.loads(Published(package=self.package, file=self.file, sha256=self.sha256).content())
            places = {str(piece): int(number) for piece, number in content["model"]["vocab"].items()}
            pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in content["model"]["merges"]]
            ranks = {(str(left), str(right)): rank for rank, (left, right) in enumerate(pairs)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"dataset.vocabulary: {error}") from error
        if (largest := max(places.values(), default=-1)) != self.words - 1 or min(places.values()) < 0:
            raise BadInput(f"Expected dataset.vocabulary.words={self.words} == {largest + 1}, as {self.file} has.")
        for piece in (PAD, BEGIN, END, *LETTERS, *map("".join, ranks)):
            if piece not in places:
                raise BadInput(f"Expected {piece} among the pieces of {self.file}.")
        if places[PAD] != self.padding:
            raise BadInput(f"Expected dataset.vocabulary.padding={self.padding} == {places[PAD]}, as in {self.file}.")
        return places, ranks


def split(text: str) -> list[str]:
    """The words of a text, each with the space before it; every character is in one word.

    >>> split("it's 2 good ,  indeed")
    ['it', "'s", ' 2', ' good', ' ,', ' ', ' indeed']
    """
    return [text[match.start() : match.end()] for match in _WORD.finditer(text.translate(_KINDS))]


def _kind(letter: str) -> str:
    """The letter itself if it is ASCII, else an ASCII letter of the same class."""
    if letter.isascii():
        return letter
    return "\t" if letter.isspace() else {"L": "a", "N": "0"}.get(unicodedata.category(letter)[0], "!")


_KINDS = Letters(_kind)


def _merged(parts: list[str], pair: tuple[str, str]) -> Iterator[str]:
    """The parts after merging every occurrence of this pair, from the left."""
    place = 0
    while place < len(parts):
        both = tuple(parts[place : place + 2]) == pair
        yield "".join(pair) if both else parts[place]
        place += 2 if both else 1


def _letters() -> tuple[str, ...]:
    """The printable letter that stands for each byte in published files; unprintable bytes get letters above 255."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


LETTERS = _letters()
