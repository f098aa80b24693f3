"""Images in the idx format: MNIST, Fashion-MNIST and similar data sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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


LARGEST_LABEL = np.iinfo(np.uint8).max


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
            yield self._taken(images.reshape(-1, *self.shape), labels, labels_file)

    def _taken(self, images: NDArray[np.uint8], labels: NDArray[np.uint8], labels_file: str) -> Arrays:
        """The records that the data set takes from a pair of files."""
        if (labels >= self.classes).any():
            raise BadInput(f"Expected labels < {self.classes} in {labels_file}, got {labels.max()}.")
        return images, labels.astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class IdxSubset(IdxImages):
    """The images of `classes` labels alone, numbered anew in the order of `kept`: two digits out of ten, say."""

    leaves_out: ClassVar[str | None] = "images of other labels"
    kept: tuple[int, ...]

    def _check(self) -> None:
        super()._check()
        if self.left_out is None:
            raise ValueError(f"Expected dataset.left_out=null to be {self.leaves_out!r}.")
        object.__setattr__(self, "kept", tuple(self.kept))
        valid = all(isinstance(label, int) and 0 <= label <= LARGEST_LABEL for label in self.kept)
        if not valid or len(set(self.kept)) != self.classes or len(self.kept) != self.classes:
            raise ValueError(
                f"Expected dataset.kept={list(self.kept)} to be {self.classes} different labels of "
                f"0..{LARGEST_LABEL}, as many as dataset.classes."
            )

    @property
    def preprocessing(self) -> Form:
        """The pixels, scaled; the labels have the files' numbers as names."""
        return of_array(self.shape, self._scaling, labels=tuple(map(str, self.kept)))

    def _taken(self, images: NDArray[np.uint8], labels: NDArray[np.uint8], labels_file: str) -> Arrays:
        numbers = np.full(LARGEST_LABEL + 1, -1, dtype=np.int64)
        numbers[list(self.kept)] = range(self.classes)
        taken = numbers[labels] >= 0
        return images[taken], numbers[labels[taken]]


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
