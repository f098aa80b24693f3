"""Forest cover types from cartographic variables: the published file or a sample of its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.trainers.data.files.from_files import FromFiles
from dpsweep.trainers.data.files.number_table import ANY, NumberFile
from dpsweep.trainers.data.own.columns import public_bounds
from dpsweep.trainers.data.preprocessing import of_columns

if TYPE_CHECKING:
    from dpsweep.trainers.data.files.from_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form

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

    bounds: Mapping[str, tuple[float, float]]

    def _check(self) -> None:
        object.__setattr__(self, "bounds", public_bounds(self.bounds))
        if self.shape != (WIDTH,):
            raise ValueError(f"Expected dataset.shape={list(self.shape)} == [{WIDTH}].")
        if self.classes != CLASSES:
            raise ValueError(f"Expected dataset.classes={self.classes} == {CLASSES}.")
        if set(self.bounds) != set(NUMBERS):
            raise ValueError(f"Expected dataset.bounds={sorted(self.bounds)} for {sorted(NUMBERS)}.")
        if len(self.files.contents) != 1:
            raise ValueError(f"Expected dataset.files.contents={list(self.files.contents)} to be one file.")

    @property
    def preprocessing(self) -> Form:
        """The columns in the file's order; columns other than `NUMBERS` are 0 or 1."""
        return of_columns(COLUMNS[:-1], BITS | dict(self.bounds), [str(kind) for kind in range(1, CLASSES + 1)])

    @property
    def _private(self) -> tuple[str, ...]:
        return tuple(self.files.contents)

    def _parts(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The clamped and scaled features [n, 54] and the labels [n] of the one file."""
        ((file, content),) = contents.items()
        limits = [(-ANY, ANY)] * len(NUMBERS) + [(0, 1)] * len(AREAS + SOILS) + [(1, CLASSES)]
        table = NumberFile(file=file, columns=COLUMNS, limits=limits)
        low, high = np.array([self.bounds.get(column, (0, 1)) for column in COLUMNS[:-1]]).T
        features = np.empty((self.records, WIDTH), dtype=np.float32)
        labels = np.empty(self.records, dtype=np.int64)
        for rows, block in table.read(content, self.records):
            features[rows] = (np.clip(block[:, :-1], low, high) - low) / (high - low)
            labels[rows] = block[:, -1] - 1
        yield features, labels
