from __future__ import annotations

import dataclasses
import gzip
import hashlib
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.official_files import Official
from dpsweep.trainers.data.sets.images import IdxImages, IdxSubset, parse_idx

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(0)
IMAGES = {
    "train": RNG.integers(0, 256, (7, 4, 3), dtype=np.uint8),
    "t10k": RNG.integers(0, 256, (2, 4, 3), np.uint8),
}
LABELS = {"train": np.array([0, 1, 2, 2, 1, 0, 1], np.uint8), "t10k": np.array([2, 0], np.uint8)}


def idx(array: np.ndarray) -> bytes:
    """An array of bytes in the idx format."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def contents() -> dict[str, bytes]:
    return {f"{part}-images-idx3-ubyte": idx(IMAGES[part]) for part in IMAGES} | {
        f"{part}-labels-idx1-ubyte": idx(LABELS[part]) for part in LABELS
    }


def written(folder: Path, files: dict[str, bytes], shape: tuple[int, ...] = (1, 4, 3)) -> IdxImages:
    """A data set of these files, gzipped in the folder, with their own checksums as the official ones."""
    for name, content in files.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    sums = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    return IdxImages(
        name="tiny",
        records=7,
        test_records=2,
        shape=shape,
        classes=3,
        unit="record",
        scale=255.0,
        mean=0.0,
        std=1.0,
        files=Official(
            url="http://127.0.0.1/",
            folders=("tiny",),
            downloads={f"{n}.gz": "0" * 32 for n in sums},
            contents=sums,
        ),
    )


def test_the_training_images_are_private_and_the_test_images_public(tmp_path: Path) -> None:
    private, public = written(tmp_path, contents()).load(tmp_path)
    assert public is not None
    for records, part in ((private, "train"), (public, "t10k")):
        assert records.features.dtype == torch.uint8
        assert (records.features.numpy() == IMAGES[part][:, None]).all()
        assert (records.labels.numpy() == LABELS[part]).all()
        np.testing.assert_allclose(records.inputs(slice(None), "cpu"), IMAGES[part][:, None] / 255, atol=1e-6)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        (
            "train-images-idx3-ubyte",
            idx(IMAGES["train"])[:-1],
            "Expected 84 bytes of data in .*-images-.*, got 83",
        ),
        (
            "train-images-idx3-ubyte",
            idx(IMAGES["train"]) + b"x",
            "Expected 84 bytes of data in .*-images-.*, got 85",
        ),
        (
            "train-images-idx3-ubyte",
            idx(LABELS["train"]) + b"x" * 9,
            "Expected magic number 2051 in .*, got 2049",
        ),
        ("train-images-idx3-ubyte", b"", "Expected a header of 16 bytes in train-images-idx3-ubyte, got 0"),
        (
            "train-images-idx3-ubyte",
            idx(IMAGES["train"].reshape(7, 3, 4)),
            "Expected images of 4x3 in .*, got 3x4",
        ),
        ("train-labels-idx1-ubyte", idx(LABELS["train"][:6]), "Expected 7 labels in train-labels-.*, got 6"),
        ("train-labels-idx1-ubyte", idx(LABELS["train"] + np.uint8(1)), "Expected labels < 3 in .*, got 3"),
        ("t10k-labels-idx1-ubyte", idx(LABELS["t10k"])[:5], "Expected a header of 8 bytes in t10k-labels"),
        (
            "t10k-labels-idx1-ubyte",
            b"\x00\x00\x09\x01" + idx(LABELS["t10k"])[4:],
            "Expected magic number 2049",
        ),
    ],
)
def test_a_file_of_another_kind_is_one_sentence(tmp_path: Path, file: str, content: bytes, sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^{sentence}[^.]*\\.$"):
        written(tmp_path, {**contents(), file: content}).load(tmp_path)


def test_verifying_finds_a_damaged_file_without_parsing(tmp_path: Path) -> None:
    dataset = written(tmp_path, contents())
    dataset.verify(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS["train"][::-1])))
    dataset.locate(tmp_path)
    with pytest.raises(BadInput, match=r"Expected md5=\w+ of the contents of .*/train-labels-idx1-ubyte\.gz, got"):
        dataset.verify(tmp_path)


def test_an_empty_file_of_the_right_kind_has_no_records() -> None:
    assert parse_idx(idx(IMAGES["train"][:0]), "train-images-idx3-ubyte", (4, 3)).shape == (0, 4, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": 0},
        {"records": 7.5},
        {"test_records": -1},
        {"classes": 0},
        {"shape": ()},
        {"shape": (1, 0, 3)},
        {"scale": 0.0},
        {"std": 0.0},
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"Expected (dataset\\.)?{next(iter(wrong))}"):
        dataclasses.replace(written(tmp_path, contents()), **wrong)  # type: ignore[arg-type]


def subset(folder: Path, **fields: object) -> IdxSubset:
    """The images with labels 2 and 0 of the files that `written` writes."""
    whole = written(folder, contents())
    own = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
    return IdxSubset(**{**own, "records": 4, "classes": 2, "kept": (2, 0), "left_out": IdxSubset.leaves_out, **fields})


def test_a_subset_holds_the_images_of_its_labels_numbered_anew(tmp_path: Path) -> None:
    private, public = subset(tmp_path).load(tmp_path)
    assert public is not None
    assert (private.features.numpy() == IMAGES["train"][[0, 2, 3, 5], None]).all()
    assert private.labels.tolist() == [1, 0, 0, 1]
    assert (public.features.numpy() == IMAGES["t10k"][:, None]).all()
    assert public.labels.tolist() == [0, 1]
    assert subset(tmp_path).preprocessing["labels"] == ["2", "0"]


def test_a_subset_of_known_files_is_no_new_data_set(tmp_path: Path) -> None:
    whole = written(tmp_path, contents())
    assert whole.verify(tmp_path) == subset(tmp_path).verify(tmp_path)


@pytest.mark.parametrize("kept", [(2,), (2, 2), (0, 1, 2), (2, 256), (-1, 2), ("0", "2")])
def test_a_subset_declares_as_many_labels_as_classes(tmp_path: Path, kept: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"^Expected dataset\.kept=.* to be 2 different labels of 0\.\.255"):
        subset(tmp_path, kept=kept)
