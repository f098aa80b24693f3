"""CIFAR-10 in its official layout of Python pickles."""

from __future__ import annotations

import io
import math
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.files.from_files import FromFiles
from dpsweep.trainers.data.preprocessing import of_array
from dpsweep.trainers.data.records import Scaling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dpsweep.trainers.data.files.from_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form

TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"


@dataclass(frozen=True, kw_only=True)
class Cifar10(FromFiles):
    """Colour images of ten kinds of things; the test batch is public.

    Shapes: features uint8 [n, 3, 32, 32], scaled to (x / scale - mean) / std.
    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """

    scale: float
    mean: float
    std: float

    def _check(self) -> None:
        """Refuse invalid scaling constants."""
        _ = self._scaling

    @property
    def preprocessing(self) -> Form:
        """The pixels, scaled."""
        return of_array(self.shape, self._scaling)

    @property
    def _private(self) -> tuple[str, ...]:
        return TRAIN_BATCHES

    @property
    def _scaling(self) -> Scaling:
        return Scaling(scale=self.scale, mean=self.mean, std=self.std)

    def _parts(self, contents: dict[str, bytes]) -> Iterator[Arrays]:
        """The five training batches, then the test batch; parsed bytes are freed, to save memory."""
        for files in (TRAIN_BATCHES, (TEST_BATCH,)):
            batches = [parse_batch(contents.pop(file), file, math.prod(self.shape), self.classes) for file in files]
            images = np.concatenate([images for images, _ in batches]).reshape(-1, *self.shape)
            yield images, np.concatenate([labels for _, labels in batches])


def parse_batch(content: bytes, file: str, pixels: int, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images uint8 [n, pixels] and labels int64 [n] of one pickled batch.

    Guarantee: unpickling creates dicts, lists, bytes, numbers and numpy arrays, and calls nothing else.
    Errors: `BadInput`, one sentence, for anything but images and the same number of labels.
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
    """An unpickler that allows only the reconstruction of numpy arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"the foreign name {module}.{name}")
