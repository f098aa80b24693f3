from __future__ import annotations

import hashlib
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.official_files import Official
from dpsweep.trainers.data.sets.images import TEST_BATCH, TRAIN_BATCHES, Cifar10, parse_cifar_batch

CONF = Path(__file__).parents[4] / "conf" / "dataset" / "cifar10.yaml"
RNG = np.random.default_rng(0)
BATCHES = {
    name: (RNG.integers(0, 256, (3, 12), dtype=np.uint8), RNG.integers(0, 10, 3).tolist())
    for name in (*TRAIN_BATCHES, TEST_BATCH)
}


def pickled_by_python_2(images: np.ndarray, labels: list[int]) -> bytes:
    """The batch as Python 2 and its numpy wrote it: byte strings, and numpy.core.multiarray."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(value)) + value

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values)

    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + numbers((0,)) + b"t" + text(b"b") + b"tR"
    kind = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR"
    kind += b"(K\x03" + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = made + b"(K\x01" + numbers(images.shape) + b"t" + kind + b"\x89" + text(images.tobytes()) + b"tb"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + numbers(tuple(labels)) + b"lu."


def pickled_now(images: np.ndarray, labels: list[int]) -> bytes:
    return pickle.dumps({b"data": images, b"labels": labels}, protocol=4)


def dataset(contents: dict[str, bytes]) -> Cifar10:
    """A data set of these batches, with their own checksums as the official ones."""
    return Cifar10(
        name="tiny",
        records=15,
        test_records=3,
        shape=(3, 2, 2),
        classes=10,
        unit="record",
        scale=255.0,
        mean=0.5,
        std=0.5,
        files=Official(
            url="http://127.0.0.1/",
            folders=("cifar-10-batches-py",),
            downloads={"cifar-10-python.tar.gz": "0" * 32},
            contents={name: hashlib.md5(content).hexdigest() for name, content in contents.items()},
        ),
    )


def folder_of(root: Path, contents: dict[str, bytes]) -> Path:
    (root / "cifar-10-batches-py").mkdir()
    for name, content in contents.items():
        (root / "cifar-10-batches-py" / name).write_bytes(content)
    return root


def archive_of(root: Path, contents: dict[str, bytes]) -> Path:
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name, content in {"readme.html": b"<html>", **contents}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return root


@pytest.mark.parametrize("layout", [folder_of, archive_of])
@pytest.mark.parametrize("pickled", [pickled_by_python_2, pickled_now])
def test_the_five_batches_are_private_and_the_sixth_public(tmp_path: Path, layout, pickled) -> None:  # type: ignore[no-untyped-def]
    contents = {name: pickled(*batch) for name, batch in BATCHES.items()}
    private, public = dataset(contents).load(layout(tmp_path, contents))
    assert public is not None
    assert private.features.dtype == public.features.dtype == torch.uint8
    expected = np.concatenate([BATCHES[name][0] for name in TRAIN_BATCHES]).reshape(15, 3, 2, 2)
    assert (private.features.numpy() == expected).all()
    assert private.labels.tolist() == [label for name in TRAIN_BATCHES for label in BATCHES[name][1]]
    assert (public.features.numpy().reshape(3, 12) == BATCHES[TEST_BATCH][0]).all()
    np.testing.assert_allclose(private.inputs(slice(None), "cpu"), (expected / 255 - 0.5) / 0.5, atol=1e-6)


class Burglar:
    """An object whose unpickling would create a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


def test_a_pickle_that_calls_something_else_is_refused_before_it_acts(tmp_path: Path) -> None:
    burglary = pickle.dumps({b"data": Burglar(tmp_path / "loot"), b"labels": []})
    with pytest.raises(BadInput, match=r"^Expected data_batch_1 to be a pickled batch .*, got the foreign name "):
        parse_cifar_batch(burglary, "data_batch_1", 12, 10)
    assert not (tmp_path / "loot").exists()
    pickle.loads(burglary)
    assert (tmp_path / "loot").exists()


IMAGES, LABELS = BATCHES[TEST_BATCH]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickled_now(IMAGES, LABELS)[:-30], "to be a pickled batch"),
        (b"", "to be a pickled batch"),
        (b"no pickle at all", "to be a pickled batch"),
        (pickle.dumps([1, 2]), "to be a pickled batch"),
        (pickle.dumps({b"data": IMAGES}, protocol=4), "to be a pickled batch"),
        (pickled_now(IMAGES[:, :11], LABELS), r"to hold uint8 images of 12 values, got uint8 \(3, 11\)"),
        (pickled_now(IMAGES.astype(np.float32), LABELS), "to hold uint8 images of 12 values, got float32"),
        (pickled_now(IMAGES, LABELS[:2]), "Expected 3 labels in test_batch, got 2"),
        (pickled_now(IMAGES, [0, 1, 10]), r"Expected labels in 0\.\.9 in test_batch"),
        (pickled_now(IMAGES, [0, 1, -1]), r"Expected labels in 0\.\.9 in test_batch"),
    ],
)
def test_a_batch_of_another_kind_is_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as refusal:
        parse_cifar_batch(content, "test_batch", 12, 10)
    assert "test_batch" in str(refusal.value)


def test_the_official_batches_lie_in_memory_once(user_data: Path) -> None:
    conf: Any = OmegaConf.to_container(OmegaConf.load(CONF))
    dataset = instantiate(conf["dataset"])
    if not (user_data / "cifar-10-batches-py").is_dir():
        pytest.skip(f"{user_data} holds no cifar-10-batches-py")
    private, _ = dataset.load(user_data)
    assert private.features.untyped_storage().nbytes() == 50_000 * 3 * 32 * 32
