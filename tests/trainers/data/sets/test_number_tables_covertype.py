"""Covertype's layout: bounds of the declaration, seven types from 0 on, and refusals with line and column."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.official_files import Official
from dpsweep.trainers.data.sets.number_tables import COLUMNS, NUMBERS, WIDTH, Covertype

BOUNDS = dict.fromkeys(NUMBERS, (0.0, 100.0)) | {"vertical-distance-to-hydrology": (-50.0, 50.0)}
COVERTYPE = Covertype(
    name="covertype",
    records=3,
    test_records=0,
    shape=(WIDTH,),
    classes=7,
    unit="record",
    bounds=BOUNDS,
    files=Official(
        url="http://127.0.0.1/",
        folders=("covertype",),
        downloads={"covtype.data.gz": None},
        contents={"covtype.data": None},
    ),
)


def line(cover: int = 1, **changed: object) -> str:
    """Numbers 0, 10, ..., 90, area 2, soil 3."""
    cells: dict[str, object] = dict.fromkeys(COLUMNS, 0)
    cells |= {name: 10 * place for place, name in enumerate(NUMBERS)}
    cells |= {"wilderness-area-2": 1, "soil-type-3": 1, "cover-type": cover}
    cells |= {name.replace("_", "-"): value for name, value in changed.items()}
    return ",".join(map(str, cells.values()))


def written(folder: Path, *lines: str) -> Path:
    (folder / "covtype.data.gz").write_bytes(gzip.compress("\n".join((*lines, "")).encode()))
    return folder


def test_numbers_are_clamped_and_scaled_and_the_rest_is_kept(tmp_path: Path) -> None:
    private, public = COVERTYPE.load(written(tmp_path, line(1), line(7, elevation=-5, aspect=900), line(3)))
    assert public is None
    assert private.labels.tolist() == [0, 6, 2]
    scaled = [0, 0.1, 0.2, 0.3, 0.9, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert torch.allclose(private.features[0, :10], torch.tensor(scaled))
    assert private.features[1, :2].tolist() == [0, 1]
    assert np.flatnonzero(private.features[0, 10:]).tolist() == [1, 6]
    assert private.features.dtype == torch.float32


def test_a_records_inputs_do_not_depend_on_the_other_records(tmp_path: Path) -> None:
    lines = [line(1), line(7, elevation=77), line(3)]
    together = COVERTYPE.load(written(tmp_path, *lines))[0]
    alone = dataclasses.replace(COVERTYPE, records=1).load(written(tmp_path, lines[1]))[0]
    assert torch.equal(alone.features[0], together.features[1])


def test_the_whole_file_is_recognised(tmp_path: Path) -> None:
    lines = [line(1), line(2), line(3)]
    assert COVERTYPE.verify(written(tmp_path, *lines)) == (Content.from_chunks(["\n".join((*lines, "")).encode()]),)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (line(0), r"cover-type in line 2 of covtype\.data to be a whole number in 1\.\.7, got '0'"),
        (line(8), r"cover-type in line 2 of covtype\.data to be a whole number in 1\.\.7, got '8'"),
        (line(slope="nan"), r"slope in line 2 of covtype\.data to be a whole number, got 'nan'"),
        (line(slope="1.5"), r"slope in line 2 of covtype\.data to be a whole number, got '1\.5'"),
        (line(soil_type_40=2), r"soil-type-40 in line 2 of covtype\.data to be a whole number in 0\.\.1, got '2'"),
        (line()[:-2], r"55 values in line 2 of covtype\.data, got 54"),
        (line() + ",1", r"55 values in line 2 of covtype\.data, got 56"),
    ],
)
def test_a_wrong_line_is_refused_before_anything_is_charged(tmp_path: Path, wrong: str, sentence: str) -> None:
    folder = written(tmp_path, line(), wrong, line())
    for look in (COVERTYPE.verify, COVERTYPE.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}\\.$"):
            look(folder)


def test_a_file_that_lacks_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^Expected 3 records in covtype\.data, got 2 lines of them\.$"):
        COVERTYPE.verify(written(tmp_path, line(), line()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": (53,)},
        {"classes": 8},
        {"bounds": {"elevation": (0, 1)}},
        {"bounds": BOUNDS | {"slope": (1, 0)}},
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}"):
        dataclasses.replace(COVERTYPE, **wrong)  # type: ignore[arg-type]
