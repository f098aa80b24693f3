"""Published vocabularies, which turn texts into token numbers: WordPiece, byte pairs, and a model folder's tokenizer.

A published vocabulary needs no statistics of the records. Its checksum is part of a trial's configuration, because
another vocabulary would give other inputs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.format_defaults import Place
from dpsweep.accounting.validation import positive_int
from dpsweep.trainers.data.published_files import (
    TOKENIZER,
    PretrainedFolder,
    Published,
    number_of_tokenizer_entries,
    require_installed_package,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray


@runtime_checkable
class Vocabulary(Protocol):
    """A map from texts to token numbers, each from 0 to `words` - 1; `padding` stands for no word."""

    @property
    def words(self) -> int:
        """The declared number of entries."""

    @property
    def padding(self) -> int:
        """The declared token number after a text's last word."""

    @property
    def file(self) -> str | None:
        """The path or name of its file, which a model card states; None where it has none."""

    @property
    def sha256(self) -> str | None:
        """The checksum of its file; None where it has none."""

    def check_vocabulary_file(self) -> None:
        """Read the vocabulary's file, and nothing else.

        Errors: `BadInput`, one sentence, if the file is missing, has another checksum, or contradicts the declaration.
        """

    def token_numbers_of_texts(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The token numbers of each text [n, length]: its first words between the begin and end marks, then padding.

        Guarantee: a row is a function of its own text and of the vocabulary alone.
        """


def pad_rows(rows: Iterable[list[int]], length: int, padding: int) -> NDArray[np.float32]:
    """The rows, each of at most `length` numbers, as one array [n, length], filled up with `padding`.

    >>> pad_rows([[2, 7, 3], []], 4, 0).tolist()
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

    package: Place | None
    file: Place
    sha256: str
    words: int
    padding: int = 0

    def __post_init__(self) -> None:
        positive_int("dataset.vocabulary.words", self.words)

    def check_vocabulary_file(self) -> None:
        """Read the file; see `Vocabulary`."""
        _ = self._number_of_each_piece

    def token_numbers_of_texts(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The numbers of each text [n, length]; see `Vocabulary`."""
        cache: dict[str, list[int]] = {}  # it saves time and does not change the result
        return pad_rows((self._numbers_of_text(text, length, cache) for text in texts), length, self.padding)

    def _numbers_of_text(self, text: str, length: int, cache: dict[str, list[int]]) -> list[int]:
        row = [self._number_of_each_piece[BEGIN]]
        for word in lowercase_words_without_accents(text):
            if word not in cache:
                cache[word] = self._piece_numbers_of_word(word)
            row += cache[word]
        return [*row[: length - 1], self._number_of_each_piece[END]]

    def _piece_numbers_of_word(self, word: str) -> list[int]:
        """The numbers of a word's pieces, or the unknown token if the word cannot be split into pieces."""
        numbers, start = [], 0
        while start < len(word) <= _LONGEST:
            mark = _WITHIN if start else ""
            ends = (end for end in range(len(word), start, -1) if mark + word[start:end] in self._number_of_each_piece)
            if (end := next(ends, None)) is None:
                break
            numbers.append(self._number_of_each_piece[mark + word[start:end]])
            start = end
        return numbers if start == len(word) else [self._number_of_each_piece[UNKNOWN]]

    @cached_property
    def _number_of_each_piece(self) -> dict[str, int]:
        try:
            content = Published(package=self.package, file=self.file, sha256=self.sha256).read_verified_bytes()
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


def lowercase_words_without_accents(text: str) -> list[str]:
    """The words of a text, lower-case and without accents; each punctuation mark and each ideograph is a word.

    >>> lowercase_words_without_accents("It's a CAF\u00c9 \u4e2d")
    ['it', "'", 's', 'a', 'cafe', '\u4e2d']
    """
    return unicodedata.normalize("NFD", text.translate(_SPACED)).translate(_APART).lower().split()


def _separate_ideograph(letter: str) -> str:
    """The letter, with spaces around an ideograph; a control character becomes an empty text."""
    if letter in "\t\n\r":
        return " "
    if letter in "\0\ufffd" or unicodedata.category(letter)[0] == "C":
        return ""
    return f" {letter} " if any(first <= ord(letter) <= last for first, last in _IDEOGRAPHS) else letter


def _separate_punctuation(letter: str) -> str:
    """The letter, with spaces around a punctuation mark; an accent becomes an empty text."""
    kind = unicodedata.category(letter)
    symbol = letter.isascii() and letter.isprintable() and not letter.isalnum() and letter != " "
    return "" if kind == "Mn" else f" {letter} " if symbol or kind[0] == "P" else letter


_SPACED, _APART = Letters(_separate_ideograph), Letters(_separate_punctuation)


BYTE_PAD, BYTE_BEGIN, BYTE_END = "<pad>", "<s>", "</s>"
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

    package: Place | None
    file: Place
    sha256: str
    words: int
    padding: int = 1

    def __post_init__(self) -> None:
        positive_int("dataset.vocabulary.words", self.words)

    def check_vocabulary_file(self) -> None:
        """Read the file; see `Vocabulary`."""
        _ = self._piece_numbers_and_merge_ranks

    def token_numbers_of_texts(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The numbers of each text [n, length]; see `Vocabulary`."""
        cache: dict[str, list[int]] = {}  # it saves time and does not change the result
        return pad_rows((self._numbers_of_text(text, length, cache) for text in texts), length, self.padding)

    def _numbers_of_text(self, text: str, length: int, cache: dict[str, list[int]]) -> list[int]:
        places, _ = self._piece_numbers_and_merge_ranks
        row = [places[BYTE_BEGIN]]
        for word in words_with_leading_spaces(text):
            if word not in cache:
                cache[word] = self._piece_numbers_of_word(word)
            row += cache[word]
        return [*row[: length - 1], places[BYTE_END]]

    def _piece_numbers_of_word(self, word: str) -> list[int]:
        """The numbers of a word's pieces after all merges; merges of lowest rank come first."""
        places, ranks = self._piece_numbers_and_merge_ranks
        parts = [LETTERS[byte] for byte in word.encode("utf-8", "surrogateescape")]
        while len(parts) > 1 and (pair := min(pairwise(parts), key=lambda two: ranks.get(two, len(ranks)))) in ranks:
            parts = list(_merge_pair(parts, pair))
        return [places[part] for part in parts]

    @cached_property
    def _piece_numbers_and_merge_ranks(self) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
        """The number of every piece, and the rank of every merge."""
        try:
            content = json.loads(
                Published(package=self.package, file=self.file, sha256=self.sha256).read_verified_bytes()
            )
            places = {str(piece): int(number) for piece, number in content["model"]["vocab"].items()}
            pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in content["model"]["merges"]]
            ranks = {(str(left), str(right)): rank for rank, (left, right) in enumerate(pairs)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"dataset.vocabulary: {error}") from error
        if (largest := max(places.values(), default=-1)) != self.words - 1 or min(places.values()) < 0:
            raise BadInput(f"Expected dataset.vocabulary.words={self.words} == {largest + 1}, as {self.file} has.")
        for piece in (BYTE_PAD, BYTE_BEGIN, BYTE_END, *LETTERS, *map("".join, ranks)):
            if piece not in places:
                raise BadInput(f"Expected {piece} among the pieces of {self.file}.")
        if places[BYTE_PAD] != self.padding:
            raise BadInput(
                f"Expected dataset.vocabulary.padding={self.padding} == {places[BYTE_PAD]}, as in {self.file}."
            )
        return places, ranks


def words_with_leading_spaces(text: str) -> list[str]:
    """The words of a text, each with the space before it; every character is in one word.

    >>> words_with_leading_spaces("it's 2 good ,  indeed")
    ['it', "'s", ' 2', ' good', ' ,', ' ', ' indeed']
    """
    return [text[match.start() : match.end()] for match in _WORD.finditer(text.translate(_KINDS))]


def _ascii_letter_of_same_class(letter: str) -> str:
    """The letter itself if it is ASCII, else an ASCII letter of the same class."""
    if letter.isascii():
        return letter
    return "\t" if letter.isspace() else {"L": "a", "N": "0"}.get(unicodedata.category(letter)[0], "!")


_KINDS = Letters(_ascii_letter_of_same_class)


def _merge_pair(parts: list[str], pair: tuple[str, str]) -> Iterator[str]:
    """The parts after merging every occurrence of this pair, from the left."""
    place = 0
    while place < len(parts):
        both = tuple(parts[place : place + 2]) == pair
        yield "".join(pair) if both else parts[place]
        place += 2 if both else 1


def _printable_letter_of_each_byte() -> tuple[str, ...]:
    """The printable letter that stands for each byte in published files; unprintable bytes get letters above 255."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


LETTERS = _printable_letter_of_each_byte()


@dataclass(frozen=True, kw_only=True)
class FolderTokenizer:
    """The tokenizer in the folder `path`; `words` is the number of entries, `padding` follows a text's last word.

    Planning fills in what is null: `sha256` of tokenizer.json, `words` and `padding`.
    """

    path: Place
    sha256: str
    words: int
    padding: int

    def __post_init__(self) -> None:
        positive_int("dataset.vocabulary.words", self.words)

    @property
    def file(self) -> str:
        """The name of the file, which a model card states."""
        return TOKENIZER

    def check_vocabulary_file(self) -> None:
        """Read the file; see `Vocabulary`."""
        require_installed_package("tokenizers")
        content = self._read_verified_tokenizer_file()
        if (words := number_of_tokenizer_entries(content, self.path)) != self.words:
            raise BadInput(f"Expected dataset.vocabulary.words={self.words} == {words}, as in {self.path}.")
        if not 0 <= self.padding < self.words:
            raise BadInput(f"Expected 0 <= dataset.vocabulary.padding={self.padding} < {self.words}.")
        _tokenizer_without_padding(content)

    def token_numbers_of_texts(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The numbers of each text [n, length]; see `Vocabulary`."""
        tokenizer = _tokenizer_without_padding(self._read_verified_tokenizer_file())
        tokenizer.enable_truncation(length)
        valid = [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in texts]
        rows = (encoding.ids for encoding in tokenizer.encode_batch_fast(valid))
        return pad_rows(rows, length, self.padding)

    def _read_verified_tokenizer_file(self) -> bytes:
        content = PretrainedFolder(path=self.path).tokenizer_file_bytes()
        if (digest := hashlib.sha256(content).hexdigest()) != self.sha256:
            raise BadInput(f"Expected {TOKENIZER} in {self.path} to have sha256={self.sha256}, got {digest}.")
        return content


@lru_cache(maxsize=2)
def _tokenizer_without_padding(content: bytes) -> Any:
    """The tokenizer in a file, without padding."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as cause:  # the library raises Exception itself
        raise BadInput(f"Expected {TOKENIZER} to be a tokenizer: {' '.join(str(cause).split())}.") from cause
    tokenizer.no_padding()
    return tokenizer
