"""Images that the papers use: idx files (MNIST, Fashion-MNIST), CIFAR-10, and the digits that come with dpsweep."""

from __future__ import annotations

import io
import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.interface import Declared
from dpsweep.trainers.data.official_files import FromFiles, read_contents, verify_contents
from dpsweep.trainers.data.preprocessing import preprocessing_form_of_array
from dpsweep.trainers.data.records import Records, Scaling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dpsweep.accounting.ledger.data_fingerprint import Content
    from dpsweep.trainers.data.official_files import Arrays
    from dpsweep.trainers.data.preprocessing import Form


EMBEDDED = Path(__file__).resolve().parents[1] / "embedded"
"""The folder of the tables that come with dpsweep, and of their licences."""

LARGEST_LABEL = np.iinfo(np.uint8).max


@dataclass(frozen=True, kw_only=True)
class _ScaledImages(FromFiles):
    """Images of bytes, scaled to (x / scale - mean) / std."""

    scale: float
    mean: float
    std: float

    def _check_declared_fields(self) -> None:
        """Refuse invalid scaling constants."""
        _ = self._scaling_to_inputs

    @property
    def preprocessing(self) -> Form:
        """The pixels, scaled."""
        return preprocessing_form_of_array(self.shape, self._scaling_to_inputs)

    @property
    def _scaling_to_inputs(self) -> Scaling:
        return Scaling(scale=self.scale, mean=self.mean, std=self.std)


@dataclass(frozen=True, kw_only=True)
class IdxImages(_ScaledImages):
    """Grey images of one channel; the 10000 test images are public.

    Shapes: features uint8 [n, 1, height, width], scaled to (x / scale - mean) / std.
    Source: the format is LeCun's, http://yann.lecun.com/exdb/mnist/.
    """

    private_files = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
    public_files = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

    def _private_and_public_arrays(self, contents: Mapping[str, bytes]) -> Iterator[Arrays]:
        """The training images, then the test images."""
        for images_file, labels_file in (self.private_files, self.public_files):
            images = parse_idx(contents[images_file], images_file, self.shape[-2:])
            labels = parse_idx(contents[labels_file], labels_file, ())
            if len(labels) != len(images):
                raise BadInput(f"Expected {len(images)} labels in {labels_file}, got {len(labels)}.")
            yield self._select_images_and_labels(images.reshape(-1, *self.shape), labels, labels_file)

    def _select_images_and_labels(
        self, images: NDArray[np.uint8], labels: NDArray[np.uint8], labels_file: str
    ) -> Arrays:
        """The records that the data set takes from a pair of files."""
        if (labels >= self.classes).any():
            raise BadInput(f"Expected labels < {self.classes} in {labels_file}, got {labels.max()}.")
        return images, labels.astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class IdxSubset(IdxImages):
    """The images of `classes` labels alone, numbered anew in the order of `kept`: two digits out of ten, say."""

    leaves_out = "images of other labels"
    kept: tuple[int, ...]

    def _check_declared_fields(self) -> None:
        super()._check_declared_fields()
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
        return preprocessing_form_of_array(self.shape, self._scaling_to_inputs, labels=tuple(map(str, self.kept)))

    def _select_images_and_labels(
        self, images: NDArray[np.uint8], labels: NDArray[np.uint8], labels_file: str
    ) -> Arrays:
        numbers = np.full(LARGEST_LABEL + 1, -1, dtype=np.int64)
        numbers[list(self.kept)] = range(self.classes)
        taken = numbers[labels] >= 0
        return images[taken], numbers[labels[taken]]


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


TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"


