from __future__ import annotations

import dataclasses
import gzip
import hashlib

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.sets.images import EMBEDDED, EmbeddedImages, parse_image_table

DIGITS = EmbeddedImages(
    name="digits",
    records=1797,
    test_records=0,
    shape=(1, 8, 8),
    classes=10,
    unit="record",
    distribution="scikit-learn",
    file="sklearn/datasets/data/digits.csv.gz",
    md5="a0339c30a8a5312a1b6f9e5c719dcce5",
    pool=1,
    scale=16.0,
    mean=0.0,
    std=1.0,
)


TABLES = {
    "digits.csv.gz": "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
    "mnist_5k.csv.gz": "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053",
}


def test_the_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    private, public = DIGITS.load(None)
    assert public is None
    assert private.features.dtype == torch.uint8
    assert (private.features.numpy().reshape(1797, 64) == images).all()
    assert (private.labels.numpy() == labels).all()
    assert private.inputs(slice(None), "cpu").max() == 1


@pytest.mark.parametrize("pool", [2, 4])
def test_pooling_averages_squares_of_each_image_alone(pool: int) -> None:
    side = 8 // pool
    raw = DIGITS.load(None)[0].features.numpy()[:, 0].astype(np.float64)
    pooled = dataclasses.replace(DIGITS, pool=pool, shape=(1, side, side)).load(None)[0].features
    assert pooled.dtype == torch.float32
    assert pooled.shape == (1797, 1, side, side)
    for row in range(side):
        for column in range(side):
            square = raw[:, row * pool : (row + 1) * pool, column * pool : (column + 1) * pool]
            assert (pooled[:, 0, row, column].numpy() == square.mean((1, 2))).all()


def test_all_the_images_are_private_and_recognised_decompressed() -> None:
    table = gzip.decompress((EMBEDDED / "digits.csv.gz").read_bytes())
    assert DIGITS.verify(None) == (Content.from_chunks([table]),)


def test_the_tables_are_those_that_other_packages_carry() -> None:
    """By the SHA-256 of their contents; with another one every ledger would take them for other data."""
    licences = (EMBEDDED / "LICENSES.txt").read_text()
    assert set(TABLES) == {path.name for path in EMBEDDED.glob("*.gz")}
    for name, digest in TABLES.items():
        assert hashlib.sha256(gzip.decompress((EMBEDDED / name).read_bytes())).hexdigest() == digest
        assert digest in licences


def test_a_file_with_another_checksum_is_refused_before_it_is_parsed() -> None:
    other = dataclasses.replace(DIGITS, md5="0" * 32)
    other.locate(None)
    for read in (other.verify, other.load):
        with pytest.raises(BadInput, match=r"^Expected md5=0+ of the contents of .*digits\.csv\.gz, got a0339c"):
            read(None)


@pytest.mark.parametrize("file", ["sklearn/no_such_file.csv.gz", "../LICENSES.csv.gz", ""])
def test_a_missing_table_is_named(file: str) -> None:
    sentence = f"^Expected dataset.file={file} to be one of the tables of dpsweep: digits.csv.gz, mnist_5k.csv.gz.$"
    with pytest.raises(BadInput, match=sentence):
        dataclasses.replace(DIGITS, file=file).locate(None)


@pytest.mark.parametrize("wrong", [{"pool": 0}, {"pool": 1.5}, {"shape": (8, 8)}, {"shape": (3, 8, 8)}])
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}="):
        dataclasses.replace(DIGITS, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"1,2,3,4,0\n1,2,3\n", "to hold lines of numbers"),
        (b"1,2,3,4,0\n1,2,3,256,0\n", "to hold lines of numbers"),
        (b"1,2,three,4,0\n", "to hold lines of numbers"),
        (b"1,2,3,0\n", "Expected 4 pixels and a label in each line of tiny.csv, got 4 values"),
        (b"1,2,3,4,2\n", "Expected labels < 2 in tiny.csv, got 2"),
    ],
)
def test_a_table_of_another_kind_is_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        parse_image_table(content, "tiny.csv", 4, 2)
