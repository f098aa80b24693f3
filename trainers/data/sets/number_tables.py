"""Data sets in text files of whole numbers, one record per line: Covertype, Enron-Spam as word counts, and Gisette.

Errors name the line and column. The published file of Enron-Spam counts the 3000 words that are most frequent in these
same mails. No guarantee covers that choice, which was made before any account was opened; nothing else is computed from
the records. Gisette has the handwritten digits 4 and 9 as 5000 features, of which half are distractors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.columns import checked_public_bounds
from dpsweep.trainers.data.feature_columns import NumberColumn
from dpsweep.trainers.data.official_files import FromFiles
from dpsweep.trainers.data.preprocessing import (
    check_bound_fits_one_byte,
    preprocessing_form_of_array,
    preprocessing_form_of_feature_columns,
)
from dpsweep.trainers.data.records import Scaling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpsweep.trainers.data.official_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form


ANY = 2.0**53
"""The limit for columns without one in their format: whole numbers up to it are exact in every type."""
_ROWS = 512
_WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, kw_only=True)
class NumberFile:
    """A text file with one record per line: `texts` columns that are skipped, then whole numbers.

    `columns` are the names of all columns, for error messages; `limits` are the lowest and highest number that the
    file's format allows in each column that is read. `first` is the line number of the first record.
    """

    file: str
    columns: Sequence[str]
    limits: Sequence[tuple[float, float]]
    separator: str = ","
    texts: int = 0
    first: int = 1

    def iterate_record_blocks(self, content: bytes, records: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Blocks of records: a slice of positions, and their numbers [k, columns]; one block at a time saves memory.

        Errors: `BadInput`, one sentence with file, line and column, for anything but `records` lines of numbers
        within the limits.
        """
        lines = content.rstrip().splitlines()[self.first - 1 :]
        if len(lines) != records:
            raise BadInput(f"Expected {records} records in {self.file}, got {len(lines)} lines of them.")
        for start in range(0, records, _ROWS):
            block = lines[start : start + _ROWS]
            yield (
                slice(start, start + len(block)),
                self._parse_block_of_lines([line.rstrip() for line in block], self.first + start),
            )

    def _parse_block_of_lines(self, lines: Sequence[bytes], first: int) -> NDArray[np.int64]:
        mark = self.separator.encode()
        for place, line in enumerate(lines, start=first):
            if (cells := line.count(mark) + 1) != len(self.columns):
                raise BadInput(f"Expected {len(self.columns)} values in line {place} of {self.file}, got {cells}.")
        numbers = range(self.texts, len(self.columns))
        try:
            table = np.loadtxt(lines, np.int64, comments=None, delimiter=self.separator, usecols=numbers, ndmin=2)
        except ValueError as error:
            raise self._error_for_first_wrong_cell(lines, first) from error
        low, high = np.array(self.limits).T
        if len(table) != len(lines) or not ((low <= table) & (table <= high)).all():  # numpy leaves empty lines out
            raise self._error_for_first_wrong_cell(lines, first)
        return table

    def _error_for_first_wrong_cell(self, lines: Sequence[bytes], first: int) -> BadInput:
        """The error for the first wrong cell; it may be slow, because it runs once."""
        for place, line in enumerate(lines, start=first):
            cells = line.decode("utf-8", "replace").split(self.separator)[self.texts :]
            for cell, name, (low, high) in zip(cells, self.columns[self.texts :], self.limits, strict=True):
                if not (_WHOLE.fullmatch(cell.strip()) and low <= int(cell) <= high):
                    whole = f"a whole number{_limits_text(low, high)}"
                    return BadInput(f"Expected {name} in line {place} of {self.file} to be {whole}, got {cell!r}.")
        return BadInput(f"Expected whole numbers in lines {first} to {first + len(lines) - 1} of {self.file}.")


def _limits_text(low: float, high: float) -> str:
    """The limits in words; an empty text if there are none."""
    if high < ANY:
        return f" in {low:.0f}..{high:.0f}"
    return f" >= {low:.0f}" if low > -ANY else ""


