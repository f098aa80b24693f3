"""Enron-Spam as word counts: whether a mail is spam.

The published file counts the 3000 words that are most frequent in these same mails. No guarantee covers that choice,
which was made before any account was opened; nothing else is computed from the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.files.from_files import FromFiles
from dpsweep.trainers.data.files.number_table import ANY, NumberFile
from dpsweep.trainers.data.preprocessing import of_array
from dpsweep.trainers.data.records import Scaling
from dpsweep.trainers.data.text.hashed_words import check_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpsweep.trainers.data.files.from_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form

FILE = "emails.csv"
NAME, LABEL = "Email No.", "Prediction"


@dataclass(frozen=True, kw_only=True)
class Enron(FromFiles):
    """The mails of emails.csv, each with its word counts; all of them are private.

    Counts are clamped to `most`.
    Shapes: features uint8 [n, words], scaled to x / most in [0, 1]; label 1 is spam.
    Source: Metsis, Androutsopoulos, Paliouras, Spam Filtering with Naive Bayes, CEAS 2006, folder enron1.
    """

    most: int
    nonzero = 170

    def _check(self) -> None:
        check_most(self.most)
        if len(self.shape) != 1:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [words].")
        if self.classes != 2:
            raise ValueError(f"Expected dataset.classes={self.classes} == 2.")

    @property
    def preprocessing(self) -> Form:
        """The counts of the published file's words, in its order."""
        return of_array(self.shape, self._scaling, bounds=(0, self.most), labels=("ham", "spam"))

    @property
    def _private(self) -> tuple[str, ...]:
        return (FILE,)

    @property
    def _scaling(self) -> Scaling:
        return Scaling(scale=float(self.most))

    def _parts(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The clamped counts [n, words] and the labels [n] of all mails; there are no public records."""
        content = contents[FILE]
        columns = content.partition(b"\n")[0].decode("utf-8", "replace").rstrip().split(",")
        words = self.shape[0]
        if len(columns) != words + 2 or (columns[0], columns[-1]) != (NAME, LABEL):
            raise BadInput(
                f"Expected {NAME}, {words} words and {LABEL} in line 1 of {FILE}, got {len(columns)} columns "
                f"from {columns[0]!r:.40} to {columns[-1]!r:.40}."
            )
        table = NumberFile(file=FILE, columns=columns, limits=[(0, ANY)] * words + [(0, 1)], texts=1, first=2)
        counts = np.empty((self.records, words), dtype=np.uint8)
        labels = np.empty(self.records, dtype=np.int64)
        for rows, block in table.read(content, self.records):
            counts[rows] = np.minimum(block[:, :-1], self.most)
            labels[rows] = block[:, -1]
        yield counts, labels
