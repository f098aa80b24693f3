"""Mails in folders and archives: the same records either way, and one sentence for what is missing or damaged."""

from __future__ import annotations

import dataclasses
import tarfile
from pathlib import Path

import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.data.preprocessing import hash_bucket_of_word
from dpsweep.trainers.data.sets.texts import EnronMail

WIDTH = 256
MAIL = EnronMail(
    name="enron_mail",
    records=5,
    test_records=0,
    shape=(WIDTH,),
    classes=2,
    unit="record",
    most=2,
    folders=("enron", "."),
    parts=("enron1", "enron2"),
)
MAILS = {
    "enron1/ham/0002.txt": b"Subject: gas gas gas\r\ncaf\xe9",
    "enron1/ham/0010.txt": b"Subject: meeting",
    "enron1/spam/0001.txt": b"Subject: win",
    "enron2/ham/0001.txt": b"Subject: gas",
    "enron2/spam/0003.txt": b"Subject: win gas",
    "enron1/Summary.txt": b"no mail",
}


def unpacked(folder: Path) -> Path:
    for name, mail in MAILS.items():
        (folder / "enron" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "enron" / name).write_bytes(mail)
    return folder


def packed(folder: Path) -> Path:
    """Both parts as archives, of members in the reverse order."""
    unpacked(folder / "whole")
    (folder / "packed").mkdir()
    for part in MAIL.parts:
        with tarfile.open(folder / "packed" / f"{part}.tar.gz", "w:gz") as tape:
            for name in reversed([name for name in MAILS if name.startswith(part)]):
                tape.add(folder / "whole" / "enron" / name, name)
    return folder / "packed"


def test_words_of_a_mail_are_counted_in_public_buckets(tmp_path: Path) -> None:
    private, public = MAIL.load(unpacked(tmp_path))
    assert public is None
    assert private.labels.tolist() == [0, 0, 1, 0, 1]
    inputs = private.inputs(slice(0, 5), "cpu")
    gas = hash_bucket_of_word("gas", WIDTH)
    assert len({gas, *(hash_bucket_of_word(word, WIDTH) for word in ("subject", "meeting", "win", "caf\u00e9"))}) == 5
    assert inputs[:, gas].tolist() == [1, 0, 0, 0.5, 0.5], "three times is as good as twice"
    assert inputs[0, hash_bucket_of_word("caf\u00e9", WIDTH)] == 0.5


def test_archives_hold_the_same_records_in_the_same_order(tmp_path: Path) -> None:
    folder, archive = unpacked(tmp_path / "folders"), packed(tmp_path)
    one, other = MAIL.load(folder)[0], MAIL.load(archive)[0]
    assert torch.equal(one.features, other.features)
    assert torch.equal(one.labels, other.labels)
    assert MAIL.verify(folder) == MAIL.verify(archive)
    first = dataclasses.replace(MAIL, parts=("enron1",), records=3)
    assert first.verify(archive) == MAIL.verify(folder)[:1], "a part is recognised for itself"


def test_a_mails_inputs_do_not_depend_on_the_other_mails(tmp_path: Path) -> None:
    together = MAIL.load(unpacked(tmp_path))[0]
    (tmp_path / "enron" / "enron1" / "ham" / "0002.txt").unlink()
    without = dataclasses.replace(MAIL, records=4).load(tmp_path)[0]
    assert torch.equal(without.features, together.features[1:])


def test_what_is_recognised_changes_with_a_mail_its_name_and_its_kind(tmp_path: Path) -> None:
    held = {tuple(MAIL.verify(unpacked(tmp_path)))}
    mail = tmp_path / "enron" / "enron1" / "ham" / "0010.txt"
    mail.write_bytes(b"Subject: meetings")
    held.add(tuple(MAIL.verify(tmp_path)))
    mail.rename(mail.with_name("0011.txt"))
    held.add(tuple(MAIL.verify(tmp_path)))
    mail.with_name("0011.txt").rename(tmp_path / "enron" / "enron1" / "spam" / "0011.txt")
    held.add(tuple(MAIL.verify(tmp_path)))
    assert len(held) == 4


def test_a_missing_part_is_one_sentence(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    (archive / "enron2.tar.gz").unlink()
    said = rf"^enron_mail is not all in {archive}: put enron2\.tar\.gz into {archive}/enron, unpacked or not, and say "
    for look in (MAIL.locate, MAIL.verify, MAIL.load):
        with pytest.raises(BadInput, match=said):
            look(archive)
    with pytest.raises(BadInput, match=r"^enron_mail is not on this machine: put enron1\.tar\.gz, enron2\.tar\.gz"):
        MAIL.locate(None)


def test_a_damaged_archive_is_one_sentence(tmp_path: Path) -> None:
    file = packed(tmp_path) / "enron1.tar.gz"
    file.write_bytes(file.read_bytes()[:-20])
    for look in (MAIL.verify, MAIL.load):
        with pytest.raises(BadInput, match=rf"^{file} cannot be read, it may be cut off \(.+\): fetch it again\.$"):
            look(file.parent)
    file.write_bytes(b"")
    with pytest.raises(BadInput, match=rf"^{file} cannot be read"):
        MAIL.verify(file.parent)


@pytest.mark.parametrize("content", [b"", b" \r\n"])
def test_an_empty_mail_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    place = unpacked(tmp_path) / "enron" / "enron2"
    (place / "spam" / "0003.txt").write_bytes(content)
    for look in (MAIL.verify, MAIL.load):
        with pytest.raises(BadInput, match=rf"^Expected spam/0003\.txt in {place} to hold a mail, got nothing\.$"):
            look(tmp_path)


@pytest.mark.parametrize("records", [4, 6])
def test_another_number_of_mails_is_refused(tmp_path: Path, records: int) -> None:
    for look in (dataclasses.replace(MAIL, records=records).verify, dataclasses.replace(MAIL, records=records).load):
        with pytest.raises(BadInput, match=f"^Expected {records} mails in enron1, enron2, got 5.$"):
            look(unpacked(tmp_path))


@pytest.mark.parametrize(
    "wrong",
    [{"shape": (2, 2)}, {"classes": 3}, {"most": 0}, {"folders": ()}, {"parts": ()}, {"parts": ("enron1", "enron1")}],
)
def test_a_declaration_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"Expected dataset\\.{next(iter(wrong))}="):
        dataclasses.replace(MAIL, **wrong)  # type: ignore[arg-type]
