"""Data sets of official files: where they lie, what is checked of them before a charge, and what they hold.

A data set file says which of its files are private and how their bytes are parsed. Finding and checking them is the
same for all, and is written here once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

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
    """A data set whose records lie in official files, some of them, or all, private."""

    files: Official

    def locate(self, folder: Path | None) -> None:
        """Find the files in the user's folder or download them."""
        self.files.locate(self.name, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the files against their official checksums, or all that is in them where one is not known."""
        if not self.files.known:
            for _ in self._parts(self.files.read(self.name, folder)):
                pass
        return self.files.verify(self.name, folder, self._private)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The private records, and the public ones where there are any."""
        import torch

        private, *public = (
            Records(features=torch.from_numpy(features), labels=torch.from_numpy(labels), scaling=self._scaling)
            for features, labels in self._parts(self.files.read(self.name, folder))
        )
        return private, public[0] if public else None

    @property
    @abstractmethod
    def _private(self) -> tuple[str, ...]:
        """The files that hold private records."""

    @property
    def _scaling(self) -> Scaling:
        """What makes stored features into inputs; nothing where they are stored as inputs."""
        return Scaling()

    @abstractmethod
    def _parts(self, contents: dict[str, bytes]) -> Iterable[Arrays]:
        """The features and labels of the private part, then of the public one where there is one.

        `contents` are the files' own, each with its checksum where one is known; they may be taken out as they are
        parsed.
        Errors: `BadInput`, one sentence that names the file and what is wrong with it.
        """