@dataclass(frozen=True, kw_only=True)
class Cifar10(_ScaledImages):
    """Colour images of ten kinds of things; the test batch is public.

    Shapes: features uint8 [n, 3, 32, 32], scaled to (x / scale - mean) / std.
    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """

    private_files = TRAIN_BATCHES

    def _private_and_public_arrays(self, contents: dict[str, bytes]) -> Iterator[Arrays]:
        """The five training batches, then the test batch; parsed bytes are freed, to save memory."""
        for files in (TRAIN_BATCHES, (TEST_BATCH,)):
            batches = [
                parse_cifar_batch(contents.pop(file), file, math.prod(self.shape), self.classes) for file in files
            ]
            images = np.concatenate([images for images, _ in batches]).reshape(-1, *self.shape)
            yield images, np.concatenate([labels for _, labels in batches])


def parse_cifar_batch(
    content: bytes, file: str, pixels: int, classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images uint8 [n, pixels] and labels int64 [n] of one pickled batch.

    Guarantee: unpickling creates dicts, lists, bytes, numbers and numpy arrays, and calls nothing else.
    Errors: `BadInput`, one sentence, for anything but images and the same number of labels.
    """
    try:
        batch = _NumpyArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
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


class _NumpyArrayUnpickler(pickle.Unpickler):
    """An unpickler that allows only the reconstruction of numpy arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"the foreign name {module}.{name}")


@dataclass(frozen=True, kw_only=True)
class EmbeddedImages(Declared):
    """Grey images from a gzipped table that comes with dpsweep; all of them are private.

    `distribution` and `file` say whose file it is a copy of, and where that is (`trainers/data/embedded/LICENSES.txt`).
    The table has one image per line, its pixels and then its label. Each image is averaged over squares of
    `pool` x `pool` pixels, a function of its own record alone.
    Shapes: features [n, 1, height, width], uint8 or, averaged, float32, scaled to (x / scale - mean) / std.
    """

    is_local = True
    sizes = (1, "height", "width")
    distribution: str
    file: str
    md5: str
    pool: int
    scale: float
    mean: float
    std: float

    def _check_declared_fields(self) -> None:
        Scaling(scale=self.scale, mean=self.mean, std=self.std)
        if not (isinstance(self.pool, int) and self.pool >= 1):
            raise ValueError(f"Expected dataset.pool={self.pool} >= 1.")

    @property
    def preprocessing(self) -> Form:
        """The pixels, averaged and scaled."""
        return preprocessing_form_of_array(
            self.shape, Scaling(scale=self.scale, mean=self.mean, std=self.std), pool=self.pool
        )

    def locate(self, folder: Path | None) -> None:
        """Find the table; the user's folder is not used."""
        self._embedded_table_path()

    def verify(self, folder: Path | None) -> tuple[Content, ...]:
        """Check the table against its checksum; it is private."""
        path = self._embedded_table_path()
        return verify_contents((path,), {path.stem: self.md5}, (path.stem,))

    def load(self, folder: Path | None) -> tuple[Records, Records | None]:
        """All images as private records; there are no public records."""
        import torch

        _, height, width = self.shape
        table = parse_image_table(
            self._read_verified_table_file(), self.file, self.pool**2 * height * width, self.classes
        )
        images = table[:, :-1].reshape(-1, 1, height, self.pool, width, self.pool)
        pooled = images.reshape(-1, *self.shape) if self.pool == 1 else images.mean((3, 5), dtype=np.float32)
        records = Records(
            features=torch.from_numpy(np.ascontiguousarray(pooled)),
            labels=torch.from_numpy(table[:, -1].astype(np.int64)),
            scaling=Scaling(scale=self.scale, mean=self.mean, std=self.std),
        )
        return records, None

    def _read_verified_table_file(self) -> bytes:
        path = self._embedded_table_path()
        return read_contents((path,), {path.stem: self.md5})[path.stem]

    def _embedded_table_path(self) -> Path:
        path = EMBEDDED / Path(self.file).name
        if not path.is_file():
            names = ", ".join(sorted(one.name for one in EMBEDDED.glob("*.csv.gz")))
            raise BadInput(f"Expected dataset.file={self.file} to be one of the tables of dpsweep: {names}.")
        return path


def parse_image_table(content: bytes, file: str, pixels: int, classes: int) -> NDArray[np.uint8]:
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
