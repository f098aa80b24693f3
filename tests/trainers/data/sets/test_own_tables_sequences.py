"""Texts in a table as token sequences, each with the tokens that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.records import IGNORED, next_token_targets
from dpsweep.trainers.data.sets.own_tables import TextSequences
from tests.trainers.data.sets.test_own_tables_texts import tokenizer

ROWS = 'id,note\n1,a good film\n2,"bad, very bad"\n3,\n1,the the\n'
"""Between their marks: 5, 6 (a comma is unknown), 2 and 4 tokens."""


def sequences(place: Path, **fields: Any) -> TextSequences:
    (place / "notes.csv").write_text(ROWS)
    declared = {"name": "notes", "records": 4, "shape": (6,), "classes": 14, "unit": "record", "file": "notes.csv"}
    return TextSequences(**{**declared, "text": "note", "vocabulary": tokenizer(place), **fields})


def test_a_row_is_a_record_of_tokens_and_those_that_follow(tmp_path: Path) -> None:
    notes = sequences(tmp_path)
    notes.locate(tmp_path)
    (content,) = notes.verify(tmp_path)
    records, public = notes.load(tmp_path)
    assert public is None
    assert records.features.tolist() == [
        [2, 10, 4, 6, 3, 0],
        [2, 5, 1, 8, 5, 3],
        [2, 3, 0, 0, 0, 0],
        [2, 11, 11, 3, 0, 0],
    ]
    assert records.labels.tolist() == [
        [10, 4, 6, 3, IGNORED, IGNORED],
        [5, 1, 8, 5, 3, IGNORED],
        [3, *[IGNORED] * 5],
        [11, 11, 3, *[IGNORED] * 3],
    ]
    assert str(records.labels.dtype) == "torch.int64"
    assert content == Content.from_chunks([ROWS.encode()])
    form = notes.preprocessing
    assert (form["kind"], form["length"], form["words"], form["labels"]) == ("tokens", 6, 14, None)
    assert form["output"] == "next_token"


def test_records_of_one_unit_keep_their_labels(tmp_path: Path) -> None:
    notes = sequences(tmp_path, unit="person", unit_column="id", units=3, contribution_cap=1)
    notes.verify(tmp_path)
    records, _ = notes.load(tmp_path)
    assert records.number_of_units == len(records) == 3
    assert records.labels.tolist() == next_token_targets(records.stored_features().numpy(), 0).tolist()
    part = records.select(np.array([2, 0]))
    assert part.labels.tolist() == [records.labels[2].tolist(), records.labels[0].tolist()]
    assert len({digest.tobytes() for digest in records.digest_of_each_record()}) == 3


def test_padding_that_is_a_token_of_the_text_is_learnt_before_the_end(tmp_path: Path) -> None:
    """GPT-2 has no padding: its mark of the end stands for it."""
    tokens = np.array([[5, 0, 6, 0, 0], [0, 0, 0, 0, 0], [1, 2, 3, 4, 5]], dtype=np.float32)
    assert next_token_targets(tokens, 0).tolist() == [
        [0, 6, IGNORED, IGNORED, IGNORED],
        [IGNORED] * 5,
        [2, 3, 4, 5, IGNORED],
    ]


def test_a_longer_text_is_refused_before_the_charge_or_cut_off(tmp_path: Path) -> None:
    words = r"^Expected note in row 2 of notes\.csv to have at most 5 tokens, as dataset\.shape; say dataset\.cut=true"
    with pytest.raises(BadInput, match=words):
        sequences(tmp_path, shape=(5,)).verify(tmp_path)
    cut = sequences(tmp_path, shape=(5,), cut=True)
    cut.verify(tmp_path)
    records, _ = cut.load(tmp_path)
    assert records.features.tolist()[1] == [2, 5, 1, 8, 3]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"shape": (2, 3)}, "of [length]"),
        ({"shape": (1,)}, "Expected dataset.shape=[1] of [length]"),
        ({"text": True}, "Expected dataset.text=True to be a text."),
        ({"cut": "no"}, "Expected dataset.cut='no' to be true or false."),
        ({"classes": 13}, "Expected dataset.classes=13 >= 14, the tokenizer's."),
        ({"unit": "person", "unit_column": "note", "units": 3, "contribution_cap": 1}, "Expected dataset.unit_column="),
    ],
)
def test_a_declaration_with_a_mistake_is_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as refused:
        sequences(tmp_path, **fields)
    assert words in str(refused.value)


def test_a_file_with_a_mistake_is_refused_before_the_charge(tmp_path: Path) -> None:
    notes = sequences(tmp_path)
    (tmp_path / "notes.csv").write_text(ROWS.replace("note", "words"))
    with pytest.raises(
        BadInput, match=r"^Expected one column note in the header of notes.csv, got 0\. Known: 'id', 'words'\.$"
    ):
        notes.verify(tmp_path)
    (tmp_path / "notes.csv").unlink()
    with pytest.raises(BadInput, match=r"^notes needs .*notes.csv: put it there"):
        notes.locate(tmp_path)
