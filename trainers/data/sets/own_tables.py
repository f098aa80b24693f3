"""Tables of the user: numbers and categories, texts with labels, and texts as token sequences; in any format of tables.

The preprocessing depends on the declaration alone: the user types in public bounds, categories and labels; none come
from the file. If one unit, for example a patient, has several rows, `unit_column` identifies the unit of each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.columns import (
    ISO,
    checked_public_bounds,
    checked_public_texts,
    composed_text,
    positions_in_list,
)
from dpsweep.trainers.data.feature_columns import (
    OWN,
    ZEROS,
    FeatureColumn,
    feature_columns_of_declaration,
    inputs_of_columns,
)
from dpsweep.trainers.data.interface import (
    DataSet,
    check_classes_are_labels,
    check_dataset_declaration,
    check_public_file_declaration,
    require_distinct_columns,
    require_settings_are_texts,
)
from dpsweep.trainers.data.mismatches import LISTED, mismatches_refused
from dpsweep.trainers.data.preprocessing import (
    preprocessing_form_for_language_model,
    preprocessing_form_of_feature_columns,
    preprocessing_form_of_labelled_tokens,
)
from dpsweep.trainers.data.records import Records, next_token_targets
from dpsweep.trainers.data.table_files import TableFile, table_reader_for_file
from dpsweep.trainers.data.targets import (
    check_labels_or_target_declared,
    check_target_declaration,
    checked_label_names,
    form_with_target,
    labels_of_columns,
    names_of_label_columns,
)
from dpsweep.trainers.data.text_tables import Dialect

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.columns import TableColumn
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.vocabularies import Vocabulary


@dataclass(frozen=True, kw_only=True)
class _UserTable(DataSet):
    """The declaration of a data set in one table of the user's."""

    is_local = True

    name: str
    records: int
    shape: tuple[int, ...]
    classes: int
    unit: str
    file: str
    unit_column: str | None = None
    units: int | None = None
    contribution_cap: int | None = None
    public: bool = False
    delimiter: str | None = None
    encoding: str | None = None

    @property
    def dialect(self) -> Dialect:
        """How the tables of texts are written, as far as it is declared."""
        return Dialect(delimiter=self.delimiter, encoding=self.encoding)

    def _table(self, folder: Path | None, file: str) -> TableFile:
        """The table in this file."""
        return table_reader_for_file(self.name, file, folder, self.dialect)


@dataclass(frozen=True, kw_only=True)
class _UserTexts(_UserTable):
    """A table with a column of texts, which a published vocabulary turns into token numbers."""

    test_records = 0

    text: str
    vocabulary: Vocabulary = field()  # required, whatever the base class has

    def locate(self, folder: Path | None) -> None:
        """Find the file in the user's folder, and the vocabulary."""
        self._table(folder, self.file)
        self.vocabulary.check_vocabulary_file()

    def _read_text_unit_and_named_columns(self, folder: Path | None, *names: str) -> Mapping[str, TableColumn]:
        """The columns of texts, of units if there are any, and these."""
        units = () if self.unit_column is None else (self.unit_column,)
        return self._table(folder, self.file).read_columns((*names, self.text, *units))

    def _unit_identifiers_or_none(self, columns: Mapping[str, TableColumn]) -> list[bytes] | None:
        return None if self.unit_column is None else columns[self.unit_column].unit_identifiers()


