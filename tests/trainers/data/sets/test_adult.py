from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.official_files import Official
from dpsweep.trainers.data.sets.adult import (
    CATEGORIES,
    COLUMNS,
    NUMBERS,
    WIDTH,
    Adult,
    encode_rows_as_inputs,
    parse_rows_by_line_number,
)

if TYPE_CHECKING:
    from pathlib import Path

BOUNDS = {
    "age": (17.0, 90.0),
    "fnlwgt": (0.0, 1500000.0),
    "education-num": (1.0, 16.0),
    "capital-gain": (0.0, 99999.0),
    "capital-loss": (0.0, 5000.0),
    "hours-per-week": (1.0, 99.0),
}
FIRST = "17, Private, 0, 11th, 7, Never-married, Sales, Own-child, White, Female, 0, 0, 50, Cuba, <=50K"
SECOND = "90, State-gov, 3000000, Masters, 16, Divorced, Tech-support, Wife, Other, Male, 99999, 10, 1, Laos, >50K"
MISSING = "40, ?, 100, 11th, 7, Never-married, ?, Own-child, White, Female, 0, 0, 40, Cuba, >50K"
DATA = f"{FIRST}\n{MISSING}\n{SECOND}\n\n".encode()
TEST = f"|1x3 Cross validator\n{SECOND}.\n{MISSING}.\n\n".encode()


def written(folder: Path, data: bytes = DATA, test: bytes = TEST, left_out: str | None = Adult.leaves_out) -> Adult:
    """A data set of these two files, with their own checksums as the official ones."""
    files = {"adult.data": data, "adult.test": test}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sums = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    return Adult(
        name="adult",
        records=30162,
        test_records=15060,
        shape=(WIDTH,),
        classes=2,
        unit="record",
        left_out=left_out,
        bounds=BOUNDS,
        files=Official(url="http://127.0.0.1/", folders=("adult",), downloads=sums, contents=sums),
    )


def columns_of(key: str) -> slice:
    """Where an attribute stands among the inputs."""
    widths = [len(CATEGORIES.get(column, (1,))) for column in COLUMNS]
    start = sum(widths[: COLUMNS.index(key)])
    return slice(start, start + widths[COLUMNS.index(key)])


def test_the_quirks_of_both_files_are_read(tmp_path: Path) -> None:
    private, public = written(tmp_path).load(tmp_path)
    assert public is not None
    assert private.labels.tolist() == [0, 1]
    assert public.labels.tolist() == [1]
    assert private.features.dtype == torch.float32
    assert torch.equal(public.features[0], private.features[1])


def test_numbers_are_clamped_to_the_public_bounds_and_scaled(tmp_path: Path) -> None:
    features = written(tmp_path).load(tmp_path)[0].features
    scaled = {key: features[:, columns_of(key)].flatten().tolist() for key in NUMBERS}
    assert scaled["age"] == [0.0, 1.0]
    assert scaled["fnlwgt"] == [0.0, 1.0]
    assert scaled["education-num"] == pytest.approx([6 / 15, 1.0])
    assert scaled["capital-gain"] == [0.0, 1.0]
    assert scaled["capital-loss"] == pytest.approx([0.0, 10 / 5000])
    assert scaled["hours-per-week"] == pytest.approx([49 / 98, 0.0])


def test_categories_are_one_hot_over_the_published_lists(tmp_path: Path) -> None:
    features = written(tmp_path).load(tmp_path)[0].features
    for key, values in {"workclass": ("Private", "State-gov"), "native-country": ("Cuba", "Laos")}.items():
        block = features[:, columns_of(key)]
        assert block.sum(1).tolist() == [1.0, 1.0]
        assert [CATEGORIES[key][place] for place in block.argmax(1)] == list(values)
    assert features.shape == (2, WIDTH)
    assert {key: len(values) for key, values in CATEGORIES.items()} == {
        "workclass": 8,
        "education": 16,
        "marital-status": 7,
        "occupation": 14,
        "relationship": 6,
        "race": 5,
        "sex": 2,
        "native-country": 41,
    }


