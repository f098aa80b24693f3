"""Fisher's irises as scikit-learn carries them: four lengths in centimetres, three species."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.arrays import bounded_records
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.official_files import read_contents, verify_contents
from dpsweep.trainers.data.preprocessing import of_bounded_array

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form
    from dpsweep.trainers.data.records import Records

FILE = "sklearn/datasets/data/iris.csv"
BOUNDS = (0.0, 10.0)
"""Centimetres that no part of an iris exceeds: a public constant, not found in the file."""


@dataclass(frozen=True, kw_only=True)
class Iris(Declared):
    """All 150 flowers, all private.

    Shapes: features float32 [n, 4] in [0, 1], labels [n].
    """

    md5: str

    @property
    def preprocessing(self) -> Form:
        """Lengths, clamped and scaled."""
        return of_bounded_array(self.shape, BOUNDS)

    def locate(self, folder: Path | None) -> None:
        """Find scikit-learn's file; the user's folder plays no part."""
        if not self._path().is_file():
            raise BadInput(f"{self.name} needs {FILE}: pip install scikit-learn.")

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the file against its checksum; it is private."""
        return verify_contents((self._path(),), {"iris.csv": self.md5}, ("iris.csv",))

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All flowers as private records; there are no public ones."""
        content = read_contents((self._path(),), {"iris.csv": self.md5})["iris.csv"]
        table = np.loadtxt(content.decode("ascii").splitlines(), delimiter=",", skiprows=1)
        return bounded_records(table[:, :4], table[:, 4].astype(np.int64), BOUNDS), None

    def _path(self) -> Path:
        return Path(str(distribution("scikit-learn").locate_file(FILE)))
