"""Gisette: the handwritten digits 4 and 9 as 5000 features; half of the features are distractors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.files.from_files import FromFiles
from dpsweep.trainers.data.files.number_table import NumberFile
from dpsweep.trainers.data.preprocessing import of_array
from dpsweep.trainers.data.records import Scaling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dpsweep.trainers.data.files.from_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form

LARGEST = 999
"""The largest feature value: the format has whole numbers from 0 to it."""
PRIVATE, PUBLIC = "gisette_train", "gisette_valid"


@dataclass(frozen=True, kw_only=True)
class Gisette(FromFiles):
    """The training records, which are private, and the validation records, which are public.

    Shapes: features float32 [n, features], scaled to x / 999 in [0, 1]; the file's labels -1 and 1 become 0 and 1.
    Source: Guyon, Gunn, Ben-Hur, Dror, Result Analysis of the NIPS 2003 Feature Selection Challenge, NIPS 2004.
    """

    def _check(self) -> None:
        if len(self.shape) != 1:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [features].")
        if self.classes != 2:
            raise ValueError(f"Expected dataset.classes={self.classes} == 2.")

    @property
    def preprocessing(self) -> Form:
        """The features divided by the largest value that the format allows."""
        return of_array(self.shape, self._scaling, labels=("-1", "1"))

    @property
    def _private(self) -> tuple[str, ...]:
        return f"{PRIVATE}.data", f"{PRIVATE}.labels"

    @property
    def _scaling(self) -> Scaling:
        return Scaling(scale=float(LARGEST))

    def _parts(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The training records, then the validation records."""
        yield self._part(contents, PRIVATE, self.records)
        yield self._part(contents, PUBLIC, self.test_records)

    def _part(self, contents: Mapping[str, bytes], part: str, records: int) -> Arrays:
        names = [f"feature {place}" for place in range(1, self.shape[0] + 1)]
        table = NumberFile(file=f"{part}.data", columns=names, limits=[(0, LARGEST)] * len(names), separator=" ")
        features = np.empty((records, len(names)), dtype=np.float32)
        for rows, block in table.read(contents[table.file], records):
            features[rows] = block
        return features, _labels(contents[f"{part}.labels"], f"{part}.labels", records)


def _labels(content: bytes, file: str, records: int) -> NDArray[np.int64]:
    """The labels: -1 and 1 of the file become 0 and 1."""
    labels = np.empty(records, dtype=np.int64)
    for rows, block in NumberFile(file=file, columns=("label",), limits=[(-1, 1)]).read(content, records):
        labels[rows] = block[:, 0]
    if len(zeros := np.flatnonzero(labels == 0)):
        raise BadInput(f"Expected label in line {zeros[0] + 1} of {file} to be -1 or 1, got 0.")
    return (labels + 1) // 2
