"""SST-2 as bags of hashed words: whether a phrase of a film review speaks well of it.

The training records are phrases, many of them parts of one sentence: a guarantee for a record protects one phrase,
and neither the sentence that it stands in nor whoever wrote the review. The file does not say which belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from accounting.errors import BadInput
from trainers.data.columns import Column
from trainers.data.from_files import FromFiles
from trainers.data.records import Scaling
from trainers.data.words import check_most, hashed_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainers.data.from_files import Arrays

PRIVATE_FILE, PUBLIC_FILE = "train.tsv", "dev.tsv"
HEADER = ("sentence", "label")
LABELS = ("0", "1")


@dataclass(frozen=True, kw_only=True)
class Sst2(FromFiles):
    """The phrases of train.tsv, which are private, and the sentences of dev.tsv, which are public.

    A record is one phrase, and that alone is protected: other phrases of its sentence are other records. `shape` is the
    number of buckets that words are hashed to; a count above `most` is taken for `most`.
    Shapes: features uint8 [n, buckets], scaled to x / most in [0, 1]; label 1 is praise.
    Source: Socher et al., Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank, EMNLP 2013, as
    GLUE publishes it; the hashing is that of Weinberger et al., Feature Hashing for Large Scale Multitask Learning,
    ICML 2009, without signs.
    """

    most: int

    def _check(self) -> None:
        check_most(self.most)
        if len(self.shape) != 1:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [buckets].")
        if self.classes != len(LABELS):
            raise ValueError(f"Expected dataset.classes={self.classes} == {len(LABELS)}.")

    @property
    def _private(self) -> tuple[str, ...]:
        return (PRIVATE_FILE,)

    @property
    def _scaling(self) -> Scaling:
        return Scaling(scale=float(self.most))

    def _parts(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The phrases of train.tsv, then the sentences of dev.tsv."""
        for file in (PRIVATE_FILE, PUBLIC_FILE):
            rows = labelled_texts(contents[file], file)
            labels = Column(name=HEADER[1], file=file, cells={line: label for line, (_, label) in rows.items()})
            counts = hashed_counts([text for text, _ in rows.values()], self.shape[0], self.most)
            yield counts, labels.positions(LABELS)


def labelled_texts(content: bytes, file: str) -> dict[int, tuple[str, str]]:
    """The texts and labels by their lines, without the header; a quote is a character like any other."""
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
