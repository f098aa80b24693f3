from __future__ import annotations

import dataclasses
import gzip
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.sets.images import EmbeddedImages, parse_image_table

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
    file = Path(str(distribution("scikit-learn").locate_file(DIGITS.file)))
    assert DIGITS.verify(None) == (Content.from_chunks([gzip.decompress(file.read_bytes())]),)


def test_a_file_with_another_checksum_is_refused_before_it_is_parsed() -> None:
    other = dataclasses.replace(DIGITS, md5="0" * 32)
    other.locate(None)
    for read in (other.verify, other.load):
        with pytest.raises(BadInput, match=r"^Expected md5=0+ of the contents of .*digits\.csv\.gz, got a0339c"):
            read(None)


@pytest.mark.parametrize("wrong", [{"distribution": "no-such-distribution"}, {"file": "sklearn/no_such_file.csv.gz"}])
def test_a_missing_distribution_is_named(wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=r"^digits needs .* of .*: pip install .*\.$"):
        dataclasses.replace(DIGITS, **wrong).locate(None)  # type: ignore[arg-type]


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
