"""Files in MNIST's official format with a few random records, for toy runs: nothing is downloaded."""

from __future__ import annotations

import gzip
import hashlib
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RECORDS, TEST_RECORDS, SIDE, CLASSES = 60, 20, 28, 10


@dataclass(frozen=True, kw_only=True)
class GeneratedMnist:
    """A folder with the files, and the checksums that stand for the official ones."""

    folder: Path
    checksums: Mapping[str, str]

    @property
    def overrides(self) -> tuple[str, ...]:
        """What a command is given beside dataset=mnist and data=FOLDER."""
        sums = (f"dataset.files.contents.{name}={checksum}" for name, checksum in self.checksums.items())
        return (f"dataset.records={RECORDS}", f"dataset.test_records={TEST_RECORDS}", *sums)


def write_mnist(folder: Path) -> GeneratedMnist:
    """Writes four compressed idx files into FOLDER/mnist: 60 private records and 20 public ones of random bytes."""
    rng = np.random.default_rng(0)
    contents = {}
    for part, count in (("train", RECORDS), ("t10k", TEST_RECORDS)):
        contents[f"{part}-images-idx3-ubyte"] = _idx(rng.integers(256, size=(count, SIDE, SIDE), dtype=np.uint8))
        contents[f"{part}-labels-idx1-ubyte"] = _idx(rng.integers(CLASSES, size=count, dtype=np.uint8))
    place = folder / "mnist"
    place.mkdir(parents=True)
    for name, content in contents.items():
        (place / f"{name}.gz").write_bytes(gzip.compress(content))
    sums = {name: hashlib.md5(content, usedforsecurity=False).hexdigest() for name, content in contents.items()}
    return GeneratedMnist(folder=folder, checksums=sums)


@contextmanager
def study_folder() -> Iterator[tuple[str, str]]:
    """A folder with the files, and the words that make a training on them last two steps of a small batch."""
    with tempfile.TemporaryDirectory() as place:
        made = write_mnist(Path(place))
        yield place, " ".join((*made.overrides, "sampler.batch_size=10", "steps=2"))


def _idx(array: NDArray[np.uint8]) -> bytes:
    """An array of bytes in the idx format."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