NUMBERS = (
    "elevation",
    "aspect",
    "slope",
    "horizontal-distance-to-hydrology",
    "vertical-distance-to-hydrology",
    "horizontal-distance-to-roadways",
    "hillshade-9am",
    "hillshade-noon",
    "hillshade-3pm",
    "horizontal-distance-to-fire-points",
)
AREAS = tuple(f"wilderness-area-{number}" for number in range(1, 5))
SOILS = tuple(f"soil-type-{number}" for number in range(1, 41))
COLUMNS = (*NUMBERS, *AREAS, *SOILS, "cover-type")
WIDTH, CLASSES = len(COLUMNS) - 1, 7
BITS = dict.fromkeys(AREAS + SOILS, (0.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class Covertype(FromFiles):
    """The lines of one file in the layout of covtype.data; all of them are private.

    `bounds` gives each number's public range.
    Shapes: features float32 [n, 54] in [0, 1], in the file's column order; cover type 1 is label 0.
    Source: Blackard, Dean, Comparative Accuracies of Artificial Neural Networks and Discriminant Analysis in Predicting
    Forest Cover Types from Cartographic Variables, 1999; the column names are from covtype.info.
    """

    sizes = (WIDTH,)
    only_classes = CLASSES
    bounds: Mapping[str, tuple[float, float]]

    def _check_declared_fields(self) -> None:
        object.__setattr__(self, "bounds", checked_public_bounds(self.bounds))
        if set(self.bounds) != set(NUMBERS):
            raise ValueError(f"Expected dataset.bounds={sorted(self.bounds)} for {sorted(NUMBERS)}.")
        if len(self.files.contents) != 1:
            raise ValueError(f"Expected dataset.files.contents={list(self.files.contents)} to be one file.")

    @property
    def preprocessing(self) -> Form:
        """The columns in the file's order; columns other than `NUMBERS` are 0 or 1."""
        bounds = BITS | dict(self.bounds)
        forms = [NumberColumn(name=key, bounds=bounds[key]).form for key in COLUMNS[:-1]]
        return preprocessing_form_of_feature_columns(forms, [str(kind) for kind in range(1, CLASSES + 1)])

    def _private_and_public_arrays(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The clamped and scaled features [n, 54] and the labels [n] of the one file."""
        ((file, content),) = contents.items()
        limits = [(-ANY, ANY)] * len(NUMBERS) + [(0, 1)] * len(AREAS + SOILS) + [(1, CLASSES)]
        table = NumberFile(file=file, columns=COLUMNS, limits=limits)
        low, high = np.array([self.bounds.get(column, (0, 1)) for column in COLUMNS[:-1]]).T
        features = np.empty((self.records, WIDTH), dtype=np.float32)
        labels = np.empty(self.records, dtype=np.int64)
        for rows, block in table.iterate_record_blocks(content, self.records):
            features[rows] = (np.clip(block[:, :-1], low, high) - low) / (high - low)
            labels[rows] = block[:, -1] - 1
        yield features, labels


FILE = "emails.csv"
NAME, LABEL = "Email No.", "Prediction"


@dataclass(frozen=True, kw_only=True)
class Enron(FromFiles):
    """The mails of emails.csv, each with its word counts; all of them are private.

    Counts are clamped to `most`.
    Shapes: features uint8 [n, words], scaled to x / most in [0, 1]; label 1 is spam.
    Source: Metsis, Androutsopoulos, Paliouras, Spam Filtering with Naive Bayes, CEAS 2006, folder enron1.
    """

    sizes = ("words",)
    only_classes = 2
    private_files = (FILE,)
    most: int
    nonzero = 170

    def _check_declared_fields(self) -> None:
        check_bound_fits_one_byte(self.most)

    @property
    def preprocessing(self) -> Form:
        """The counts of the published file's words, in its order."""
        return preprocessing_form_of_array(
            self.shape, self._scaling_to_inputs, bounds=(0, self.most), labels=("ham", "spam")
        )

    @property
    def _scaling_to_inputs(self) -> Scaling:
        return Scaling(scale=float(self.most))

    def _private_and_public_arrays(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
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
        for rows, block in table.iterate_record_blocks(content, self.records):
            counts[rows] = np.minimum(block[:, :-1], self.most)
            labels[rows] = block[:, -1]
        yield counts, labels


LARGEST = 999
"""The largest feature value: the format has whole numbers from 0 to it."""
PRIVATE, PUBLIC = "gisette_train", "gisette_valid"


@dataclass(frozen=True, kw_only=True)
class Gisette(FromFiles):
    """The training records, which are private, and the validation records, which are public.

    Shapes: features float32 [n, features], scaled to x / 999 in [0, 1]; the file's labels -1 and 1 become 0 and 1.
    Source: Guyon, Gunn, Ben-Hur, Dror, Result Analysis of the NIPS 2003 Feature Selection Challenge, NIPS 2004.
    """

    sizes = ("features",)
    only_classes = 2
    private_files = (f"{PRIVATE}.data", f"{PRIVATE}.labels")
    _scaling_to_inputs = Scaling(scale=float(LARGEST))

    @property
    def preprocessing(self) -> Form:
        """The features divided by the largest value that the format allows."""
        return preprocessing_form_of_array(self.shape, self._scaling_to_inputs, labels=("-1", "1"))

    def _private_and_public_arrays(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The training records, then the validation records."""
        yield self._read_features_and_labels(contents, PRIVATE, self.records)
        yield self._read_features_and_labels(contents, PUBLIC, self.test_records)

    def _read_features_and_labels(self, contents: Mapping[str, bytes], part: str, records: int) -> Arrays:
        names = [f"feature {place}" for place in range(1, self.shape[0] + 1)]
        table = NumberFile(file=f"{part}.data", columns=names, limits=[(0, LARGEST)] * len(names), separator=" ")
        features = np.empty((records, len(names)), dtype=np.float32)
        for rows, block in table.iterate_record_blocks(contents[table.file], records):
            features[rows] = block
        return features, _parse_labels_as_zero_or_one(contents[f"{part}.labels"], f"{part}.labels", records)


def _parse_labels_as_zero_or_one(content: bytes, file: str, records: int) -> NDArray[np.int64]:
    """The labels: -1 and 1 of the file become 0 and 1."""
    labels = np.empty(records, dtype=np.int64)
    for rows, block in NumberFile(file=file, columns=("label",), limits=[(-1, 1)]).iterate_record_blocks(
        content, records
    ):
        labels[rows] = block[:, 0]
    if len(zeros := np.flatnonzero(labels == 0)):
        raise BadInput(f"Expected label in line {zeros[0] + 1} of {file} to be -1 or 1, got 0.")
    return (labels + 1) // 2
