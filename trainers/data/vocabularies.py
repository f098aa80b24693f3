"""Published vocabularies, which turn texts into token numbers: WordPiece, byte pairs, and a model folder's tokenizer.

Hugging Face's tokenizers splits the texts of all of them. The only module that imports it.

A published vocabulary needs no statistics of the records. Its checksum is part of a trial's configuration, because
another vocabulary would give other inputs.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dpsweep.accounting.codec import positive_int
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.format_defaults import Place
from dpsweep.trainers.data.published_files import (
    TOKENIZER,
    PretrainedFolder,
    Published,
    number_of_tokenizer_entries,
    require_installed_package,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray
    from tokenizers import Tokenizer


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


class _LibraryTokenizer(ABC):
    """A vocabulary by which Hugging Face's library tokenizers splits texts; derived classes read its file."""

    words: int
    padding: int

    def __post_init__(self) -> None:
        positive_int("dataset.vocabulary.words", self.words)

    def check_vocabulary_file(self) -> None:
        """Read the file; see `Vocabulary`."""
        _ = self._tokenizer

    def token_numbers_of_texts(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The numbers of each text [n, length]; see `Vocabulary`. Bytes that are no UTF-8 are unknown letters."""
        self._tokenizer.enable_truncation(length)
        valid = [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in texts]
        return pad_rows((one.ids for one in self._tokenizer.encode_batch_fast(valid)), length, self.padding)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return self._build_tokenizer()

    @abstractmethod
    def _build_tokenizer(self) -> Tokenizer:
        """The tokenizer, without padding, from the verified file; see `Vocabulary.check_vocabulary_file`."""


def _tokenizers_library() -> Any:
    require_installed_package("tokenizers", "a vocabulary")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    import tokenizers

    return tokenizers


PAD, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
_LONGEST = 100
"""The largest number of letters in a word; a longer word becomes the unknown token."""


@dataclass(frozen=True, kw_only=True)
class WordPiece(_LibraryTokenizer):
    """A file with one piece per line, numbered from 0; `words` is the number of pieces.

    Source: Wu et al., Google's Neural Machine Translation System, 2016, in the form of Devlin, Chang, Lee, Toutanova
    2019 (BERT, uncased): accents are removed, and every punctuation mark is a word.
    """

    package: Place | None
    file: Place
    sha256: str
    words: int
    padding: int = 0

    def _build_tokenizer(self) -> Tokenizer:
        try:
            content = Published(package=self.package, file=self.file, sha256=self.sha256).read_verified_bytes()
            lines = content.decode("utf-8").removesuffix("\n").split("\n")
        except (OSError, ValueError) as error:
            raise BadInput(f"dataset.vocabulary: {error}") from error
        places = {line.rstrip("\r"): number for number, line in enumerate(lines)}
        if len(lines) != self.words:
            raise BadInput(f"Expected dataset.vocabulary.words={self.words} == {len(lines)}, the lines of {self.file}.")
        _check_marks(places, (PAD, UNKNOWN, BEGIN, END), self.padding, self.file)
        library = _tokenizers_library()
        model = library.models.WordPiece(places, unk_token=UNKNOWN, max_input_chars_per_word=_LONGEST)
        tokenizer = _tokenizer_between_marks(model, places, BEGIN, END)
        tokenizer.normalizer = library.normalizers.BertNormalizer(strip_accents=True, lowercase=True)
        tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        return tokenizer


BYTE_PAD, BYTE_BEGIN, BYTE_END = "<pad>", "<s>", "</s>"


@dataclass(frozen=True, kw_only=True)
class BytePairs(_LibraryTokenizer):
    """A `tokenizer.json` with a vocabulary and its merges; `words` is the number of entries.

    Source: Sennrich, Haddow, Birch, Neural Machine Translation of Rare Words with Subword Units, ACL 2016, over the
    bytes of a text (Radford et al. 2019, GPT-2), in the form of Liu et al. 2019 (RoBERTa).
    """

    package: Place | None
    file: Place
    sha256: str
    words: int
    padding: int = 1

    def _build_tokenizer(self) -> Tokenizer:
        try:
            content = json.loads(
                Published(package=self.package, file=self.file, sha256=self.sha256).read_verified_bytes()
            )
            places = {str(piece): int(number) for piece, number in content["model"]["vocab"].items()}
            pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in content["model"]["merges"]]
            merges = [(str(left), str(right)) for left, right in pairs]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"dataset.vocabulary: {error}") from error
        if (largest := max(places.values(), default=-1)) != self.words - 1 or min(places.values()) < 0:
            raise BadInput(f"Expected dataset.vocabulary.words={self.words} == {largest + 1}, as {self.file} has.")
        library = _tokenizers_library()
        letters = sorted(library.pre_tokenizers.ByteLevel.alphabet())
        pieces = (BYTE_PAD, BYTE_BEGIN, BYTE_END, *letters, *map("".join, merges))
        _check_marks(places, pieces, self.padding, self.file)
        tokenizer = _tokenizer_between_marks(library.models.BPE(places, merges), places, BYTE_BEGIN, BYTE_END)
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        return tokenizer


def _check_marks(places: Mapping[str, int], pieces: Iterable[str], padding: int, file: str) -> None:
    """Refuse a file without one of these pieces, of which the first one is that of padding."""
    pad, *others = pieces
    for piece in (pad, *others):
        if piece not in places:
            raise BadInput(f"Expected {piece} among the pieces of {file}.")
    if places[pad] != padding:
        raise BadInput(f"Expected dataset.vocabulary.padding={padding} == {places[pad]}, as in {file}.")


def _tokenizer_between_marks(model: Any, places: Mapping[str, int], begin: str, end: str) -> Tokenizer:
    """The tokenizer of a model that puts these marks around a text; a text's own marks are words like others."""
    library = _tokenizers_library()
    tokenizer: Tokenizer = library.Tokenizer(model)
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(mark, places[mark]) for mark in (begin, end)]
    )
    return tokenizer


@dataclass(frozen=True, kw_only=True)
class FolderTokenizer(_LibraryTokenizer):
    """The tokenizer in the folder `path`; `words` is the number of entries, `padding` follows a text's last word.

    Planning fills in what is null: `sha256` of tokenizer.json, `words` and `padding`.
    """

    path: Place
    sha256: str
    words: int
    padding: int

    @property
    def file(self) -> str:
        """The name of the file, which a model card states."""
        return TOKENIZER

    def _build_tokenizer(self) -> Tokenizer:
        content = PretrainedFolder(path=self.path).tokenizer_file_bytes()
        if (digest := hashlib.sha256(content).hexdigest()) != self.sha256:
            raise BadInput(f"Expected {TOKENIZER} in {self.path} to have sha256={self.sha256}, got {digest}.")
        if (words := number_of_tokenizer_entries(content, self.path)) != self.words:
            raise BadInput(f"Expected dataset.vocabulary.words={self.words} == {words}, as in {self.path}.")
        if not 0 <= self.padding < self.words:
            raise BadInput(f"Expected 0 <= dataset.vocabulary.padding={self.padding} < {self.words}.")
        library = _tokenizers_library()
        try:
            tokenizer: Tokenizer = library.Tokenizer.from_buffer(content)
        except Exception as cause:  # the library raises Exception itself
            raise BadInput(f"Expected {TOKENIZER} to be a tokenizer: {' '.join(str(cause).split())}.") from cause
        tokenizer.no_padding()
        return tokenizer
