"""Tables of texts of the user's: one column of texts, one column as label, in any format of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsweep.trainers.data.interface import check_declaration
from dpsweep.trainers.data.own.columns import listed_texts
from dpsweep.trainers.data.own.table_files import table_file
from dpsweep.trainers.data.preprocessing import of_tokens
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.units import by_unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.own.columns import TableColumn
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """The rows of a table; all of them are private.

    `file` is relative to the user's data folder, or absolute. `text` is the column of texts, `label` the column to
    predict, `labels` the public list of its values. The vocabulary is published: nothing of it comes from the texts.
    If there is a `unit_column`, rows with equal values in it are one unit; `units` is the nominal number of units, and
    each keeps at most `contribution_cap` rows.
    Shapes: features float32 [n, length], token numbers; a longer text is cut off, `vocabulary.padding` fills a row.
    """

    name: str
    records: int
    shape: tuple[int, ...]
    classes: int
    unit: str
    file: str
    text: str
    label: str
    labels: tuple[str, ...]
    vocabulary: Vocabulary
    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None
    public: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        for name in ("file", "label", "text"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"Expected dataset.{name}={getattr(self, name)!r} to be a text.")
        object.__setattr__(self, "labels", listed_texts("dataset.labels", self.labels))
        check_declaration(self)
        if self.classes != len(self.labels):
            raise ValueError(f"Expected dataset.classes={self.classes} == {len(self.labels)}, as many as labels.")
        if len(self.shape) != 1:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [length], the most tokens of a text.")
        if len(set(self._names)) != len(self._names):
            raise ValueError(f"Expected dataset.label, text and unit_column={list(self._names)} to be distinct.")

    @property
    def test_records(self) -> int:
        """0: a table has no public part."""
        return 0

    @property
    def preprocessing(self) -> Form:
        """The token numbers of a text."""
        return of_tokens(self.vocabulary, self.shape[0], self.labels)

    def locate(self, folder: Path | None) -> None:
        """Find the file in the user's folder, and the vocabulary."""
        table_file(self.name, self.file, folder)
        self.vocabulary.check()

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum: a row that cannot be read must not cost budget."""
        columns = self._columns(folder)
        columns[self.label].positions(self.labels)
        columns[self.text].texts()
        if self.unit_column is not None:
            columns[self.unit_column].identifiers()
        return (table_file(self.name, self.file, folder).content(),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows as private records, capped per unit; there are no public records."""
        import torch

        columns = self._columns(folder)
        features = self.vocabulary.numbers(columns[self.text].texts(), self.shape[0])
        labels = columns[self.label].positions(self.labels)
        records = Records(features=torch.from_numpy(features), labels=torch.from_numpy(labels))
        if self.unit_column is None or self.contribution_cap is None:
            return records, None
        return by_unit(records, columns[self.unit_column].identifiers(), self.contribution_cap), None

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.label, self.text, *(() if self.unit_column is None else (self.unit_column,)))

    def _columns(self, folder: Path | None) -> Mapping[str, TableColumn]:
        return table_file(self.name, self.file, folder).columns(self._names)
