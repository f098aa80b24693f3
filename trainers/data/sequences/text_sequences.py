"""Texts of the user's as token sequences for a language model: one column of texts, in any format of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.interface import check_declaration
from dpsweep.trainers.data.own.table_files import table_file
from dpsweep.trainers.data.preprocessing import of_sequences
from dpsweep.trainers.data.records import IGNORED, Records
from dpsweep.trainers.data.units import by_unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.own.columns import TableColumn
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class TextSequences:
    """The rows of a table, one text and one record each; all of them are private.

    `file` is relative to the user's data folder, or absolute. `text` is the column of texts, `classes` the number of
    words of the language model. The vocabulary is published: nothing of it comes from the texts. A text of more than
    `shape` tokens is refused before the charge; with `cut` it is cut off. If there is a `unit_column`, rows with equal
    values in it are one unit; `units` is the nominal number of units, and each keeps at most `contribution_cap` rows.
    Shapes: features float32 [n, length], token numbers, filled up with `vocabulary.padding`; labels [n, length], the
    token that follows each, `IGNORED` at a text's last token and at padding.
    """

    per_position: ClassVar[bool] = True

    name: str
    records: int
    shape: tuple[int, ...]
    classes: int
    unit: str
    file: str
    text: str
    vocabulary: Vocabulary
    cut: bool = False
    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None
    public: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        for name in ("file", "text"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"Expected dataset.{name}={getattr(self, name)!r} to be a text.")
        if not isinstance(self.cut, bool):
            raise ValueError(f"Expected dataset.cut={self.cut!r} to be true or false.")
        check_declaration(self)
        if len(self.shape) != 1 or self.shape[0] < 2:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [length], the most tokens of a text, >= 2.")
        if self.classes < self.vocabulary.words:
            raise ValueError(f"Expected dataset.classes={self.classes} >= {self.vocabulary.words}, the tokenizer's.")
        if self.unit_column == self.text:
            raise ValueError(f"Expected dataset.unit_column={self.unit_column} to be another column than dataset.text.")

    @property
    def test_records(self) -> int:
        """0: a table has no public part."""
        return 0

    @property
    def preprocessing(self) -> Form:
        """The token numbers of a text."""
        return of_sequences(self.vocabulary, self.shape[0])

    def locate(self, folder: Path | None) -> None:
        """Find the file in the user's folder, and the vocabulary."""
        table_file(self.name, self.file, folder)
        self.vocabulary.check()

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum: a row that cannot be read must not cost budget."""
        columns = self._columns(folder)
        self._check_lengths(columns[self.text].texts())
        if self.unit_column is not None:
            columns[self.unit_column].identifiers()
        return (table_file(self.name, self.file, folder).content(),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows as private records, capped per unit; there are no public records."""
        import torch

        columns = self._columns(folder)
        tokens = self.vocabulary.numbers(columns[self.text].texts(), self.shape[0])
        labels = next_tokens(tokens, self.vocabulary.padding)
        records = Records(features=torch.from_numpy(tokens), labels=torch.from_numpy(labels))
        if self.unit_column is None or self.contribution_cap is None:
            return records, None
        return by_unit(records, columns[self.unit_column].identifiers(), self.contribution_cap), None

    def _check_lengths(self, texts: list[str]) -> None:
        """Refuse a text of more tokens than `shape`, unless texts are cut off."""
        if self.cut or not texts:
            return
        (length,) = self.shape
        longer = self.vocabulary.numbers(texts, length + 1)[:, length] != self.vocabulary.padding
        if longer.any():
            raise BadInput(
                f"Expected {self.text} in row {longer.argmax() + 1} of {self.file} to have at most {length} tokens, as "
                "dataset.shape; say dataset.cut=true to cut longer texts off."
            )

    def _columns(self, folder: Path | None) -> Mapping[str, TableColumn]:
        names = (self.text, *(() if self.unit_column is None else (self.unit_column,)))
        return table_file(self.name, self.file, folder).columns(names)


def next_tokens(tokens: NDArray[np.float32], padding: int) -> NDArray[np.int64]:
    """The token after each [n, length]; `IGNORED` where only padding follows.

    >>> next_tokens(np.array([[5, 6, 7, 0], [5, 0, 6, 0]], dtype=np.float32), 0).tolist()
    [[6, 7, -1, -1], [0, 6, -1, -1]]
    """
    follows = np.full(tokens.shape, IGNORED, dtype=np.int64)
    follows[:, :-1] = tokens[:, 1:]
    is_last_part = np.logical_and.accumulate((tokens == padding)[:, ::-1], axis=1)[:, ::-1]
    follows[:, :-1][is_last_part[:, 1:]] = IGNORED
    return follows