@dataclass(frozen=True, kw_only=True)
class Table(_UserTable):
    """The rows of a CSV, Parquet or Arrow file, or of a folder of Hugging Face's `save_to_disk`; all are private.

    `file` is relative to the user's data folder, or absolute. `label` is the column to predict, `labels` the public
    list of its values; `bounds` gives the public range of each feature that is a number, `dates` the first and the last
    day of each that is a day, written as `date_format`, and `categories` the public list of values of each other one.
    What is found and not declared is refused, unless `other` says what an undeclared category becomes: `zeros`, or a
    `category` of its own. `missing` says what an empty cell counts as: a constant for a number, with a further input
    that says where; a day; or a category. `na_values` are texts that stand for an empty cell.
    If there is a `unit_column`, rows with equal values in it are one unit; `units` is the nominal number of units, and
    each keeps at most `contribution_cap` rows. The rows of `test_file`, if there is one, are public.
    A label that is a number has its public range as `target`, in place of `labels`. A list as `label` names the columns
    of several labels per record, which have the same two values `labels`.
    Shapes: features float32 [n, width] in [0, 1], in the alphabetical order of their columns; a category is one-hot.
    """

    label: str | tuple[str, ...]
    labels: tuple[str, ...] | None = None
    target: tuple[float, float] | None = None
    target_unit: str = ""
    bounds: Mapping[str, tuple[float, float]]
    categories: Mapping[str, tuple[str, ...]] | None = None
    dates: Mapping[str, tuple[str, str]] | None = None
    date_format: str = ISO
    other: str | None = None
    missing: Mapping[str, float | str] | None = None
    na_values: tuple[str, ...] = ()
    decimal: str | None = None
    test_file: str | None = None
    test_records: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "na_values", self.dialect.na_values)
        if self.label_names:
            object.__setattr__(self, "label", self.label_names)
        require_settings_are_texts(self, "file", "date_format", *(() if self.label_names else ("label",)))
        _check_column_names(self)
        check_public_file_declaration(self, "file", "test_file", "rows")
        check_labels_or_target_declared(self, self.labels)
        if self.labels is not None:
            object.__setattr__(self, "labels", checked_public_texts("dataset.labels", self.labels))
        checked_label_names(self, self.labels)
        object.__setattr__(self, "target", check_target_declaration(self))
        object.__setattr__(self, "bounds", dict(sorted(checked_public_bounds(self.bounds).items())))
        object.__setattr__(self, "categories", _checked_category_texts_by_column(self.categories or {}))
        if self.other not in (None, ZEROS, OWN):
            raise ValueError(f"Expected dataset.other={self.other!r} to be null, {ZEROS} or {OWN}.")
        check_dataset_declaration(self)
        require_distinct_columns(
            "label, unit_column, bounds, dates and categories", list(map(composed_text, self._used_column_names))
        )
        if self.shape != (width := len(self.input_names),):
            raise ValueError(
                f"Expected dataset.shape={list(self.shape)} == [{width}], as many as the inputs of bounds, dates and "
                f"categories: {', '.join(self.input_names[:LISTED])}{', ...' if width > LISTED else ''}."
            )
        if self.labels is not None and not self.label_names:
            check_classes_are_labels(self, self.labels)

    @property
    def label_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of several labels; empty if there is one."""
        return names_of_label_columns(self.label)

    @property
    def _label_columns(self) -> tuple[str, ...]:
        return tuple(map(composed_text, self.label_names or (str(self.label),)))

    @property
    def dialect(self) -> Dialect:
        """How the tables of texts are written, as far as it is declared."""
        return Dialect(delimiter=self.delimiter, encoding=self.encoding, decimal=self.decimal, na_values=self.na_values)

    @cached_property
    def feature_columns(self) -> tuple[FeatureColumn, ...]:
        """The columns of inputs in the alphabetical order of their names; raises ValueError for a wrong declaration."""
        return feature_columns_of_declaration(
            self.bounds, self.dates or {}, self.categories or {}, self.missing or {}, self.date_format, self.other
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """What each input says."""
        return tuple(name for column in self.feature_columns for name in column.input_names)

    @property
    def declared_values(self) -> Mapping[int, str]:
        """The inputs of categories, but for those of values that are not declared."""
        listed = {f"{name}: {value}" for name, values in (self.categories or {}).items() for value in values}
        return {place: name for place, name in enumerate(self.input_names) if name in listed}

    @property
    def preprocessing(self) -> Form:
        """The columns in alphabetical order."""
        forms = [column.form for column in self.feature_columns]
        return form_with_target(preprocessing_form_of_feature_columns(forms, self.labels), self)

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder."""
        for file in self._private_and_test_files:
            self._table(folder, file)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum: a row that cannot be read must not cost budget."""
        for file in self._private_and_test_files:
            self._read_records(file, folder)
        return (self._table(folder, self.file).content_hash_of_table(),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows of `file` as private records, capped per unit, and those of `test_file` as public ones."""
        private = self._read_records(self.file, folder)
        return private, None if self.test_file is None else self._read_records(self.test_file, folder)

    def _read_records(self, file: str, folder: Path | None) -> Records:
        """The records of a file, with their units if they are private and there is a `unit_column`."""
        import torch

        unit_column = self.unit_column if file == self.file else None
        names = [composed_text(name) for name in self._used_column_names if name != self.unit_column or unit_column]
        inputs, labels, units = [], [], list[bytes]()
        with mismatches_refused() as found:
            for columns in self._table(folder, file).batches(names):
                inputs.append(inputs_of_columns(self.feature_columns, columns, found))
                predicted = [columns[name] for name in self._label_columns]
                labels.append(labels_of_columns(predicted, self, self.labels or (), found))
                if unit_column is not None:
                    units += columns[composed_text(unit_column)].unit_identifiers()
        records = Records(
            features=torch.from_numpy(np.concatenate(inputs)), labels=torch.from_numpy(np.concatenate(labels))
        )
        return self.in_units(records, None if unit_column is None else units)

    @property
    def _used_column_names(self) -> tuple[str, ...]:
        """The columns that are used."""
        unit_columns = () if self.unit_column is None else (self.unit_column,)
        return (*self._label_columns, *unit_columns, *(column.name for column in self.feature_columns))

    @property
    def _private_and_test_files(self) -> tuple[str, ...]:
        return (self.file,) if self.test_file is None else (self.file, self.test_file)


