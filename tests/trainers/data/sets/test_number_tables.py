"""Files of whole numbers: what is read, and that one wrong cell is one sentence with file, line and column."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.sets.number_tables import ANY, NumberFile

VISITS = NumberFile(
    file="visits.csv",
    columns=("who", "age", "height", "ill"),
    limits=((0, ANY), (-ANY, ANY), (0, 1)),
    texts=1,
    first=2,
)
HEADER = b"who,age,height,ill\n"
LINES = (b"P1,18,-2,0", b"P2,90,1000,1", b'"P, 3,300000,7,1')


def read(content: bytes, records: int, file: NumberFile = VISITS) -> np.ndarray:
    return np.concatenate([numbers for _, numbers in file.iterate_record_blocks(content, records)])


def test_the_numbers_of_every_line_are_read() -> None:
    lines = [f"P{row},{row},{-row},{row % 2}".encode() for row in range(1300)]
    numbers = read(HEADER + b"\n".join(lines) + b"\n\n", 1300)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [[row, -row, row % 2] for row in range(1300)]


def test_quotes_carriage_returns_and_spaces_are_no_hindrance() -> None:
    content = HEADER + b'"P1, 18 ,-2,0\r\n\xffP2,90,1000,1 \r\n'
    assert read(content, 2).tolist() == [[18, -2, 0], [90, 1000, 1]]
    spaced = dataclasses.replace(VISITS, separator=" ", texts=0, first=1, columns=VISITS.columns[1:])
    assert read(b"18 -2 0 \n90 1000 1 \n", 2, spaced).tolist() == [[18, -2, 0], [90, 1000, 1]]


@pytest.mark.parametrize("before", [0, 3, 511, 512, 1100])
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"P,old,1,0", r"age in line {} of visits\.csv to be a whole number >= 0, got 'old'"),
        (b"P,,1,0", r"age in line {} of visits\.csv to be a whole number >= 0, got ''"),
        (b"P,1,nan,0", r"height in line {} of visits\.csv to be a whole number, got 'nan'"),
        (b"P,1,inf,0", r"height in line {} of visits\.csv to be a whole number, got 'inf'"),
        (b"P,1,NA,0", r"height in line {} of visits\.csv to be a whole number, got 'NA'"),
        (b"P,1,0x1,0", r"height in line {} of visits\.csv to be a whole number, got '0x1'"),
        (b"P,-1,1,0", r"age in line {} of visits\.csv to be a whole number >= 0, got '-1'"),
        (b"P,1.5,1,0", r"age in line {} of visits\.csv to be a whole number >= 0, got '1\.5'"),
        (b"P,1,1.5,0", r"height in line {} of visits\.csv to be a whole number, got '1\.5'"),
        (b"P,1,1,2", r"ill in line {} of visits\.csv to be a whole number in 0\.\.1, got '2'"),
        (b"P,1,1", r"4 values in line {} of visits\.csv, got 3"),
        (b"P,1,1,0,0", r"4 values in line {} of visits\.csv, got 5"),
        (b"P,1,1,1e39", r"ill in line {} of visits\.csv to be a whole number in 0\.\.1, got '1e39'"),
        (b"P,1_0,1,1", r"age in line {} of visits\.csv to be a whole number >= 0, got '1_0'"),
        (b"P,1,1e3,1", r"height in line {} of visits\.csv to be a whole number, got '1e3'"),
        (b"P,1,99999999999999999999,1", r"height in line {} of visits\.csv to be a whole number, got '9+'"),
        (b"P,1,1,", r"ill in line {} of visits\.csv to be a whole number in 0\.\.1, got ''"),
        (b"", r"4 values in line {} of visits\.csv, got 1"),
    ],
)
def test_a_wrong_cell_is_one_sentence_with_file_line_and_column(before: int, line: bytes, sentence: str) -> None:
    lines = [LINES[0]] * before + [line] + [LINES[1]] * 2
    with pytest.raises(BadInput, match=f"^Expected {sentence.format(before + 2)}\\.$"):
        read(HEADER + b"\n".join(lines), len(lines))


@pytest.mark.parametrize("records", [0, 2, 4])
def test_more_or_fewer_lines_than_declared_are_refused(records: int) -> None:
    with pytest.raises(BadInput, match=rf"^Expected {records} records in visits\.csv, got 3 lines of them\.$"):
        read(HEADER + b"\n".join(LINES), records)
