"""SST-2: the sentiment of phrases from film reviews, as a bag of hashed words or as token numbers.

The training records are phrases, and many phrases are parts of the same sentence. A guarantee for a record protects one
phrase; it protects neither its sentence nor the author of the review. The file does not say which phrases belong
together.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.files.from_files import FromFiles
from dpsweep.trainers.data.own.columns import Column
from dpsweep.trainers.data.preprocessing import of_tokens, of_words
from dpsweep.trainers.data.records import Scaling
from dpsweep.trainers.data.text.hashed_words import check_most, hashed_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from dpsweep.trainers.data.files.from_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.text.vocabulary import Vocabulary

PRIVATE_FILE, PUBLIC_FILE = "train.tsv", "dev.tsv"
HEADER = ("sentence", "label")
LABELS = ("0", "1")
SHORTEST = 3


@dataclass(frozen=True, kw_only=True)
class Phrases(FromFiles):
    """The phrases of train.tsv, which are private, and the sentences of dev.tsv, which are public.

    A record is one phrase, and the guarantee protects it alone: other phrases of its sentence are other records.
    Derived classes turn texts into features; label 1 is positive.
    Source: Socher et al., Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank, EMNLP 2013, as
    GLUE publishes it.
    """

    @property
    def caution(self) -> str:
        """What a guarantee for a record leaves out, for every page."""
        return "A record is a phrase, and many phrases are parts of one sentence: no whole sentence is protected."

    def _check(self) -> None:
        if len(self.shape) != 1:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [{self._width}].")
        if self.classes != len(LABELS):
            raise ValueError(f"Expected dataset.classes={self.classes} == {len(LABELS)}.")
        self._check_texts()

    @property
    def _private(self) -> tuple[str, ...]:
        return (PRIVATE_FILE,)

    def _parts(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The phrases of train.tsv, then the sentences of dev.tsv."""
        for file in (PRIVATE_FILE, PUBLIC_FILE):
            rows = labelled_texts(contents[file], file)
            labels = Column(name=HEADER[1], file=file, cells={line: label for line, (_, label) in rows.items()})
            yield self._features([text for text, _ in rows.values()]), labels.positions(LABELS)

    @property
    @abstractmethod
    def _width(self) -> str:
        """The quantity that the only size of `shape` counts."""

    @abstractmethod
    def _check_texts(self) -> None:
        """Refuse a declaration with invalid settings for texts."""

    @abstractmethod
    def _features(self, texts: Sequence[str]) -> NDArray[np.generic]:
        """The features [n, width] of texts; each row is a function of its own text and of public constants alone."""


@dataclass(frozen=True, kw_only=True)
class Sst2(Phrases):
    """Phrases as counts of hashed words, clamped to `most`.

    Shapes: features uint8 [n, buckets], scaled to x / most in [0, 1].
    Source: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009, without signs.
    """

    most: int
    nonzero = 9
    _width = "buckets"

    def _check_texts(self) -> None:
        check_most(self.most)

    @property
    def _scaling(self) -> Scaling:
        return Scaling(scale=float(self.most))

    @property
    def preprocessing(self) -> Form:
        """The word counts of a phrase."""
        return of_words(self.shape[0], self.most, LABELS, "utf-8")

    def _features(self, texts: Sequence[str]) -> NDArray[np.uint8]:
        return hashed_counts(texts, self.shape[0], self.most)


@dataclass(frozen=True, kw_only=True)
class Sst2Tokens(Phrases):
    """Phrases as token numbers in a published vocabulary, for a model with the same vocabulary.

    Shapes: features float32 [n, length], whole numbers below `vocabulary.words`; `vocabulary.padding` fills the row.
    """

    vocabulary: Vocabulary
    _width = "length"

    def _check_texts(self) -> None:
        if self.shape[0] < SHORTEST:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} >= [{SHORTEST}]: the marks and one word.")

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder, and the vocabulary."""
        self.files.locate(self.name, folder)
        self.vocabulary.check()

    @property
    def preprocessing(self) -> Form:
        """The token numbers of a phrase."""
        return of_tokens(self.vocabulary, self.shape[0], LABELS)

    def _features(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.vocabulary.numbers(texts, self.shape[0])


def labelled_texts(content: bytes, file: str) -> dict[int, tuple[str, str]]:
    """The texts and labels by line number, without the header; quotes have no special meaning."""
    header, *lines = content.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
    if tuple(header.rstrip("\r").split("\t")) != HEADER:
        raise BadInput(f"Expected {' and '.join(HEADER)} in line 1 of {file}, got {header!r:.60}.")
    rows = {}
    for number, line in enumerate(lines, start=2):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(HEADER):
            raise BadInput(f"Expected {len(HEADER)} values in line {number} of {file}, got {len(cells)}.")
        rows[number] = (cells[0], cells[1])
    return rows
