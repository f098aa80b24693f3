"""A CSV file of the user's own: what is read, what is refused, and that bounds and lists are the declaration's."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.sets.own_tables import Table

HEADER = "patient,weight,ill,age,note"
ROWS = ("P1,50,yes,18,a", "P2,95,no,90,b", 'P1,40,no,54,"x, y"', "P3, 150 ,yes,200,", "P1,60,yes,-5,c")
TABLE = Table(
    name="visits",
    records=5,
    shape=(2,),
    classes=2,
    unit="record",
    file="visits.csv",
    label="ill",
    labels=("no", "yes"),
    bounds={"weight": (40, 150), "age": (18, 90)},
)
BY_PATIENT = dataclasses.replace(TABLE, unit="patient", unit_column="patient", units=3, contribution_cap=2)


WARDS = dataclasses.replace(
    TABLE, shape=(4,), bounds={"age": (18, 90)}, categories={"note": ("c", "a"), "weight": (50,)}, other="zeros"
)


def written(folder: Path, *rows: str, header: str = HEADER) -> Path:
    (folder / "visits.csv").write_text("\n".join((header, *rows)) + "\n")
    return folder


def test_numbers_are_clamped_and_scaled_by_the_declared_bounds_in_alphabetical_order(tmp_path: Path) -> None:
    private, public = TABLE.load(written(tmp_path, *ROWS))
    assert public is None
    assert private.units is None
    assert private.labels.tolist() == [1, 0, 0, 1, 1]
    ages, weights = [0, 1, 0.5, 1, 0], [10 / 110, 0.5, 0, 1, 20 / 110]
    assert torch.allclose(private.features, torch.tensor([ages, weights]).T)
    assert private.features.dtype == torch.float32


def test_categories_are_one_hot_and_a_value_that_is_not_listed_is_a_row_of_zeros(tmp_path: Path) -> None:
    private, _ = WARDS.load(written(tmp_path, *ROWS, "P1,50,no,90,"))
    ages = [0, 1, 0.5, 1, 0, 1]
    notes = [[0, 1], [0, 0], [0, 0], [0, 0], [1, 0], [0, 0]]
    weights = [1, 0, 0, 0, 0, 1]
    expected = [[age, *note, weight] for age, note, weight in zip(ages, notes, weights, strict=True)]
    assert torch.equal(private.features, torch.tensor(expected))
    assert WARDS.preprocessing["columns"][1] == {"name": "note", "values": ["c", "a"], "unlisted": "zeros"}


def test_a_value_that_is_in_no_list_changes_no_other_record(tmp_path: Path) -> None:
    known = WARDS.load(written(tmp_path, *ROWS))[0].features
    for place in range(len(ROWS) + 1):
        rows = [*ROWS[:place], "P9,rare,yes,20,never seen", *ROWS[place:]]
        found = WARDS.load(written(tmp_path, *rows))[0].features
        assert torch.equal(torch.cat([found[:place], found[place + 1 :]]), known)


def test_the_rows_of_a_test_file_are_public_and_play_no_part_in_the_account(tmp_path: Path) -> None:
    both = dataclasses.replace(BY_PATIENT, test_file="public.csv", test_records=1)
    (tmp_path / "public.csv").write_text("weight,ill,age\n95,no,54\n")
    private, public = both.load(written(tmp_path, *ROWS))
    assert public is not None
    assert (len(private), len(public)) == (4, 1)
    assert public.units is None
    assert public.features.tolist() == [[0.5, 0.5]]
    assert both.verify(tmp_path) == BY_PATIENT.verify(tmp_path)
    (tmp_path / "public.csv").write_text("weight,ill,age\n95,no,old\n")
    with pytest.raises(BadInput, match=r"^Expected age in line 2 of public\.csv to be a finite number, got 'old'\.$"):
        both.verify(tmp_path)
    (tmp_path / "public.csv").unlink()
    with pytest.raises(BadInput, match=rf"^visits needs {tmp_path}/public\.csv: put it there"):
        both.locate(tmp_path)


def test_a_records_inputs_do_not_depend_on_the_other_records(tmp_path: Path) -> None:
    together = TABLE.load(written(tmp_path, *ROWS))[0]
    alone = TABLE.load(written(tmp_path, ROWS[1]))[0]
    assert torch.equal(alone.features[0], together.features[1])


def test_the_units_are_the_columns_values_and_are_capped(tmp_path: Path) -> None:
    private, _ = BY_PATIENT.load(written(tmp_path, *ROWS))
    assert private.units is not None
    assert private.units.names == (b"P1", b"P2", b"P3")
    assert sorted(private.units.of.tolist()) == [0, 0, 1, 2]


def test_the_file_of_spreadsheets_is_read(tmp_path: Path) -> None:
    """A byte order mark, carriage returns, blank lines, a letter beyond ASCII in a name."""
    content = "\ufeff" + HEADER + "\r\n\r\n" + ROWS[0] + "\r\n"
    (tmp_path / "visits.csv").write_bytes(content.replace("P1", "Müller").encode())
    private, _ = BY_PATIENT.load(tmp_path)
    assert private.units is not None
    assert private.units.names == ("Müller".encode(),)


def test_an_absolute_path_needs_no_folder(tmp_path: Path) -> None:
    absolute = dataclasses.replace(TABLE, file=str(written(tmp_path, *ROWS) / "visits.csv"))
    absolute.locate(None)
    assert len(absolute.load(None)[0]) == 5


def test_no_rows_are_no_records(tmp_path: Path) -> None:
    assert TABLE.load(written(tmp_path))[0].features.shape == (0, 2)
    assert BY_PATIENT.load(written(tmp_path))[0].number_of_units == 0


def test_an_absent_file_is_one_sentence_with_the_next_step(tmp_path: Path) -> None:
    for look in (TABLE.locate, TABLE.verify, TABLE.load):
        with pytest.raises(BadInput, match=rf"^visits needs {tmp_path}/visits\.csv: put it there, or say data="):
            look(tmp_path)


def test_the_whole_file_is_recognised_under_any_name(tmp_path: Path) -> None:
    rows = [f"P{row},50,yes,18,{'a long note ' * 10}" for row in range(20_000)]
    content = (written(tmp_path, *rows) / "visits.csv").read_bytes()
    (tmp_path / "copy.csv").write_bytes(content)
    renamed = dataclasses.replace(TABLE, name="stays", file="copy.csv", records=7)
    assert len(content) > 2 << 20
    assert TABLE.verify(tmp_path) == renamed.verify(tmp_path) == (Content.from_chunks([content]),)
    (tmp_path / "copy.csv").write_bytes(content + b"\n")
    assert renamed.verify(tmp_path) != TABLE.verify(tmp_path)


def test_the_header_is_checked_before_any_record(tmp_path: Path) -> None:
    written(tmp_path, *ROWS, header="weight,ill,age,age,note")
    with pytest.raises(
        BadInput, match=r"^Expected one column age in the header of visits\.csv, got 2\. Rename the others in"
    ):
        TABLE.verify(tmp_path)
    with pytest.raises(BadInput, match=r"^Expected one column patient in the header of visits\.csv, got 0\. Known: "):
        BY_PATIENT.verify(tmp_path)
    (tmp_path / "visits.csv").write_bytes(b"")
    with pytest.raises(BadInput, match="got 0"):
        TABLE.verify(tmp_path)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("P1,heavy,yes,20,a", r"^Expected weight in line 3 of visits\.csv to be a finite number, got 'heavy'\.$"),
        (
            "P1,,yes,20,a",
            r"^Expected weight in line 3 of visits\.csv to have a number, got an empty cell\. dataset\.missing=",
        ),
        (
            "P1,nan,yes,20,a",
            r"^Expected weight in line 3 of visits\.csv to be a finite number, got 'nan'\. dataset\.na_values=",
        ),
        ("P1,50,yes,1e999,a", r"^Expected age in line 3 of visits\.csv to be a finite number, got '1e999'\.$"),
        (
            "P1,50,maybe,20,a",
            r"^Expected ill in line 3 of visits\.csv to be a declared value, got 'maybe'\. Known: 'no', 'yes'\.$",
        ),
        (
            " ,50,yes,20,a",
            r"^Expected patient in line 3 of visits\.csv to say whose record it is, got an empty cell\.$",
        ),
        ("P1,50,yes,20", r"^Expected 5 values in line 3 of visits\.csv, got 4\.$"),
        ('P1,50,yes,20,"a"b', r"^Expected visits\.csv to be a readable CSV file, got: "),
    ],
)
def test_a_bad_row_is_one_sentence_with_file_line_and_column_before_anything_is_charged(
    tmp_path: Path, row: str, sentence: str
) -> None:
    written(tmp_path, ROWS[0], row, ROWS[1])
    for look in (BY_PATIENT.verify, BY_PATIENT.load):
        with pytest.raises(BadInput, match=sentence):
            look(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"shape": (3,)}, r"dataset\.shape=\[3\] == \[2\]"),
        ({"classes": 3}, r"dataset\.classes=3 == 2"),
        ({"labels": ("no", "no")}, "to be distinct"),
        ({"labels": (False, True)}, "quote yes and no"),
        ({"label": "age"}, "to be distinct"),
        ({"label": None}, r"dataset\.label=None to be a text"),
        ({"bounds": {True: (0, 1), "age": (0, 1)}}, "to name a column"),
        ({"bounds": {"weight": (40, 150), "age": (90, 18)}}, r"dataset\.bounds\.age=.* finite and rising"),
        ({"bounds": {"weight": (40, 150), "age": "18"}}, r"dataset\.bounds\.age=18 to be two numbers"),
        ({"bounds": {"weight": (40, 150), "age": (0, float("inf"))}}, r"dataset\.bounds\.age"),
        (
            {"categories": {"sex": ["f", "m"]}},
            r"dataset\.shape=\[2\] == \[4\], as many as the inputs of bounds, dates and categories: age, sex: f",
        ),
        ({"categories": {"sex": []}}, r"dataset\.categories\.sex=\[\] to be a list of values"),
        ({"categories": {"sex": "f"}}, r"dataset\.categories\.sex='f' to be a list of values"),
        ({"categories": {"sex": ["f", "f"]}}, r"dataset\.categories\.sex=.* to be distinct"),
        ({"categories": {"sex": [True, "f"]}}, "quote yes and no"),
        ({"categories": {False: ["f"]}}, "to name a column"),
        ({"categories": ["sex"]}, "to map columns to lists"),
        ({"categories": {"age": ["f"]}, "shape": (3,)}, "to be distinct"),
        ({"test_file": "test.csv"}, r"dataset\.test_records=0 with dataset\.test_file=test\.csv"),
        ({"test_records": 3}, r"dataset\.test_records=3 with dataset\.test_file=None"),
        ({"test_file": "visits.csv", "test_records": 3}, "to be another one than"),
        ({"test_file": 3, "test_records": 3}, "to be null or a text"),
        ({"unit": "patient"}, r"dataset\.unit='patient' to be 'record' where no dataset\.unit_column"),
        ({"units": 3}, r"dataset\.units=3 to be null"),
        ({"contribution_cap": 3}, r"dataset\.contribution_cap=3 to be null"),
        ({"unit_column": "patient", "units": 3, "contribution_cap": 2}, r"dataset\.unit='record' to say what"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"Expected .*{sentence}"):
        dataclasses.replace(TABLE, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"unit": "record"}, "to say what"),
        ({"unit": ""}, "to say what"),
        ({"unit_column": ""}, "to name a column"),
        ({"unit_column": "age"}, "to be distinct"),
        ({"units": None}, r"with dataset\.units, about how many of unit=patient there are"),
        ({"units": 0}, r"dataset\.units=0 >= 1"),
        ({"units": 6}, r"dataset\.units=6 <= dataset\.records=5"),
        ({"contribution_cap": None}, r"with dataset\.contribution_cap, the most records of one"),
        ({"contribution_cap": 0}, r"dataset\.contribution_cap=0 >= 1"),
    ],
)
def test_units_are_declared_as_a_whole(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"Expected .*{sentence}"):
        dataclasses.replace(BY_PATIENT, **wrong)  # type: ignore[arg-type]
