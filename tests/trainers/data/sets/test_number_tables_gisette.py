"""Gisette's layout, by files of that layout; the official ones are not at hand, so no official number is asserted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.official_files import Official
from dpsweep.trainers.data.sets.number_tables import Gisette

FILES = {
    "GISETTE/gisette_train.data": "550 0 999 \n0 495 0 \n1 2 3 \n",
    "GISETTE/gisette_train.labels": "1\n-1\n1\n",
    "GISETTE/gisette_valid.data": "0 0 999 \n9 9 9 \n",
    "gisette_valid.labels": "-1\n1\n",
}
NAMES = [Path(name).name for name in FILES]
GISETTE = Gisette(
    name="gisette",
    records=3,
    test_records=2,
    shape=(3,),
    classes=2,
    unit="record",
    files=Official(
        url="http://127.0.0.1/",
        folders=("gisette/GISETTE", "gisette"),
        downloads=dict.fromkeys(FILES),
        contents=dict.fromkeys(NAMES),
    ),
)


def written(folder: Path, **changed: str) -> Path:
    """The official layout below gisette/; what is changed is named by the end of its file's name."""
    for name, content in FILES.items():
        (folder / "gisette" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "gisette" / name).write_text(changed.get(name.rpartition("gisette_")[2].replace(".", "_"), content))
    return folder


def test_the_official_layout_is_read_and_scaled(tmp_path: Path) -> None:
    private, public = GISETTE.load(written(tmp_path))
    assert public is not None
    assert private.features.dtype == torch.float32
    expected = torch.tensor([[550, 0, 999], [0, 495, 0], [1, 2, 3]]) / 999
    assert torch.allclose(private.inputs(slice(0, 3), "cpu"), expected)
    assert private.labels.tolist() == [1, 0, 1]
    assert public.inputs(slice(0, 2), "cpu")[0].tolist() == [0, 0, 1]
    assert public.labels.tolist() == [0, 1]


def test_the_private_files_are_recognised_and_the_public_ones_are_not(tmp_path: Path) -> None:
    private = [Content.from_chunks([FILES[f"GISETTE/gisette_train.{kind}"].encode()]) for kind in ("data", "labels")]
    assert list(GISETTE.verify(written(tmp_path))) == private
    assert list(GISETTE.verify(written(tmp_path, valid_data="1 1 1 \n2 2 2 \n"))) == private


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"train_data": "1 2 3 \n1 1000 3 \n1 2 3 \n"},
            r"feature 2 in line 2 of gisette_train\.data .* 0\.\.999, got '1000'",
        ),
        ({"train_data": "1 2 3 \n1 nan 3 \n1 2 3 \n"}, r"feature 2 in line 2 of gisette_train\.data .* whole number"),
        ({"train_data": "1 2 3 \n1 2 \n1 2 3 \n"}, r"3 values in line 2 of gisette_train\.data, got 2"),
        ({"train_data": "1 2 3 \n1 2  \n1 2 3 \n"}, r"3 values in line 2 of gisette_train\.data, got 2"),
        (
            {"train_data": "1 2 3 \n1  2\n1 2 3 \n"},
            r"feature 2 in line 2 of gisette_train\.data .* whole number in 0\.\.999, got ''",
        ),
        ({"train_data": "1 2 3 \n1 2 3 \n"}, r"3 records in gisette_train\.data, got 2"),
        ({"train_labels": "1\n0\n1\n"}, r"label in line 2 of gisette_train\.labels to be -1 or 1, got 0"),
        ({"train_labels": "1\n-1\n2\n"}, r"label in line 3 of gisette_train\.labels .* -1\.\.1, got '2'"),
        ({"train_labels": "1\n-1\n"}, r"3 records in gisette_train\.labels, got 2"),
        ({"valid_data": "1 2 3 \n1 -2 3 \n"}, r"feature 2 in line 2 of gisette_valid\.data .* 0\.\.999, got '-2'"),
        ({"valid_labels": "1\n\n"}, r"2 records in gisette_valid\.labels, got 1"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_charged(
    tmp_path: Path, changed: dict[str, str], sentence: str
) -> None:
    folder = written(tmp_path, **changed)
    for look in (GISETTE.verify, GISETTE.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}"):
            look(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (written(tmp_path) / "gisette" / "gisette_valid.labels").unlink()
    with pytest.raises(
        BadInput, match=r"^gisette is incomplete .* put gisette_valid\.labels \(or as \.gz\) there too\.$"
    ):
        GISETTE.verify(tmp_path)


@pytest.mark.parametrize("wrong", [{"shape": (1, 3)}, {"classes": 3}])
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}="):
        dataclasses.replace(GISETTE, **wrong)  # type: ignore[arg-type]


def test_a_records_inputs_do_not_depend_on_the_other_records(tmp_path: Path) -> None:
    together, _ = GISETTE.load(written(tmp_path))
    one = dataclasses.replace(GISETTE, records=1)
    alone, _ = one.load(written(tmp_path, train_data="0 495 0 \n", train_labels="-1\n"))
    assert np.array_equal(alone.features[0], together.features[1])
