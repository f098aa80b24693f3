"""The common part of data sets that read official files: finding, checking and parsing the files.

Each derived class states which of its files are private and how their bytes are parsed. This module finds and checks
the files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.records import Records, Scaling

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.files.official import Official

    Arrays: TypeAlias = tuple[NDArray[np.generic], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class FromFiles(Declared, ABC):
    """A data set that reads its records from official files; some or all files are private."""

    files: Official
    nonzero: ClassVar[int | None] = None
    """About how many inputs of a record are not 0, a public number, where most inputs are 0."""

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder or download them."""
        self.files.locate(self.name, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the files against their official checksums, or parse all of them if a checksum is not known."""
        if not self.files.known:
            for _ in self._parts(self.files.read(self.name, folder)):
                pass
        return self.files.verify(self.name, folder, self._private)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private records, and the public ones where there are any."""
        import torch

        private, *public = (
            Records(
                features=torch.from_numpy(features),
                labels=torch.from_numpy(labels),
                scaling=self._scaling,
                nonzero=self.nonzero,
            )
            for features, labels in self._parts(self.files.read(self.name, folder))
        )
        return private, public[0] if public else None

    @property
    @abstractmethod
    def _private(self) -> tuple[str, ...]:
        """The files that hold private records."""

    @property
    def _scaling(self) -> Scaling:
        """The scaling from stored features to inputs; the identity if features are stored as inputs."""
        return Scaling()

    @abstractmethod
    def _parts(self, contents: dict[str, bytes]) -> Iterable[Arrays]:
        """The features and labels of the private part, then of the public one where there is one.

        `contents` maps file names to bytes, verified where a checksum is known; the method may remove parsed entries.
        Errors: `BadInput`, one sentence that names the file and its defect.
        """
