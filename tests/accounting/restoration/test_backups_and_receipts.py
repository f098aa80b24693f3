"""A ledger that was lost is restored by a backup or by receipts in sweep folders; they charge nothing twice."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.restoration.restore import restore_ledger_and_describe
from dpsweep.accounting.restoration.restored_lines import Receipts
from tests.accounting.losses import (
    BUDGET,
    EVENT,
    LOSSES,
    OLD,
    ONE,
    Loss,
    charge,
    kinds,
    lived,
    reserved,
    without_file,
)
from tests.databases import Place


@pytest.mark.parametrize("loss", [OLD, *LOSSES])
def test_a_backup_gives_its_own_lines_back(place: Place, tmp_path: Path, loss: Loss | str) -> None:
    ledger, put_back = lived(place)
    before = {account: ledger.statement(account) for account in ledger.account_names()}
    backup = backup_of(place, tmp_path)
    charge(ledger, "later")
    whole = reserved(ledger)
    put_back() if isinstance(loss, str) else loss(place)
    told = restore_ledger_and_describe(place.address, backup=backup, folders=())
    assert "to 10 of" in told[0]
    again = Ledger(place.address)
    assert reserved(again) == whole
    for account, statement in before.items():
        assert again.statement(account).entries[: len(statement.entries)] == statement.entries
    plans = 4 * len(("start", "settle", "launch"))
    assert again.verify_and_count_entries() == 13 + plans, (
        "what the backup lacks is charged, and what it pays for counts as used"
    )
    assert restore_ledger_and_describe(place.address, backup=backup, folders=()) == ()


def backup_of(place: Place, folder: Path) -> Path:
    backup = folder / "backup.sqlite"
    Ledger(backup)._chain.create_if_missing()
    with closing(place.connect()) as connection:
        rows = connection.execute("SELECT * FROM entries ORDER BY seq").fetchall()
    import sqlite3

    with closing(sqlite3.connect(backup)) as copy:
        copy.executemany(f"INSERT INTO entries VALUES ({', '.join('?' * len(rows[0]))})", rows)
        copy.commit()
    return backup


def test_a_backup_alone_makes_a_ledger_on_a_machine_that_knows_none(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = lived(place)
    backup, before = backup_of(place, tmp_path), reserved(ledger)
    without_file(place)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    restore_ledger_and_describe(place.address, backup=backup, folders=())
    assert reserved(Ledger(place.address)) == before
    assert kinds(Ledger(place.address)).count("restored") == 3, "on the record, though nothing was charged"


def test_a_backup_that_is_none_of_this_ledger_is_refused(place: Place, tmp_path: Path) -> None:
    lived(place)
    other = Ledger(tmp_path / "other.sqlite")
    other.open_account("digits", BUDGET)
    for _ in range(20):
        charge(other, "p")
    for backup, sentence in ((tmp_path / "other.sqlite", "to begin with the 10"), (tmp_path / "none", "a copy of a")):
        with pytest.raises(BadInput, match=sentence):
            restore_ledger_and_describe(place.address, backup=backup, folders=())
    assert Ledger(place.address).verify_and_count_entries() == 10


def test_an_altered_line_is_not_repaired(place: Place, tmp_path: Path) -> None:
    ledger, _ = lived(place)
    backup = backup_of(place, tmp_path)
    place.tamper("UPDATE entries SET plan = 'other' WHERE seq = 3")
    with pytest.raises(LedgerDamaged, match="Entry 3 of"):
        restore_ledger_and_describe(place.address, backup=None, folders=())
    if ledger.path is None:
        with pytest.raises(LedgerDamaged, match=r"Entry 3 of .* not put aside from here"):
            restore_ledger_and_describe(place.address, backup=backup, folders=())
        return
    told = restore_ledger_and_describe(place.address, backup=backup, folders=())
    assert "It was put aside as" in told[0]
    (aside,) = ledger.path.parent.glob("*.damaged-*")
    assert Path(told[0].rpartition(" as ")[2].rstrip(".")) == aside
    assert ledger.verify_and_count_entries() == 13, "and on the record"
    with pytest.raises(LedgerDamaged, match="Entry 3 of"):
        Ledger(aside).verify_and_count_entries()


@pytest.mark.parametrize("content", [b"no database at all" * 99, b""])
def test_a_file_that_is_no_ledger_is_put_aside_for_a_backup(tmp_path: Path, content: bytes) -> None:
    ledger = Ledger(tmp_path / "books" / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    charge(ledger, "p")
    assert ledger.path is not None
    backup = tmp_path / "backup.sqlite"
    shutil.copy(ledger.path, backup)
    for part in ledger.path.parent.iterdir():
        part.unlink()
    ledger.path.write_bytes(content)
    restore_ledger_and_describe(ledger.path, backup=backup, folders=())
    assert reserved(ledger) == {"epsilon": 1.0, "delta": 1e-5}
    assert [part.read_bytes() for part in ledger.path.parent.glob("*.damaged-*")] == ([content] if content else [])


def test_a_damaged_file_that_is_in_use_stays(tmp_path: Path) -> None:
    import sqlite3

    ledger = Ledger(tmp_path / "books" / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    assert ledger.path is not None
    shutil.copy(ledger.path, tmp_path / "backup.sqlite")
    with closing(sqlite3.connect(ledger.path)) as user:
        user.execute("DROP TRIGGER entries_refuse_update")
        user.execute("UPDATE entries SET plan = 'other'")
        user.commit()
        user.execute("BEGIN")
        user.execute("SELECT * FROM entries").fetchall()
        with pytest.raises(LedgerDamaged, match="in use, so it is not put aside"):
            restore_ledger_and_describe(ledger.path, backup=tmp_path / "backup.sqlite", folders=())
    assert ledger.path.exists()


def receipts_of(folder: Path, *receipts: Receipt, account: str = "digits", spares: int = 0) -> Receipts:
    return Receipts(
        folder=folder,
        account=account,
        plan="p",
        budget=BUDGET,
        cost=ONE,
        event=EVENT,
        receipts=receipts,
        spares=spares,
    )


def test_receipts_behind_the_remembered_end_are_charged_once_and_others_not(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, put_back = lived(place)
    charge(ledger, "p")
    ledger.record_starts_and_return_receipts("digits", plan="p", trials=["a"])
    (covered,) = ledger.record_starts_and_return_receipts("digits", plan="p", trials=["a"])
    before = reserved(ledger)["epsilon"]
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        charge(Ledger(place.address), "p")
        (later,) = Ledger(place.address).record_starts_and_return_receipts("digits", plan="p", trials=["a"])
    put_back()
    folders = [receipts_of(tmp_path / "one", covered), receipts_of(tmp_path / "two", later, spares=9)]
    told = restore_ledger_and_describe(place.address, backup=None, folders=folders)
    assert [sentence for sentence in told if "by receipts" in sentence] == [told[-2]]
    assert reserved(Ledger(place.address))["epsilon"] == before + 1.0
    assert restore_ledger_and_describe(place.address, backup=None, folders=folders) == (), (
        "also where the old memory is known no more"
    )


def test_receipts_open_an_account_that_nobody_knows(place: Place, tmp_path: Path) -> None:
    ledger, _ = lived(place)
    with_receipt = Ledger(tmp_path / "elsewhere.sqlite")
    with_receipt.open_account("new", BUDGET)
    charge(with_receipt, "p", "new")
    (receipt,) = with_receipt.record_starts_and_return_receipts("new", plan="p", trials=["a"])
    restore_ledger_and_describe(place.address, backup=None, folders=[receipts_of(tmp_path, receipt, account="new")])
    assert ledger.statement("new").reserved_epsilon_and_delta == (1.0, 1e-5)
    assert ledger.statement("new").budget == BUDGET
