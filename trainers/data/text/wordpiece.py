"""BERT's lower-case WordPiece vocabularies: each word is split into its longest pieces, from the left."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.numbers import positive_int
from dpsweep.trainers.data.text.vocabulary import Letters, padded
from dpsweep.trainers.pretrained_files import Published

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

PAD, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_WITHIN = "##"
_LONGEST = 100
"""The largest number of letters in a word; a longer word becomes the unknown token."""
_IDEOGRAPHS = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """A file with one piece per line, numbered from 0; `words` is the number of pieces.

    Source: Wu et al., Google's Neural Machine Translation System, 2016, in the form of Devlin, Chang, Lee, Toutanova
    2019 (BERT, uncased): accents are removed, and every punctuation mark is a word.
    """

    package: str | None
    file: str
    sha256: str
    words: int
    padding: int = 0

    def __post_init__(self) -> None:
        positive_int("dataset.vocabulary.words", self.words)

    def check(self) -> None:
        """Read the file; see `Vocabulary`."""
        _ = self._places

    def numbers(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The numbers of each text [n, length]; see `Vocabulary`."""
        cache: dict[str, list[int]] = {}  # it saves time and does not change the result
        return padded((self._row(text, length, cache) for text in texts), length, self.padding)

    def _row(self, text: str, length: int, cache: dict[str, list[int]]) -> list[int]:
        row = [self._places[BEGIN]]
        for word in split(text):
            if word not in cache:
                cache[word] = self._pieces(word)
            row += cache[word]
        return [*row[: length - 1], self._places[END]]

    def _pieces(self, word: str) -> list[int]:
        """The numbers of a word's pieces, or the unknown token if the word cannot be split into pieces."""
        numbers, start = [], 0
        while start < len(word) <= _LONGEST:
            mark = _WITHIN if start else ""
            ends = (end for end in range(len(word), start, -1) if mark + word[start:end] in self._places)
            if (end := next(ends, None)) is None:
                break
            numbers.append(self._places[mark + word[start:end]])
            start = end
        return numbers if start == len(word) else [self._places[UNKNOWN]]

    @cached_property
    def _places(self) -> dict[str, int]:
        try:
            content = Published(package=self.package, file=self.file, sha256=self.sha256).content()
            lines = content.decode("utf-8").removesuffix("\n").split("\n")
        except (OSError, ValueError) as error:
            raise BadInput(f"dataset.vocabulary: {error}") from error
        places = {line.rstrip("\r"): number for number, line in enumerate(lines)}
        if len(lines) != self.words:
            raise BadInput(f"Expected dataset.vocabulary.words={self.words} == {len(lines)}, the lines of {self.file}.")
        for mark in (PAD, UNKNOWN, BEGIN, END):
            if mark not in places:
                raise BadInput(f"Expected {mark} among the pieces of {self.file}.")
        if places[PAD] != self.padding:
            raise BadInput(f"Expected dataset.vocabulary.padding={self.padding} == {places[PAD]}, as in {self.file}.")
        return places


def split(text: str) -> list[str]:
    """The words of a text, lower-case and without accents; each punctuation mark and each ideograph is a word.

    >>> split("It's a CAF\u00c9 \u4e2d")
    ['it', "'", 's', 'a', 'cafe', '\u4e2d']
    """
    return unicodedata.normalize("NFD", text.translate(_SPACED)).translate(_APART).lower().split()


def _spaced(letter: str) -> str:
    """The letter, with spaces around an ideograph; a control character becomes an empty text."""
    if letter in "\t\n\r":
        return " "
    if letter in "\0\ufffd" or unicodedata.category(letter)[0] == "C":
        return ""
    return f" {letter} " if any(first <= ord(letter) <= last for first, last in _IDEOGRAPHS) else letter


def _apart(letter: str) -> str:
    """The letter, with spaces around a punctuation mark; an accent becomes an empty text."""
    kind = unicodedata.category(letter)
    symbol = letter.isascii() and letter.isprintable() and not letter.isalnum() and letter != " "
    return "" if kind == "Mn" else f" {letter} " if symbol or kind[0] == "P" else letter


_SPACED, _APART = Letters(_spaced), Letters(_apart)
