"""Texts as numbers of words: pieces by hand, files that are not what was declared, and nothing of other texts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.vocabularies import BytePairs, Vocabulary, WordPiece

tokenizers = pytest.importorskip("tokenizers", reason="pip install 'dpsweep[hf]'")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "film", "##s", "##ing", "a", "cafe", "!", "fil", "\u4e2d"]
MERGES = ["f i", "fi l", "fil m", "\u0120 film", "s !"]
BYTES = [
    "<s>",
    "<pad>",
    "</s>",
    *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
]


def stored(path: Path, content: bytes) -> dict[str, Any]:
    path.write_bytes(content)
    return {"package": None, "file": str(path), "sha256": hashlib.sha256(content).hexdigest()}


def word_pieces(folder: Path, pieces: list[str] = PIECES, end: str = "\n") -> WordPiece:
    content = "".join(f"{piece}{end}" for piece in pieces).encode()
    return WordPiece(**stored(folder / "vocab.txt", content), words=len(PIECES))


def byte_pairs(folder: Path, merges: Any = MERGES, left_out: str = "") -> BytePairs:
    vocab = {piece: number for number, piece in enumerate(BYTES) if piece != left_out}
    content = json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": merges}}).encode()
    return BytePairs(**stored(folder / "tokenizer.json", content), words=len(BYTES))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("A film", ["a", "film"]),
        ("FILMS filming", ["film", "##s", "film", "##ing"]),
        ("films!", ["film", "##s", "!"]),
        ("Caf\u00e9\u4e2dfilm", ["cafe", "\u4e2d", "film"]),
        ("filmed fi\u0000lm", ["[UNK]", "film"]),
        ("fil" + "s" * 98, ["[UNK]"]),
        ("fil" + "s" * 3, ["fil", "##s", "##s", "##s"]),
        (" \t", []),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_longest_pieces_from_the_left(tmp_path: Path, text: str, pieces: list[str], end: str) -> None:
    expected = [PIECES.index(piece) for piece in ["[CLS]", *pieces, "[SEP]"]]
    row = word_pieces(tmp_path, end=end).token_numbers_of_texts([text], 10)[0].tolist()
    assert row == expected + [0] * (10 - len(expected))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("film", ["film"]),
        ("a film", ["a", "\u0120film"]),
        ("ffilm", ["f", "film"]),
        ("films!!", ["film", "s", "!", "!"]),
        ("it's!", ["i", "t", "'", "s", "!"]),
        ("  film", ["\u0120", "\u0120film"]),
        ("\u00e9\n", ["\u00c3", "\u00a9", "\u010a"]),
        ("", []),
    ],
)
def test_bytes_are_merged_in_the_order_of_the_merges(tmp_path: Path, text: str, pieces: list[str]) -> None:
    expected = [BYTES.index(piece) for piece in ["<s>", *pieces, "</s>"]]
    for merges in (MERGES, [merge.split() for merge in MERGES]):
        row = byte_pairs(tmp_path, merges).token_numbers_of_texts([text], 9)[0].tolist()
        assert row == expected + [1] * (9 - len(expected))


@pytest.mark.parametrize("make", [word_pieces, byte_pairs])
def test_a_long_text_is_cut_off_before_its_end_mark_and_ignores_its_company(tmp_path: Path, make: Any) -> None:
    vocabulary: Vocabulary = make(tmp_path)
    begin, end = (2, 3) if make is word_pieces else (0, 2)
    texts = ["film " * 9, "a", "film"]
    together = vocabulary.token_numbers_of_texts(texts, 4)
    assert together[0].tolist()[0::3] == [begin, end]
    assert vocabulary.padding not in together[0]
    for row, text in zip(together, texts, strict=True):
        assert make(tmp_path).token_numbers_of_texts([text], 4)[0].tolist() == row.tolist()


def test_a_file_that_is_missing_or_another_one_is_one_sentence(tmp_path: Path) -> None:
    for vocabulary in (word_pieces(tmp_path), byte_pairs(tmp_path)):
        vocabulary.check_vocabulary_file()
        Path(vocabulary.file).write_bytes(b"other")
        other = dataclasses.replace(vocabulary, file=str(tmp_path / "other"))
        absent = dataclasses.replace(vocabulary, package="tiny_words")
        for wrong, said in (
            (dataclasses.replace(vocabulary), f"file={vocabulary.file} to have sha256={vocabulary.sha256}, found sha"),
            (other, f"file={other.file} to have sha256={vocabulary.sha256}, found nothing"),
            (absent, "package=tiny-words to be installed: pip install --no-deps tiny-words"),
        ):
            with pytest.raises(BadInput, match=f"^dataset.vocabulary: Expected {said}"):
                wrong.check_vocabulary_file()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (partial(word_pieces, pieces=PIECES[:-1]), r"dataset\.vocabulary\.words=12 == 11"),
        (partial(word_pieces, pieces=[*PIECES[:3], "x", *PIECES[4:]]), r"\[SEP\] among the pieces"),
        (partial(word_pieces, pieces=PIECES[::-1]), r"dataset\.vocabulary\.padding=0 == 11"),
        (partial(byte_pairs, left_out=BYTES[-1]), r"dataset\.vocabulary\.words=264 == 263"),
        (partial(byte_pairs, left_out="</s>"), "</s> among the pieces"),
        (partial(byte_pairs, merges=["f s"]), "fs among the pieces"),
        (lambda folder: dataclasses.replace(byte_pairs(folder), padding=0), r"dataset\.vocabulary\.padding=0 == 1"),
    ],
)
def test_a_vocabulary_that_is_not_what_was_declared_is_one_sentence(tmp_path: Path, make: Any, said: str) -> None:
    with pytest.raises(BadInput, match=f"^Expected {said}"):
        make(tmp_path).check_vocabulary_file()


def test_another_json_file_is_one_sentence(tmp_path: Path) -> None:
    content = stored(tmp_path / "list.json", b"[1]")
    with pytest.raises(BadInput, match=r"^dataset\.vocabulary: "):
        BytePairs(**content, words=3).check_vocabulary_file()


@pytest.mark.parametrize("kind", [WordPiece, BytePairs])
def test_the_number_of_words_is_validated(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"^Expected dataset\.vocabulary\.words=0 >= 1\.$"):
        kind(package=None, file="x", sha256="0", words=0)


@pytest.mark.parametrize("make", [word_pieces, byte_pairs])
def test_without_the_library_a_refusal_says_what_to_install(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsweep.trainers.data.published_files.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"^Expected tokenizers to be installed for a vocabulary: pip install 'dpsweep"):
        make(tmp_path).check_vocabulary_file()
