"""Tables of texts of the user's: a CSV file with a header, one column of texts, one column as label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsweep.trainers.data.interface import check_declaration
from dpsweep.trainers.data.own.csv_file import CsvFile, check_labels, check_names
from dpsweep.trainers.data.preprocessing import of_tokens
from dpsweep.trainers.data.records import Records

if TYPE_CHECKING:
    from pathlib import Path

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """The rows of a CSV file; all of them are private, and each is a record.

    `file` is relative to the user's data folder, or absolute. `text` is the column of texts, `label` the column to
    predict, `labels` the public list of its values. The vocabulary is published: nothing of it comes from the texts.
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
    public: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        check_names(self.file, (self.label, self.text), self.labels)
        object.__setattr__(self, "labels", tuple(map(str, self.labels)))
        check_declaration(self)
        check_labels(self.labels, self.classes)
        if len(self.shape) != 1:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [length], the most tokens of a text.")
        if self.text == self.label:
            raise ValueError(f"Expected dataset.text={self.text} to be another column than dataset.label.")

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
        self._csv.locate(folder)
        self.vocabulary.check()

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row's label, since there is no checksum: a row that cannot be read must not cost budget."""
        self._csv.columns(folder, (self.label, self.text))[self.label].positions(self.labels)
        return (self._csv.content(folder),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows as private records; there are no public records."""
        import torch

        columns = self._csv.columns(folder, (self.label, self.text))
        features = self.vocabulary.numbers(columns[self.text].cells.values(), self.shape[0])
        labels = columns[self.label].positions(self.labels)
        return Records(features=torch.from_numpy(features), labels=torch.from_numpy(labels)), None

    @property
    def _csv(self) -> CsvFile:
        return CsvFile(name=self.name, file=self.file)
