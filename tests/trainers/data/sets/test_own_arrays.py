"""The user's own arrays: bounded by the declaration, refused with the index of the first bad record."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.sets.own_arrays import Npz

NPZ = Npz(
    name="scans",
    records=3,
    test_records=0,
    shape=(1, 2),
    classes=2,
    unit="record",
    path="scans.npz",
    features="x",
    labels="y",
    bounds=(-10, 10),
)
UNITS: dict[str, Any] = {"unit": "patient", "units": 2, "contribution_cap": 1}
FEATURES = np.array([[[0, 5]], [[-10, 10]], [[-99, 99]]])
LABELS = np.array([0, 1, 1])


def written(folder: Path, x: Any = FEATURES, y: Any = LABELS, **others: Any) -> Path:
    np.savez(folder / "scans.npz", x=x, y=y, **others)
    return folder


@pytest.mark.parametrize("kind", ["int64", "float32", "float64", ">f4", "int8"])
def test_numbers_of_any_kind_are_clamped_and_scaled(tmp_path: Path, kind: str) -> None:
    private, public = NPZ.load(written(tmp_path, FEATURES.astype(kind)))
    assert public is None
    assert private.features.dtype == torch.float32
    expected = torch.tensor([[[0.5, 0.75]], [[0, 1]], [[0, 1]]])
    assert torch.equal(private.inputs(slice(0, 3), "cpu"), expected)
    assert private.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("low", [0, -255])
def test_images_stay_bytes(tmp_path: Path, low: int) -> None:
    images = np.array([[[0, 51]], [[102, 255]]], dtype=np.uint8)
    private, _ = dataclasses.replace(NPZ, bounds=(low, 255)).load(written(tmp_path, images, LABELS[:2]))
    assert private.features.dtype == torch.uint8
    expected = (torch.tensor([[[0, 51.0]], [[102, 255]]]) - low) / (255 - low)
    assert torch.allclose(private.inputs(slice(0, 2), "cpu"), expected)
    narrow, _ = dataclasses.replace(NPZ, bounds=(0, 102)).load(written(tmp_path, images, LABELS[:2]))
    assert torch.allclose(narrow.inputs(slice(0, 2), "cpu"), torch.tensor([[[0, 0.5]], [[1, 1]]]))


def test_the_features_are_recognised_under_any_name_key_and_compression(tmp_path: Path) -> None:
    known = NPZ.verify(written(tmp_path))
    np.savez_compressed(tmp_path / "other.npz", more=LABELS, images=FEATURES, truth=1 - LABELS)
    other = dataclasses.replace(NPZ, name="other", path="other.npz", features="images", labels="truth", bounds=(0, 1))
    assert other.verify(tmp_path) == known
    assert NPZ.verify(written(tmp_path, FEATURES[::-1])) != known
    assert NPZ.verify(written(tmp_path, FEATURES.astype(float))) != known


def test_an_absolute_path_needs_no_folder_and_no_records_are_fine(tmp_path: Path) -> None:
    folder = written(tmp_path, np.empty((0, 1, 2)), np.empty(0, dtype=int))
    absolute = dataclasses.replace(NPZ, path=str(folder / "scans.npz"))
    assert len(absolute.load(None)[0]) == 0
    assert absolute.verify(None)


def test_an_absent_file_is_one_sentence_with_the_next_step(tmp_path: Path) -> None:
    for look in (NPZ.locate, NPZ.verify, NPZ.load):
        with pytest.raises(BadInput, match=rf"^scans needs {tmp_path}/scans\.npz: put it there, or say data="):
            look(tmp_path)


def changed(index: tuple[int, ...], value: float) -> np.ndarray:
    features = np.zeros((9000, 1, 2))
    features[index] = value
    return features


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": changed((8000, 0, 1), np.nan), "y": np.zeros(9000, int)}, r"x in .* finite .* at index 8000\.$"),
        ({"x": changed((7, 0, 0), -np.inf), "y": np.zeros(9000, int)}, r"x in .* finite .* at index 7\.$"),
        ({"x": FEATURES.astype(complex)}, r"x in scans\.npz to hold real numbers, got complex128\.$"),
        ({"x": FEATURES.astype(str)}, r"x in scans\.npz to hold real numbers, got <U"),
        (
            {"x": FEATURES.astype(object)},
            r"scans\.npz to be .*: x has Python objects.*: save it with a type",
        ),
        ({"x": FEATURES[:, 0]}, r"x in scans\.npz of shape \[n, 1, 2\], got \[3, 2\]\.$"),
        ({"x": 5}, r"x in scans\.npz of shape \[n, 1, 2\], got \[\]\.$"),
        ({"y": np.array([0, 2, 1])}, r"y in scans\.npz in 0\.\.1, got 2 at index 1\.$"),
        ({"y": np.array([0, 1, -1])}, r"y in scans\.npz in 0\.\.1, got -1 at index 2\.$"),
        ({"y": np.array([0, 1.5, 1])}, r"y in scans\.npz to hold whole numbers, got float64\.$"),
        ({"y": LABELS[:2]}, r"y in scans\.npz of shape \[3\], as many as features, got \[2\]\.$"),
        ({"y": LABELS[:, None]}, r"y in scans\.npz of shape \[3\], as many as features, got \[3, 1\]\.$"),
    ],
)
def test_wrong_arrays_are_refused_before_anything_is_charged(
    tmp_path: Path, arrays: dict[str, Any], sentence: str
) -> None:
    folder = written(tmp_path, **arrays)
    for look in (NPZ.verify, NPZ.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}"):
            look(folder)


def test_a_wrong_key_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    wrong = dataclasses.replace(NPZ, labels="target")
    with pytest.raises(BadInput, match=r"^Expected target among the arrays of scans\.npz, got x, y\.$"):
        wrong.verify(written(tmp_path))
    with (tmp_path / "scans.npz").open("wb") as stream:
        np.save(stream, FEATURES)
    with pytest.raises(BadInput, match=r"^Expected scans\.npz to be .*: one array .* numpy\.savez writes several\.$"):
        NPZ.verify(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "overwritten", "text", "empty"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, damage: str) -> None:
    file = written(tmp_path, np.zeros((500, 1, 2)), np.zeros(500, int)) / "scans.npz"
    content = file.read_bytes()
    damaged = {
        "cut": content[:3000],
        "overwritten": content[:2000] + b"\xff" * 50 + content[2050:],
        "text": b"x,y\n1,2\n",
        "empty": b"",
    }
    file.write_bytes(damaged[damage])
    with pytest.raises(BadInput, match=r"^Expected scans\.npz to be a whole \.npz file of numbers, got: "):
        NPZ.verify(tmp_path)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "scans.npy", np.array([Path()], dtype=object), allow_pickle=True)
    (tmp_path / "scans.npy").rename(tmp_path / "scans.npz")
    with pytest.raises(BadInput, match=r"^Expected scans\.npz to be a whole \.npz file of numbers, got: "):
        NPZ.verify(tmp_path)


@pytest.mark.parametrize("who", [["P1", " P2", "P1"], [7, 8, 7]])
def test_the_units_are_the_arrays_values_and_are_capped(tmp_path: Path, who: list[Any]) -> None:
    by_patient = dataclasses.replace(NPZ, unit_column="who", **UNITS)
    private, _ = by_patient.load(written(tmp_path, who=np.array(who)))
    assert private.units is not None
    assert private.units.names == tuple(str(one).strip().encode() for one in who[:2])
    assert len(private) == 2, "one of the two of the first"
    assert by_patient.verify(tmp_path) == NPZ.verify(tmp_path)


@pytest.mark.parametrize(
    ("who", "sentence"),
    [
        (["P1", " ", "P2"], r"who in scans\.npz to say whose record it is, got nothing at index 1\.$"),
        ([1.0, 2.0, 2.0], r"who in scans\.npz to hold texts or whole numbers, got float64\.$"),
        (["P1", "P2"], r"who in scans\.npz of shape \[3\], as many as features, got \[2\]\.$"),
    ],
)
def test_records_without_a_unit_are_refused(tmp_path: Path, who: list[Any], sentence: str) -> None:
    by_patient = dataclasses.replace(NPZ, unit_column="who", **UNITS)
    for look in (by_patient.verify, by_patient.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}"):
            look(written(tmp_path, who=np.array(who)))
    with pytest.raises(BadInput, match=r"^Expected who among the arrays of scans\.npz, got x, y\.$"):
        by_patient.verify(written(tmp_path))


@pytest.mark.parametrize(
    "wrong",
    [
        {"unit_column": "x", **UNITS},
        {"unit": "patient"},
        {"units": 3},
        {"bounds": (1, 0)},
        {"bounds": (0, float("nan"))},
        {"bounds": 5},
        {"path": ""},
        {"features": None},
        {"features": "y"},
        {"test_records": 1},
        {"shape": ()},
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}="):
        dataclasses.replace(NPZ, **wrong)