def test_rows_with_a_missing_value_are_kept_where_no_rule_leaves_them_out(tmp_path: Path) -> None:
    dataset = written(tmp_path, left_out=None)
    private, public = dataset.load(tmp_path)
    assert public is not None
    assert private.labels.tolist() == [0, 1, 1]
    assert public.labels.tolist() == [1, 1]
    for key in ("workclass", "occupation"):
        assert private.features[1, columns_of(key)].sum() == 0, "a missing category is all zeros"
    assert private.features[1, columns_of("education")].sum() == 1
    columns = {column["name"]: column for column in dataset.preprocessing["columns"]}
    assert columns["workclass"]["unlisted"] == "zeros", "a released model reads it likewise"
    complete = written(tmp_path).load(tmp_path)[0]
    assert torch.equal(complete.features, private.features[[0, 2]])
    with pytest.raises(ValueError, match=r"Expected dataset\.left_out='short rows' to be null or 'rows with a missing"):
        written(tmp_path, left_out="short rows")


def test_a_records_inputs_do_not_depend_on_the_other_records(tmp_path: Path) -> None:
    together = written(tmp_path).load(tmp_path)[0]
    alone = written(tmp_path, data=f"{FIRST}\n".encode()).load(tmp_path)[0]
    assert torch.equal(alone.features[0], together.features[0])


def test_no_complete_row_is_no_record(tmp_path: Path) -> None:
    private, _ = written(tmp_path, data=f"{MISSING}\n\n".encode()).load(tmp_path)
    assert private.features.shape == (0, WIDTH)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("17, Private, 0", r"Expected 15 values in line 2 of adult\.data, got 3"),
        (FIRST + ", more", r"Expected 15 values in line 2 of adult\.data, got 16"),
        (FIRST.replace("17", "old"), r"Expected age in line 2 of adult\.data to be a finite number, got 'old'"),
        (FIRST.replace("17", "nan"), r"Expected age in line 2 of adult\.data to be a finite number, got 'nan'"),
        (
            FIRST.replace("Cuba", "Utopia"),
            r"Expected native-country in line 2 of adult\.data to be a declared value, got 'Utopia'",
        ),
        (FIRST.replace("<=50K", "50K"), r"Expected income in line 2 of adult\.data to be a declared value, got '50K'"),
    ],
)
def test_a_row_of_another_kind_is_one_sentence(tmp_path: Path, row: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        written(tmp_path, data=f"{SECOND}\n{row}\n".encode()).load(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": (104,)},
        {"bounds": {"age": (17, 90)}},
        {"bounds": {**BOUNDS, "age": (90, 17)}},
        {"bounds": {**BOUNDS, "age": (17, float("inf"))}},
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}"):
        dataclasses.replace(written(tmp_path), **wrong)  # type: ignore[arg-type]


def test_the_lists_are_those_of_the_datas_own_documentation(user_data: Path) -> None:
    names = user_data / "adult" / "adult.names"
    if not names.is_file():
        pytest.skip(f"{names} is not here")
    published = dict(line.rstrip(".").split(": ", 1) for line in names.read_text().splitlines() if ": " in line)
    for key, values in CATEGORIES.items():
        assert tuple(published[key].split(", ")) == values


def test_every_official_number_lies_within_the_bounds(user_data: Path) -> None:
    for file in ("adult.data", "adult.test"):
        if not (path := user_data / "adult" / file).is_file():
            pytest.skip(f"{path} is not here")
        rows = {line: row for line, row in parse_rows_by_line_number(path.read_bytes(), file).items() if "?" not in row}
        wider = {key: (low - 1, high + 1) for key, (low, high) in BOUNDS.items()}
        inputs = encode_rows_as_inputs(rows, wider, file)
        for key in NUMBERS:
            assert inputs[:, columns_of(key)].min() > 0
            assert inputs[:, columns_of(key)].max() < 1
        assert np.isfinite(inputs).all()
