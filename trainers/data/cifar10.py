"""CIFAR-10 in its official layout of Python pickles."""

from __future__ import annotations

import io
import math
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting.errors import BadInput
from trainers.data.dataset import Declared
from trainers.data.records import Records, Scaling

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from accounting.fingerprint import Content
    from trainers.data.official import Official

TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"


@dataclass(frozen=True, kw_only=True)
class Cifar10(Declared):
    """Colour images of ten kinds of things; the test batch is public.

    Shapes: features uint8 [n, 3, 32, 32], scaled to (x / scale - mean) / std.
    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """

    scale: float
    mean: float
    std: float
    files: Official

    def _check(self) -> None:
        Scaling(scale=self.scale, mean=self.mean, std=self.std)

    def locate(self, folder: Path | None) -> None:
        """Find the six batches or the archive in the user's folder, or download the archive."""
        self.files.locate(self.name, folder)

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the six batches against their official checksums; the five training batches are private."""
        return self.files.verify(self.name, folder, TRAIN_BATCHES)

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """The five training batches as private records, the test batch as public ones."""
        contents = self.files.read(self.name, folder)
        return self._records(contents, TRAIN_BATCHES), self._records(contents, (TEST_BATCH,))

    def _records(self, contents: dict[str, bytes], files: tuple[str, ...]) -> Records:
        """The records of these files, whose bytes go as they are parsed: images would else lie in memory thrice."""
        import torch

        batches = [parse_batch(contents.pop(file), file, math.prod(self.shape), self.classes) for file in files]
        return Records(
            features=torch.from_numpy(np.concatenate([images for images, _ in batches]).reshape(-1, *self.shape)),
            labels=torch.from_numpy(np.concatenate([labels for _, labels in batches])),
            scaling=Scaling(scale=self.scale, mean=self.mean, std=self.std),
        )


def parse_batch(content: bytes, file: str, pixels: int, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images uint8 [n, pixels] and labels int64 [n] of one pickled batch.

    Guarantee: unpickling makes dicts, lists, bytes, numbers and numpy arrays, and calls nothing else.
    Errors: `BadInput`, one sentence, for anything but images and as many labels.
    """
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        images, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"], dtype=np.int64)
    except (
        pickle.UnpicklingError,
        EOFError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as e:
        raise BadInput(f"Expected {file} to be a pickled batch of images and labels, got {e}.") from e
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != pixels:
        raise BadInput(f"Expected {file} to hold uint8 images of {pixels} values, got {images.dtype} {images.shape}.")
    if labels.shape != images.shape[:1]:
        raise BadInput(f"Expected {len(images)} labels in {file}, got {labels.size}.")
    if ((labels < 0) | (labels >= classes)).any():
        raise BadInput(f"Expected labels in 0..{classes - 1} in {file}.")
    return images, labels


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that admits the reconstruction of numpy arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"the foreign name {module}.{name}")
