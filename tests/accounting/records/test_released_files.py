"""The manifest line of a release: what it covers, what it hides, and which folders are whole by it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Released, ReleaseManifest
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.released_files import ReleasedWinner, record_release, verify_release_files_and_describe
from tests.charges import charge_cost

FILES = {"report.html": "epsilon 2.9", "price.json": "{}", "sub/page.html": "more"}
CHANGED = r"are those of no release in the ledger\. `dpsweep release"
ONE = Guarantee(epsilon=1.0, delta=1e-5)


def release(folder: Path, files: Mapping[str, str] = FILES, secret: str = "bits") -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    ReleasedWinner.from_secret_and_charge(secret, "charge").write_salt_and_covered_names(folder)
    return folder


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("digits", Guarantee(epsilon=9.0, delta=1e-3))
    charge_cost(ledger, "digits", plan="p", trials=["a"], cost=ONE)
    return ledger


def digest(folder: Path) -> str:
    return ReleasedWinner.of_release(folder).digest_of_all_files(folder)


def publish(ledger: Ledger, folder: Path, winner: str = "w") -> None:
    charge = ledger.attempts_of_plan("digits", "p").charges[0].digest
    manifest = ReleaseManifest(charge=charge, folder=folder.name, manifest=digest(folder))
    record_release(ledger, "digits", plan="p", winner=Released(charge=charge, winner=winner), manifest=manifest)


def verified(ledger: Ledger, folder: Path) -> str:
    return verify_release_files_and_describe(folder, ledger.statement("digits").attempts_of_plan("p"))


def test_a_release_that_is_as_it_was_made_is_whole(tmp_path: Path, ledger: Ledger) -> None:
    assert verified(ledger, tmp_path / "release") == ""
    folder = release(tmp_path / "release")
    publish(ledger, folder)
    (at,) = {entry.at[:10] for entry in ledger.statement("digits").entries if entry.kind == "manifest"}
    assert verified(ledger, folder) == f" Its release is the one of {at}."


def test_each_change_of_a_file_is_found(tmp_path: Path, ledger: Ledger) -> None:
    folder = release(tmp_path / "release")
    publish(ledger, folder)
    for name, content in FILES.items():
        (folder / name).write_text(content + " ")
        with pytest.raises(ContractBroken, match=CHANGED):
            verified(ledger, folder)
        (folder / name).unlink()
        with pytest.raises(ContractBroken, match=CHANGED):
            verified(ledger, folder)
        (folder / name).write_text(content)
    (folder / "another.txt").write_text("more")
    with pytest.raises(ContractBroken, match=CHANGED):
        verified(ledger, folder)
    (folder / "another.txt").unlink()
    assert verified(ledger, folder)


def test_folders_are_part_of_a_release(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = release(tmp_path / "release")
    publish(ledger, folder)
    (folder / "empty").mkdir()
    with pytest.raises(ContractBroken, match=CHANGED):
        verified(ledger, folder)
    (folder / "empty").rmdir()
    assert verified(ledger, folder)
    listed = os.listdir

    def unlisted(path: os.PathLike[str] | str) -> list[str]:
        if Path(path).name == "sub":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "listdir", unlisted)
    with pytest.raises(BadInput, match=r"Expected all of .* to be readable: "):
        verified(ledger, folder)


def test_a_release_without_its_salt_or_with_a_link_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    folder = release(tmp_path / "release")
    publish(ledger, folder)
    (folder / "link").symlink_to(tmp_path / "ledger.sqlite")
    with pytest.raises(BadInput, match="no symbolic link"):
        verified(ledger, folder)
    (folder / "link").unlink()
    (folder / "winner.json").unlink()
    with pytest.raises(BadInput, match=r"winner\.json to be there"):
        verified(ledger, folder)


def test_a_rebuilt_release_is_a_new_line_and_the_old_one_stays_whole(tmp_path: Path, ledger: Ledger) -> None:
    folder = release(tmp_path / "release")
    publish(ledger, folder)
    publish(ledger, folder)
    (folder / "README.md").write_text("a card")
    publish(ledger, folder)
    kinds = [entry.kind for entry in ledger.statement("digits").entries]
    assert kinds == ["open", "charge", "release", "manifest", "manifest"]
    assert "later" not in verified(ledger, folder)
    (folder / "README.md").unlink()
    assert ", and a later one was made on " in verified(ledger, folder)
    publish(ledger, folder)
    assert "later" not in verified(ledger, folder)


def test_an_export_is_no_release(tmp_path: Path, ledger: Ledger) -> None:
    folder = release(tmp_path / "export")
    publish(ledger, folder)
    assert "Its export is the one of" in verified(ledger, folder)
    folder.rename(tmp_path / "release")
    with pytest.raises(ContractBroken, match="those of no release"):
        verified(ledger, tmp_path / "release")


def test_a_second_winner_adds_no_line_at_all(tmp_path: Path, ledger: Ledger) -> None:
    folder = release(tmp_path / "release")
    publish(ledger, folder)
    entries = ledger.statement("digits").entries
    (folder / "README.md").write_text("a card")
    with pytest.raises(BadInput, match="its charge pays for one winner"):
        publish(ledger, folder, winner="another")
    assert ledger.statement("digits").entries == entries


def test_the_line_tells_nothing_without_the_salt(tmp_path: Path) -> None:
    """The same files with another salt have another digest, and a line has no more than a digest and its folder."""
    one, other = (release(tmp_path / name, secret=name) for name in ("one", "other"))
    assert digest(one) != digest(other)
    few = release(tmp_path / "few", {"report.html": ""})
    lengths = {
        len(json.dumps(ReleaseManifest(charge="c", folder="release", manifest=digest(folder)).to_json()))
        for folder in (one, few)
    }
    assert len(lengths) == 1


def test_a_release_is_one_of_a_charge_of_its_plan(ledger: Ledger) -> None:
    charge_cost(ledger, "digits", plan="q", trials=["a"], cost=ONE)
    other = ledger.attempts_of_plan("digits", "q").charges[0].digest
    start = ledger.statement("digits").entries[0].digest
    for charge in ("c" * 64, other, start):
        manifest = ReleaseManifest(charge=charge, folder="release", manifest="m")
        with pytest.raises(BadInput, match="to be a charge of plan p on digits"):
            record_release(ledger, "digits", plan="p", winner=Released(charge=charge, winner="w"), manifest=manifest)
    assert not ledger.attempts_of_plan("digits", "p").released