def _checked_category_texts_by_column(categories: Mapping[str, Sequence[object]]) -> dict[str, tuple[str, ...]]:
    """The categories from a data set's YAML as texts, or a ValueError."""
    if not isinstance(categories, Mapping):
        raise ValueError(f"Expected dataset.categories={categories} to map columns to lists of their values.")
    return {
        composed_text(name): checked_public_texts(f"dataset.categories.{name}", values)
        for name, values in sorted(categories.items(), key=lambda item: str(item[0]))
    }


def _check_column_names(table: Table) -> None:
    """Refuse names of columns that are not texts."""
    for key in ("bounds", "categories", "dates", "missing"):
        for column in getattr(table, key) if isinstance(getattr(table, key), Mapping) else ():
            if not isinstance(column, str):
                raise ValueError(f"Expected dataset.{key}={column!r} to name a column; quote it.")


@dataclass(frozen=True, kw_only=True)
class TextTable(_UserTexts):
    """The rows of a table; all of them are private.

    `file` is relative to the user's data folder, or absolute. `text` is the column of texts, `label` the column to
    predict, `labels` the public list of its values. The vocabulary is published: nothing of it comes from the texts.
    If there is a `unit_column`, rows with equal values in it are one unit; `units` is the nominal number of units, and
    each keeps at most `contribution_cap` rows.
    Shapes: features float32 [n, length], token numbers; a longer text is cut off, `vocabulary.padding` fills a row.
    """

    label: str
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        require_settings_are_texts(self, "file", "label", "text")
        object.__setattr__(self, "labels", checked_public_texts("dataset.labels", self.labels))
        check_dataset_declaration(self)
        check_classes_are_labels(self, self.labels)
        if len(self.shape) != 1:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [length], the most tokens of a text.")
        require_distinct_columns("label, text and unit_column", (self.label, self.text, self.unit_column))

    @property
    def preprocessing(self) -> Form:
        """The token numbers of a text."""
        return preprocessing_form_of_labelled_tokens(self.vocabulary, self.shape[0], self.labels)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum: a row that cannot be read must not cost budget."""
        columns = self._read_text_unit_and_named_columns(folder, self.label)
        self._class_numbers(columns)
        columns[self.text].texts()
        self._unit_identifiers_or_none(columns)
        return (self._table(folder, self.file).content_hash_of_table(),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows as private records, capped per unit; there are no public records."""
        import torch

        columns = self._read_text_unit_and_named_columns(folder, self.label)
        features = self.vocabulary.token_numbers_of_texts(columns[self.text].texts(), self.shape[0])
        labels = self._class_numbers(columns)
        records = Records(features=torch.from_numpy(features), labels=torch.from_numpy(labels))
        return self.in_units(records, self._unit_identifiers_or_none(columns)), None

    def _class_numbers(self, columns: Mapping[str, TableColumn]) -> NDArray[np.int64]:
        with mismatches_refused() as found:
            return positions_in_list(columns[self.label], self.labels, found)


