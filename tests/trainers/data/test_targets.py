"""Numbers as targets: clamped to the declared range, scaled to [0, 1], and refused before anything is charged."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.sets.generated import Generated
from dpsweep.trainers.data.sets.own_arrays import Npz
from dpsweep.trainers.data.sets.own_tables import Table
from dpsweep.trainers.data.targets import width_of_target_range
from dpsweep.trainers.declarations.losses import BinaryCrossEntropy, CrossEntropy, check_labels_fit_loss

TABLE = Table(
    name="visits",
    records=4,
    shape=(1,),
    classes=1,
    unit="record",
    file="visits.csv",
    label="pressure",
    target=(100, 200),
    target_unit="mmHg",
    bounds={"age": (0, 100)},
)
NPZ = Npz(
    name="scans",
    records=3,
    test_records=0,
    shape=(1,),
    classes=1,
    unit="record",
    path="scans.npz",
    features="x",
    labels="y",
    bounds=(0, 1),
    target=(-1, 1),
)


def write_visits(folder: Path, *pressures: object) -> Path:
    (folder / "visits.csv").write_text("age,pressure\n" + "".join(f"50,{pressure}\n" for pressure in pressures))
    return folder


def write_scans(folder: Path, labels: Any) -> Path:
    np.savez(folder / "scans.npz", x=np.zeros((3, 1)), y=np.asarray(labels))
    return folder


def test_targets_of_a_table_are_clamped_and_scaled(tmp_path: Path) -> None:
    records, _ = TABLE.load(write_visits(tmp_path, 100, "125.5", 1e9, -3))
    assert records.labels.dtype == torch.float32
    assert torch.allclose(records.labels, torch.tensor([0.0, 0.255, 1.0, 0.0]))
    assert width_of_target_range(TABLE) == 100
    assert TABLE.preprocessing["target"] == [100.0, 200.0]
    assert TABLE.preprocessing["target_unit"] == "mmHg"
    assert TABLE.preprocessing["labels"] is None


@pytest.mark.parametrize("kind", ["int64", "float32", "float64", ">f4", "int8", "bool"])
def test_targets_of_arrays_are_clamped_and_scaled(kind: str, tmp_path: Path) -> None:
    records, _ = NPZ.load(write_scans(tmp_path, np.array([0, 1, 1]).astype(kind)))
    assert records.labels.dtype == torch.float32
    assert records.labels.tolist() == [0.5, 1.0, 1.0]
    assert NPZ.preprocessing["target"] == [-1.0, 1.0]
    assert "target_unit" not in NPZ.preprocessing


@pytest.mark.parametrize("cell", ["", "high", "nan", "inf", "1e999"])
def test_a_cell_that_is_no_number_is_refused_before_the_charge(cell: str, tmp_path: Path) -> None:
    got = f"'{cell}'" if cell else r"an empty cell\. A label is never filled in: leave such rows out of the file"
    for read in (TABLE.verify, TABLE.load):
        with pytest.raises(BadInput, match=rf"^Expected pressure in line 3 of visits\.csv .*got {got}\."):
            read(write_visits(tmp_path, 120, cell, 130))


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([0.5, math.nan, 0], r"^Expected y in scans\.npz to be finite numbers, got nan at index 1\.$"),
        ([0.5, 0, -math.inf], r"^Expected y in scans\.npz to be finite numbers, got -inf at index 2\.$"),
        (["a", "b", "c"], r"^Expected y in scans\.npz to hold real numbers, got <U1\.$"),
        ([[1.0], [2.0], [3.0]], r"^Expected y in scans\.npz of shape \[3\], as many as features, got \[3, 1\]\.$"),
        ([1.0, 2.0], r"^Expected y in scans\.npz of shape \[3\], as many as features, got \[2\]\.$"),
    ],
)
def test_arrays_of_other_targets_are_refused_before_the_charge(labels: Any, sentence: str, tmp_path: Path) -> None:
    for read in (NPZ.verify, NPZ.load):
        with pytest.raises(BadInput, match=sentence):
            read(write_scans(tmp_path, labels))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            {"classes": 2},
            r"^Expected dataset\.classes=2 == 1 with dataset\.target=\[100,200\]: the label is a number\.$",
        ),
        ({"target": (200, 100)}, r"^Expected dataset\.target=.* to be two numbers, finite and rising\.$"),
        ({"target": (0, math.inf)}, r"^Expected dataset\.target="),
        ({"target": 3.0}, r"^Expected dataset\.target=3\.0 to be two numbers, finite and rising\.$"),
        ({"target": None, "target_unit": ""}, r"^Expected either dataset\.labels=None, .* or dataset\.target=None"),
        ({"labels": ("no", "yes")}, r"^Expected either dataset\.labels=\('no', 'yes'\), .* or dataset\.target="),
        ({"target_unit": 3}, r"^Expected dataset\.target_unit=3 to be a text"),
        (
            {"target": None, "labels": ("no", "yes"), "classes": 2},
            r"^Expected dataset\.target_unit=mmHg to be empty without dataset\.target\.$",
        ),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(TABLE, **wrong)


def test_numbers_in_arrays_need_a_range() -> None:
    with pytest.raises(ValueError, match=r"^Expected dataset\.target, the public range of labels that are numbers"):
        dataclasses.replace(NPZ, target=None)


def test_generated_targets_lie_in_the_range_and_the_content_of_others_is_as_it_was() -> None:
    plain = Generated(name="rehearsal", records=50, test_records=0, shape=(3,), classes=1, unit="record")
    scaled = dataclasses.replace(plain, target=(0.0, 10.0))
    labels = scaled.load(None)[0].labels
    assert 0 <= float(labels.min()) < float(labels.max()) <= 1
    assert float(plain.load(None)[0].labels.min()) < 0
    assert plain.verify(None) != scaled.verify(None)


SYMPTOMS = dataclasses.replace(
    TABLE, label=("fever", "cough", "rash"), labels=("no", "yes"), target=None, target_unit="", classes=3
)
MARKS = dataclasses.replace(NPZ, target=None, classes=2, label_names=("left", "right"))


def write_symptoms(folder: Path, *rows: str) -> Path:
    (folder / "visits.csv").write_text("age,fever,cough,rash\n" + "".join(f"50,{row}\n" for row in rows))
    return folder


def test_several_labels_of_a_table_are_zeros_and_ones(tmp_path: Path) -> None:
    records, _ = SYMPTOMS.load(write_symptoms(tmp_path, "yes,no,no", "no,yes,yes"))
    assert records.labels.dtype == torch.float32
    assert records.labels.tolist() == [[1, 0, 0], [0, 1, 1]]
    assert records.select(np.array([1])).labels.tolist() == [[0, 1, 1]]
    assert len({digest.tobytes() for digest in records.digest_of_each_record()}) == 2
    assert SYMPTOMS.label_names == ("fever", "cough", "rash")
    form = SYMPTOMS.preprocessing
    assert (form["label_names"], form["labels"], form["output"]) == (
        ["fever", "cough", "rash"],
        ["no", "yes"],
        "labels",
    )
    with pytest.raises(
        BadInput,
        match=r"^Expected cough in line 2 of visits\.csv to be a declared value, got 'maybe'\. Known: 'no', 'yes'\.$",
    ):
        SYMPTOMS.verify(write_symptoms(tmp_path, "yes,maybe,no"))


@pytest.mark.parametrize("kind", ["int64", "uint8", "float32", "bool"])
def test_several_labels_of_arrays_are_zeros_and_ones(kind: str, tmp_path: Path) -> None:
    labels = np.array([[0, 1], [1, 1], [0, 0]])
    records, _ = MARKS.load(write_scans(tmp_path, labels.astype(kind)))
    assert records.labels.dtype == torch.float32
    assert records.labels.tolist() == labels.tolist()
    assert MARKS.preprocessing["label_names"] == ["left", "right"]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([[0, 1], [2, 0], [0, 0]], r"^Expected y in scans\.npz to be 0 or 1, got \[2, 0\] at index 1\.$"),
        ([[0, 1], [1, 0], [0, math.nan]], r"^Expected y in scans\.npz to be 0 or 1, got \[0\.0, nan\] at index 2\.$"),
        ([0, 1, 1], r"^Expected y in scans\.npz of shape \[3, 2\], a column for each label, got \[3\]\.$"),
        ([["a", "b"]] * 3, r"^Expected y in scans\.npz to be 0 or 1, got \['a', 'b'\] at index 0\.$"),
    ],
)
def test_other_labels_are_refused_before_the_charge(labels: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=sentence):
        MARKS.verify(write_scans(tmp_path, labels))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"classes": 2}, r"^Expected dataset\.classes=2 == 3 >= 2, as many as label names\.$"),
        ({"label": ("fever",), "classes": 1}, r"^Expected dataset\.classes=1 == 1 >= 2, as many as label names\.$"),
        ({"label": ("fever", "fever", "rash")}, r"^Expected dataset\.label_names=.* to be distinct\.$"),
        ({"label": ("fever", "age", "rash")}, r"to be distinct\.$"),
        ({"labels": ("no", "yes", "maybe")}, r"^Expected dataset\.labels=.* to be the two values of each label"),
        ({"labels": None, "target": (0, 1)}, r"^Expected dataset\.target=null where a record has several labels\.$"),
    ],
)
def test_several_labels_that_make_no_sense_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(SYMPTOMS, **wrong)


def test_several_labels_go_with_their_loss_and_with_no_other() -> None:
    check_labels_fit_loss(BinaryCrossEntropy(), SYMPTOMS)
    with pytest.raises(ValueError, match=r"^Expected loss=binary_cross_entropy with dataset\.name=visits"):
        check_labels_fit_loss(CrossEntropy(), SYMPTOMS)
    with pytest.raises(ValueError, match=r"^Expected dataset\.name=visits to have several labels per record"):
        check_labels_fit_loss(BinaryCrossEntropy(), TABLE)
