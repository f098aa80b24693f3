"""Synthetic linear regression from a public seed, with known true weights.

Its records are treated as private and charged like real ones, so that a trial here runs as it would on real records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.accounting.numbers import non_negative
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.preprocessing import of_array
from dpsweep.trainers.data.records import Records

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsweep.trainers.data.preprocessing import Form


@dataclass(frozen=True, kw_only=True)
class LinearRegression(Declared):
    """Features x and weights w of standard normal numbers, and labels <x, w> with normal noise of `noise_std`.

    The first `records` are private, the next `test_records` are public.
    Shapes: features float32 [n, d], labels float32 [n].
    Source: the simulations of Mohapatra et al. 2022, section 5; the distribution as far as the text states it.
    """

    noise_std: float
    seed: int

    def _check(self) -> None:
        non_negative("dataset.noise_std", self.noise_std)
        if len(self.shape) != 1 or self.classes != 1:
            raise ValueError(
                f"Expected dataset.shape={list(self.shape)} of one size and dataset.classes={self.classes} == 1."
            )

    @property
    def preprocessing(self) -> Form:
        """No change: features are inputs."""
        return of_array(self.shape)

    def locate(self, folder: Path | None) -> None:
        """Do nothing: there are no files."""

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """The content of the private records."""
        features, labels = self._generate()
        return (Content.of((features[: self.records].tobytes(), labels[: self.records].tobytes())),)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The records, generated again; the same on every machine."""
        import torch

        features, labels = map(torch.from_numpy, self._generate())
        private, test = (
            Records(features=features[part], labels=labels[part])
            for part in (slice(self.records), slice(self.records, None))
        )
        return private, test if len(test) else None

    def _generate(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        rng = np.random.Generator(np.random.PCG64(self.seed))
        weights = rng.standard_normal(self.shape[0])
        features = rng.standard_normal((self.records + self.test_records, self.shape[0]))
        labels = features @ weights + self.noise_std * rng.standard_normal(len(features))
        return features.astype(np.float32), labels.astype(np.float32)
