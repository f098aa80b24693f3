"""Phrases as bags of hashed words: public buckets, bounded counts, and refusals with line and column."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.data_fingerprint import Content
from dpsweep.trainers.data.official_files import Official
from dpsweep.trainers.data.preprocessing import hash_bucket_of_word, hashed_word_counts_of_texts, split_into_words
from dpsweep.trainers.data.sets.texts import Sst2, Sst2Tokens
from dpsweep.trainers.data.vocabularies import pad_rows

TRAIN = "sentence\tlabel\nhide new secretions \t0\n\"that loves , that loves THAT \t1\n's \t1\n"
DEV = "sentence\tlabel\nhide\t1\n"
WIDTH = 64


def written(folder: Path, train: str = TRAIN, dev: str = DEV) -> Sst2:
    """A data set of these two files, with their own checksums as the official ones."""
    files = {"train.tsv": train.encode(), "dev.tsv": dev.encode()}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sums = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    return Sst2(
        name="sst2",
        records=3,
        test_records=1,
        shape=(WIDTH,),
        classes=2,
        unit="record",
        most=2,
        files=Official(url="http://127.0.0.1/", folders=("sst2",), downloads={"SST-2.zip": None}, contents=sums),
    )


def test_words_are_counted_in_public_buckets_up_to_the_bound(tmp_path: Path) -> None:
    private, public = written(tmp_path).load(tmp_path)
    assert public is not None
    assert private.labels.tolist() == [0, 1, 1]
    assert public.labels.tolist() == [1]
    that, loves = hash_bucket_of_word("that", WIDTH), hash_bucket_of_word("loves", WIDTH)
    assert that != loves
    inputs = private.inputs(slice(0, 3), "cpu")
    assert inputs[1, that] == inputs[1, loves] == 1, "three times is as good as twice"
    assert (
        inputs[0, hash_bucket_of_word("hide", WIDTH)]
        == public.inputs(slice(0, 1), "cpu")[0, hash_bucket_of_word("hide", WIDTH)]
        == 0.5
    )
    assert inputs.sum(1).tolist() == [1.5, 2, 0.5]


def test_the_hash_is_the_same_everywhere_and_spreads() -> None:
    """These numbers may never change: models trained on other buckets would be other models."""
    assert [hash_bucket_of_word(word, 2048) for word in ("the", "film", "caf\u00e9")] == [900, 449, 1101]
    held = [hash_bucket_of_word(str(word), 16) for word in range(16000)]
    assert all(850 < held.count(place) < 1150 for place in range(16))


def test_words_are_runs_of_letters_whatever_their_case() -> None:
    assert split_into_words("It 's a CHARMING , rock-solid movie -- \u00c9t\u00e9 2002 !") == [
        *("it", "s", "a", "charming", "rock", "solid", "movie", "\u00e9t\u00e9", "2002"),
    ]
    assert split_into_words(" , .") == []
    assert hashed_word_counts_of_texts([" , .", ""], 4, 1).tolist() == [[0] * 4] * 2
    assert hashed_word_counts_of_texts([], 4, 1).shape == (0, 4)


def test_a_phrases_inputs_do_not_depend_on_the_other_phrases(tmp_path: Path) -> None:
    together = written(tmp_path).load(tmp_path)[0]
    alone = written(tmp_path, train="sentence\tlabel\n'that loves , that loves THAT\t1\n").load(tmp_path)[0]
    assert torch.equal(alone.features[0], together.features[1])


def test_the_private_file_alone_is_recognised(tmp_path: Path) -> None:
    assert written(tmp_path).verify(tmp_path) == (Content.from_chunks([TRAIN.encode()]),)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("no label", r"2 values in line 3 of train\.tsv, got 1"),
        ("one\tmore\t1", r"2 values in line 3 of train\.tsv, got 3"),
        ("", r"2 values in line 3 of train\.tsv, got 1"),
        ("well\t2", r"label in line 3 of train\.tsv to be a declared value, got '2'\. Known: '0', '1'"),
        ("well\tnan", r"label in line 3 of train\.tsv to be a declared value, got 'nan'\. Known: '0', '1'"),
    ],
)
def test_a_wrong_line_is_one_sentence_with_file_line_and_column(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^Expected {sentence}\\.$"):
        written(tmp_path, train=f"sentence\tlabel\nhide\t0\n{line}\nhide\t1\n").load(tmp_path)


@pytest.mark.parametrize("header", ["index\tsentence", "hide\t0", ""])
def test_another_header_is_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(BadInput, match=rf"^Expected sentence and label in line 1 of train\.tsv, got '{header[:4]}"):
        written(tmp_path, train=f"{header}\nhide\t0\n").load(tmp_path)


@pytest.mark.parametrize("wrong", [{"shape": (2, 2)}, {"classes": 3}, {"most": 0}, {"most": 256}])
def test_a_declaration_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}="):
        dataclasses.replace(written(tmp_path), **wrong)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Letters:
    """A vocabulary of letters, for phrases of this test."""

    words: int = 128
    padding: int = 0
    file: str | None = None
    sha256: str | None = None

    def check_vocabulary_file(self) -> None:
        """There is no file."""

    def token_numbers_of_texts(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        return pad_rows(([1, *map(ord, text[: length - 2]), 2] for text in texts), length, self.padding)


def numbered(folder: Path) -> Sst2Tokens:
    """The same phrases as numbers."""
    kept = {
        field.name: getattr(written(folder), field.name) for field in dataclasses.fields(Sst2) if field.name != "most"
    }
    return Sst2Tokens(**kept | {"shape": (5,), "vocabulary": Letters()})


def test_phrases_become_numbers_of_words_and_stay_the_same_records(tmp_path: Path) -> None:
    dataset = numbered(tmp_path)
    private, public = dataset.load(tmp_path)
    assert public is not None
    assert private.inputs(slice(2, 3), "cpu").tolist() == [[1, ord("'"), ord("s"), ord(" "), 2]]
    assert public.inputs(slice(0, 1), "cpu").tolist() == [[1, *map(ord, "hid"), 2]]
    assert private.labels.tolist() == [0, 1, 1]
    assert dataset.verify(tmp_path) == written(tmp_path).verify(tmp_path)


def test_a_length_without_a_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^Expected dataset\.shape=\[2\] >= \[3\]"):
        dataclasses.replace(numbered(tmp_path), shape=(2,))
