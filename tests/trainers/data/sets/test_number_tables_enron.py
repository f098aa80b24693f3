"""Mails as counts of words: bounded by the declaration, refused in one sentence, before anything is charged."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path

import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.official_files import Official
from dpsweep.trainers.data.sets.number_tables import Enron

ENRON = Enron(
    name="enron",
    records=3,
    test_records=0,
    shape=(4,),
    classes=2,
    unit="record",
    most=10,
    files=Official(
        url="http://127.0.0.1/", folders=("enron",), downloads={"emails.csv": None}, contents={"emails.csv": None}
    ),
)
HEADER = "Email No.,the,to,ect,and,Prediction"
ROWS = ("Email 1,0,5,10,2327,0", "Email 2,1,0,0,0,1", "Email 3,0,0,0,0,0")


def written(folder: Path, *rows: str, header: str = HEADER) -> Path:
    """The gzipped file, since that is how a user may keep it."""
    (folder / "emails.csv.gz").write_bytes(gzip.compress("\n".join((header, *rows, "")).encode()))
    return folder


def test_counts_are_cut_at_the_public_bound_and_scaled(tmp_path: Path) -> None:
    private, public = ENRON.load(written(tmp_path, *ROWS))
    assert public is None
    assert private.features.dtype == torch.uint8
    expected = torch.tensor([[0, 0.5, 1, 1], [0.1, 0, 0, 0], [0, 0, 0, 0]])
    assert torch.allclose(private.inputs(slice(0, 3), "cpu"), expected)
    assert private.labels.tolist() == [0, 1, 0]


def test_a_mails_inputs_do_not_depend_on_the_other_mails(tmp_path: Path) -> None:
    together = ENRON.load(written(tmp_path, *ROWS))[0]
    alone = dataclasses.replace(ENRON, records=1).load(written(tmp_path, ROWS[1]))[0]
    assert torch.equal(alone.features[0], together.features[1])


def test_the_whole_file_is_recognised_however_it_is_compressed(tmp_path: Path) -> None:
    content = "\n".join((HEADER, *ROWS, "")).encode()
    assert ENRON.verify(written(tmp_path, *ROWS)) == (Content.from_chunks([content]),)
    (tmp_path / "emails.csv.gz").unlink()
    (tmp_path / "emails.csv").write_bytes(content)
    assert ENRON.verify(tmp_path) == (Content.from_chunks([content]),)


@pytest.mark.parametrize(
    ("rows", "header", "sentence"),
    [
        ((ROWS[0], "Email 2,1,0,x,0,1", ROWS[2]), HEADER, r"ect in line 3 of emails\.csv to be a whole number"),
        ((ROWS[0], "Email 2,1,0,nan,0,1", ROWS[2]), HEADER, r"ect in line 3 of emails\.csv to be a whole number"),
        ((ROWS[0], "Email 2,1,0,-4,0,1", ROWS[2]), HEADER, r"ect in line 3 of emails\.csv to be a whole number >= 0"),
        ((ROWS[0], "Email 2,1,0,0,0,2", ROWS[2]), HEADER, r"Prediction in line 3 of emails\.csv .* in 0\.\.1, got '2'"),
        ((ROWS[0], ROWS[1], "Email 3,0,0"), HEADER, r"6 values in line 4 of emails\.csv, got 3"),
        (ROWS[:2], HEADER, r"3 records in emails\.csv, got 2"),
        (ROWS, HEADER.replace("ect,", ""), r"Email No\., 4 words and Prediction in line 1 of emails\.csv, got 5"),
        (ROWS, HEADER.replace("Prediction", "spam"), r"Email No\., 4 words and Prediction in .* to 'spam'\.$"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_charged(
    tmp_path: Path, rows: tuple[str, ...], header: str, sentence: str
) -> None:
    folder = written(tmp_path, *rows, header=header)
    for look in (ENRON.verify, ENRON.load):
        with pytest.raises(BadInput, match=f"^Expected {sentence}"):
            look(folder)


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, *ROWS) / "emails.csv.gz"
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(BadInput, match=r"emails\.csv\.gz cannot be read, it may be cut off"):
        ENRON.verify(tmp_path)


@pytest.mark.parametrize("wrong", [{"shape": (2, 2)}, {"classes": 3}, {"most": 0}, {"most": 256}, {"records": 0}])
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}="):
        dataclasses.replace(ENRON, **wrong)  # type: ignore[arg-type]