@dataclass(frozen=True, kw_only=True)
class TextSequences(_UserTexts):
    """The rows of a table, one text and one record each; all of them are private.

    `file` is relative to the user's data folder, or absolute. `text` is the column of texts, `classes` the number of
    words of the language model. The vocabulary is published: nothing of it comes from the texts. A text of more than
    `shape` tokens is refused before the charge; with `cut` it is cut off. If there is a `unit_column`, rows with equal
    values in it are one unit; `units` is the nominal number of units, and each keeps at most `contribution_cap` rows.
    Shapes: features float32 [n, length], token numbers, filled up with `vocabulary.padding`; labels [n, length], the
    token that follows each, `IGNORED` at a text's last token and at padding.
    """

    per_position = True

    cut: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        require_settings_are_texts(self, "file", "text")
        if not isinstance(self.cut, bool):
            raise ValueError(f"Expected dataset.cut={self.cut!r} to be true or false.")
        check_dataset_declaration(self)
        if len(self.shape) != 1 or self.shape[0] < 2:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [length], the most tokens of a text, >= 2.")
        if self.classes < self.vocabulary.words:
            raise ValueError(f"Expected dataset.classes={self.classes} >= {self.vocabulary.words}, the tokenizer's.")
        if self.unit_column == self.text:
            raise ValueError(f"Expected dataset.unit_column={self.unit_column} to be another column than dataset.text.")

    @property
    def preprocessing(self) -> Form:
        """The token numbers of a text."""
        return preprocessing_form_for_language_model(self.vocabulary, self.shape[0])

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check every row, since there is no checksum: a row that cannot be read must not cost budget."""
        columns = self._read_text_unit_and_named_columns(folder)
        self._check_texts_fit_length(columns[self.text].texts())
        self._unit_identifiers_or_none(columns)
        return (self._table(folder, self.file).content_hash_of_table(),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All rows as private records, capped per unit; there are no public records."""
        import torch

        columns = self._read_text_unit_and_named_columns(folder)
        tokens = self.vocabulary.token_numbers_of_texts(columns[self.text].texts(), self.shape[0])
        labels = next_token_targets(tokens, self.vocabulary.padding)
        records = Records(features=torch.from_numpy(tokens), labels=torch.from_numpy(labels))
        return self.in_units(records, self._unit_identifiers_or_none(columns)), None

    def _check_texts_fit_length(self, texts: list[str]) -> None:
        """Refuse a text of more tokens than `shape`, unless texts are cut off."""
        if self.cut or not texts:
            return
        (length,) = self.shape
        longer = self.vocabulary.token_numbers_of_texts(texts, length + 1)[:, length] != self.vocabulary.padding
        if longer.any():
            raise BadInput(
                f"Expected {self.text} in row {longer.argmax() + 1} of {self.file} to have at most {length} tokens, as "
                "dataset.shape; say dataset.cut=true to cut longer texts off."
            )
