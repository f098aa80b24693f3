"""Images in the idx format: MNIST, Fashion-MNIST and similar data sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.files.from_files import FromFiles
from dpsweep.trainers.data.preprocessing import of_array
from dpsweep.trainers.data.records import Scaling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dpsweep.trainers.data.files.from_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form


@dataclass(frozen=True, kw_only=True)
class IdxImages(FromFiles):
    """Grey images of one channel; the 10000 test images are public.

    Shapes: features uint8 [n, 1, height, width], scaled to (x / scale - mean) / std.
    Source: the format is LeCun's, http://yann.lecun.com/exdb/mnist/.
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
        return _files("train")

    @property
    def _scaling(self) -> Scaling:
        return Scaling(scale=self.scale, mean=self.mean, std=self.std)

    def _parts(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The training images, then the test images."""
        for images_file, labels_file in map(_files, ("train", "t10k")):
            images = parse_idx(contents[images_file], images_file, self.shape[-2:])
            labels = parse_idx(contents[labels_file], labels_file, ())
            if len(labels) != len(images):
                raise BadInput(f"Expected {len(images)} labels in {labels_file}, got {len(labels)}.")
            if (labels >= self.classes).any():
                raise BadInput(f"Expected labels < {self.classes} in {labels_file}, got {labels.max()}.")
            yield images.reshape(-1, *self.shape), labels.astype(np.int64)


def _files(part: str) -> tuple[str, str]:
    """The names of a part's images and labels."""
    return f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"


def parse_idx(content: bytes, file: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The array uint8 [n, *shape] in an idx file.

    Errors: `BadInput`, one sentence, for another type, another shape, or a truncated file.
    """
    magic = 0x0800 + 1 + len(shape)
    start = 4 * (2 + len(shape))
    if len(content) < start:
        raise BadInput(f"Expected a header of {start} bytes in {file}, got {len(content)} bytes.")
    number, count, *sizes = (int(word) for word in np.frombuffer(content[:start], dtype=">u4"))
    if number != magic:
        raise BadInput(f"Expected magic number {magic} in {file}, got {number}.")
    if tuple(sizes) != shape:
        raise BadInput(f"Expected images of {'x'.join(map(str, shape))} in {file}, got {'x'.join(map(str, sizes))}.")
    expected = count * math.prod(shape)
    if len(content) - start != expected:
        raise BadInput(f"Expected {expected} bytes of data in {file}, got {len(content) - start}.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(count, *shape).copy()
