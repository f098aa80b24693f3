"""A ledger that was lost is refused by whatever opens it, and restored at no lower sum than it had."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dpsweep.accounting.chain.entries import Kind
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.events.build import PlanEvent, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.composition_policy import Addition, Policy, RenyiFilter
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint
from dpsweep.accounting.ledger.ledger import ADDITION, Ledger
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.ledger.remembered_ends import RememberedEnd
from dpsweep.accounting.ledger.restore import Receipts, restore
from tests.accounting.books import processes
from tests.databases import Place, Server

BUDGET = Guarantee(epsilon=24.0, delta=3e-4)
HIGHER = Guarantee(epsilon=30.0, delta=4e-4)
ONE = Guarantee(epsilon=1.0, delta=1e-5)
FILTER = RenyiFilter(order=4.0, epsilon=20.0, delta=9e-5)
EVENT = PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5), 20))
OLD = "an older copy"


def charge(ledger: Ledger, plan: str, account: str = "digits") -> str:
    return ledger.charge(account, plan=plan, trials=["a"], cost=ONE, record={"reason": "plan"}, event=EVENT).digest


def reserved(ledger: Ledger, account: str = "digits") -> dict[str, float]:
    return {name: float(amount) for name, amount in ledger.statement(account).balance.reserved.items()}


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for account in ledger.accounts() for entry in ledger.statement(account).entries]


def copied(place: Place) -> Callable[[], None]:
    """Copies the lines of a ledger now; what is returned puts the copy into its place."""
    with closing(place.connect()) as connection:
        rows = connection.execute("SELECT * FROM entries ORDER BY seq").fetchall()

    def put_back() -> None:
        place.tamper("DELETE FROM entries")
        with closing(place.connect()) as connection:
            for row in rows:
                connection.execute(f"INSERT INTO entries VALUES ({', '.join([place.mark] * len(row))})", row)
            connection.commit()

    return put_back


def emptied(place: Place) -> None:
    place.tamper("DELETE FROM entries")


def without_tables(place: Place) -> None:
    place.run("DROP TABLE entries", "DROP TABLE schema")


def without_file(place: Place) -> None:
    if "://" in place.address:
        without_tables(place)
    else:
        shutil.rmtree(Path(place.address).parent)


def of_no_bytes(place: Place) -> None:
    without_file(place)
    if "://" not in place.address:
        Path(place.address).parent.mkdir()
        Path(place.address).touch()


LOSSES = [emptied, without_tables, without_file, of_no_bytes]
Loss = Callable[[Place], None]


def lived(place: Place, policy: Policy = ADDITION) -> tuple[Ledger, Callable[[], None]]:
    """A ledger with a history, and what puts an older copy of it back."""
    ledger = Ledger(place.address)
    ledger.open("digits", BUDGET, policy)
    ledger.open("mnist", BUDGET)
    charge(ledger, "p")
    put_back = copied(place)
    charge(ledger, "q")
    ledger.record_outside("digits", ONE, "a pilot study")
    ledger.raise_budget("digits", HIGHER)
    charge(ledger, "r", "mnist")
    ledger.close("mnist")
    ledger.open("adult", BUDGET)
    charge(ledger, "s", "adult")
    return ledger, put_back


OPENINGS: dict[str, Callable[[Ledger], object]] = {
    "show": lambda ledger: ledger.statement("digits"),
    "accounts": lambda ledger: ledger.accounts(),
    "end": lambda ledger: ledger.end(),
    "data_sets": lambda ledger: ledger.data_sets(),
    "open": lambda ledger: ledger.open("new", BUDGET),
    "find": lambda ledger: ledger.find("digits", BUDGET),
    "use": lambda ledger: ledger.use("digits", BUDGET),
    "raise": lambda ledger: ledger.raise_budget("digits", HIGHER),
    "close": lambda ledger: ledger.close("digits"),
    "charge": lambda ledger: charge(ledger, "t"),
    "outside": lambda ledger: ledger.record_outside("digits", ONE, "elsewhere"),
    "start": lambda ledger: ledger.start("digits", plan="p", trials=["a"]),
    "resume": lambda ledger: ledger.resume("digits", plan="p", trials=["a"]),
    "settle": lambda ledger: ledger.settle("digits", plan="p", ended=[]),
    "recognise": lambda ledger: ledger.recognise("digits", Fingerprint(key_id="0" * 64, files=("1" * 64,))),
    "verify": lambda ledger: ledger.verify(),
}


@pytest.mark.parametrize("loss", [OLD, *LOSSES])
def test_whatever_opens_a_ledger_that_was_lost_refuses_it(place: Place, loss: Loss | str) -> None:
    """Without `verify` ever having been called."""
    _, put_back = lived(place)
    put_back() if isinstance(loss, str) else loss(place)
    for name, opening in OPENINGS.items():
        with pytest.raises(LedgerDamaged, match=r"10 that this machine remembers.*`dpsweep budget restore`"):
            opening(Ledger(place.address))
        assert name


@pytest.mark.parametrize("policy", [Addition(), FILTER], ids=["addition", "filter"])
@pytest.mark.parametrize("loss", [OLD, *LOSSES])
def test_what_is_remembered_is_charged_raised_and_closed_again(place: Place, loss: Loss | str, policy: Policy) -> None:
    ledger, put_back = lived(place, policy)
    before = {account: ledger.statement(account) for account in ledger.accounts()}
    put_back() if isinstance(loss, str) else loss(place)
    told = " ".join(restore(place.address, backup=None, folders=()))
    assert "This machine remembers 10 entries" in told
    assert "mnist: epsilon 1.0 and delta 1e-05 charged" in told
    again = Ledger(place.address)
    for account, statement in before.items():
        after = again.statement(account)
        assert after.reserved >= statement.reserved
        assert after.reserved == pytest.approx(statement.reserved, rel=1e-12)
        assert (after.budget, after.policy, after.balance.closed) == (
            statement.budget,
            statement.policy,
            statement.balance.closed,
        )
        (line,) = [entry for entry in after.entries if entry.kind == Kind.RESTORED]
        assert line.body["remembered"]["entries"] == 10
    lines = again.verify()
    charge(again, "t")
    assert restore(place.address, backup=None, folders=()) == ()
    assert again.verify() == lines + 1


def test_nothing_is_restored_where_nothing_is_missing(place: Place, tmp_path: Path) -> None:
    lived(place)
    assert restore(place.address, backup=None, folders=()) == ()
    assert restore(tmp_path / "nowhere" / "ledger.sqlite", backup=None, folders=()) == ()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("loss", [OLD, *LOSSES])
def test_a_backup_gives_its_own_lines_back(place: Place, tmp_path: Path, loss: Loss | str) -> None:
    ledger, put_back = lived(place)
    before = {account: ledger.statement(account) for account in ledger.accounts()}
    backup = backup_of(place, tmp_path)
    charge(ledger, "later")
    whole = reserved(ledger)
    put_back() if isinstance(loss, str) else loss(place)
    told = restore(place.address, backup=backup, folders=())
    assert "to 10 of" in told[0]
    again = Ledger(place.address)
    assert reserved(again) == whole
    for account, statement in before.items():
        assert again.statement(account).entries[: len(statement.entries)] == statement.entries
    assert again.verify() == 13, "what the backup does not have is charged, and a line on each account"
    assert restore(place.address, backup=backup, folders=()) == ()


def backup_of(place: Place, folder: Path) -> Path:
    backup = folder / "backup.sqlite"
    Ledger(backup)._chain.make()
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
    restore(place.address, backup=backup, folders=())
    assert reserved(Ledger(place.address)) == before
    assert kinds(Ledger(place.address)).count("restored") == 3, "on the record, though nothing was charged"


def test_a_backup_that_is_none_of_this_ledger_is_refused(place: Place, tmp_path: Path) -> None:
    lived(place)
    other = Ledger(tmp_path / "other.sqlite")
    other.open("digits", BUDGET)
    for _ in range(20):
        charge(other, "p")
    for backup, sentence in ((tmp_path / "other.sqlite", "to begin with the 10"), (tmp_path / "none", "a copy of a")):
        with pytest.raises(BadInput, match=sentence):
            restore(place.address, backup=backup, folders=())
    assert Ledger(place.address).verify() == 10


def test_an_altered_line_is_not_repaired(place: Place, tmp_path: Path) -> None:
    ledger, _ = lived(place)
    backup = backup_of(place, tmp_path)
    place.tamper("UPDATE entries SET plan = 'other' WHERE seq = 3")
    with pytest.raises(LedgerDamaged, match="Entry 3 of"):
        restore(place.address, backup=None, folders=())
    if ledger.path is None:
        with pytest.raises(LedgerDamaged, match=r"Entry 3 of .* not put aside from here"):
            restore(place.address, backup=backup, folders=())
        return
    told = restore(place.address, backup=backup, folders=())
    assert "It was put aside as" in told[0]
    (aside,) = ledger.path.parent.glob("*.damaged-*")
    assert Path(told[0].rpartition(" as ")[2].rstrip(".")) == aside
    assert ledger.verify() == 13, "and on the record"
    with pytest.raises(LedgerDamaged, match="Entry 3 of"):
        Ledger(aside).verify()


@pytest.mark.parametrize("content", [b"no database at all" * 99, b""])
def test_a_file_that_is_no_ledger_is_put_aside_for_a_backup(tmp_path: Path, content: bytes) -> None:
    ledger = Ledger(tmp_path / "books" / "ledger.sqlite")
    ledger.open("digits", BUDGET)
    charge(ledger, "p")
    assert ledger.path is not None
    backup = tmp_path / "backup.sqlite"
    shutil.copy(ledger.path, backup)
    for part in ledger.path.parent.iterdir():
        part.unlink()
    ledger.path.write_bytes(content)
    restore(ledger.path, backup=backup, folders=())
    assert reserved(ledger) == {"epsilon": 1.0, "delta": 1e-5}
    assert [part.read_bytes() for part in ledger.path.parent.glob("*.damaged-*")] == ([content] if content else [])


def test_a_damaged_file_that_is_in_use_stays(tmp_path: Path) -> None:
    import sqlite3

    ledger = Ledger(tmp_path / "books" / "ledger.sqlite")
    ledger.open("digits", BUDGET)
    assert ledger.path is not None
    shutil.copy(ledger.path, tmp_path / "backup.sqlite")
    with closing(sqlite3.connect(ledger.path)) as user:
        user.execute("DROP TRIGGER entries_refuse_update")
        user.execute("UPDATE entries SET plan = 'other'")
        user.commit()
        user.execute("BEGIN")
        user.execute("SELECT * FROM entries").fetchall()
        with pytest.raises(LedgerDamaged, match="in use, so it is not put aside"):
            restore(ledger.path, backup=tmp_path / "backup.sqlite", folders=())
    assert ledger.path.exists()


def test_lines_that_somebody_added_to_an_older_copy_are_charged_beside_the_lost_ones(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that does not know of the loss goes on; the one that does counts both."""
    ledger, put_back = lived(place)
    before = reserved(ledger)
    put_back()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        charge(Ledger(place.address), "t")
        assert reserved(Ledger(place.address))["epsilon"] == 2.0
    restore(place.address, backup=None, folders=())
    assert reserved(Ledger(place.address))["epsilon"] == before["epsilon"] + 1.0
    assert restore(place.address, backup=None, folders=()) == ()


def test_two_machines_that_remember_the_same_lines_charge_them_once(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, put_back = lived(place)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        Ledger(place.address).verify()
        charge(Ledger(place.address), "seen there alone")
    with monkeypatch.context() as elsewhere:
        whole = reserved(Ledger(place.address))
        put_back()
        restore(place.address, backup=None, folders=())
        assert reserved(Ledger(place.address))["epsilon"] == whole["epsilon"] - 1.0
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        with pytest.raises(LedgerDamaged, match="this machine remembers"):
            Ledger(place.address).statement("digits")
        restore(place.address, backup=None, folders=())
    assert reserved(Ledger(place.address)) == whole


def test_an_account_that_was_opened_anew_with_another_policy_takes_the_converted_amounts(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = lived(place, FILTER)
    promised = ledger.statement("digits").reserved
    emptied(place)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        Ledger(place.address).open("digits", Guarantee(epsilon=2.0, delta=1e-6))
    told = restore(place.address, backup=None, folders=())
    again = Ledger(place.address).statement("digits")
    assert again.reserved[0] >= promised[0]
    assert again.reserved[1] >= promised[1]
    assert again.budget == HIGHER
    assert not any("More" in sentence for sentence in told)


def test_a_restoration_that_was_interrupted_before_it_was_remembered_is_not_charged_twice(place: Place) -> None:
    ledger, put_back = lived(place)
    before = reserved(ledger)
    remembered = RememberedEnd(place=ledger.name)
    files = {path: path.read_bytes() for path in (remembered.path, remembered.digests().path)}
    put_back()
    restore(place.address, backup=None, folders=())
    count = Ledger(place.address).verify()
    for path, content in files.items():
        path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match="this machine remembers"):
        Ledger(place.address).statement("digits")
    assert "An earlier restoration is on the record" in restore(place.address, backup=None, folders=())[0]
    assert reserved(Ledger(place.address)) == before
    assert Ledger(place.address).verify() == count
    assert restore(place.address, backup=None, folders=()) == ()


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


def test_an_old_memory_knows_no_amounts_and_folders_must_be_named(place: Place, tmp_path: Path) -> None:
    ledger, put_back = lived(place)
    charge(ledger, "p")
    receipts = ledger.start("digits", plan="p", trials=["a"]) + ledger.start("digits", plan="p", trials=["a"])
    remembered = RememberedEnd(place=ledger.name)
    form = json.loads(remembered.path.read_text())
    remembered.path.write_text(json.dumps({key: form[key] for key in ("ledger", "entries", "head")}))
    remembered.digests().path.unlink()
    put_back()
    with pytest.raises(LedgerDamaged, match="Name every sweep folder"):
        restore(place.address, backup=None, folders=())
    with pytest.raises(LedgerDamaged, match="13 that this machine remembers"):
        Ledger(place.address).statement("digits")
    told = restore(place.address, backup=None, folders=[receipts_of(tmp_path, *receipts)])
    assert "not what they took" in told[0]
    assert "1 times its whole price" in told[1], "the first charge of the plan is in the copy"
    again = Ledger(place.address)
    assert reserved(again)["epsilon"] == 2.0
    assert restore(place.address, backup=None, folders=[receipts_of(tmp_path, *receipts)]) == ()
    assert RememberedEnd(place=ledger.name).read().balances is not None


def test_an_old_memory_of_a_ledger_that_is_gone_is_never_forgotten(place: Place, tmp_path: Path) -> None:
    ledger, _ = lived(place)
    remembered = RememberedEnd(place=ledger.name)
    form = json.loads(remembered.path.read_text())
    remembered.path.write_text(json.dumps({key: form[key] for key in ("ledger", "entries", "head")}))
    emptied(place)
    with pytest.raises(LedgerDamaged, match="Name every sweep folder"):
        restore(place.address, backup=None, folders=[receipts_of(tmp_path)])
    with pytest.raises(LedgerDamaged, match="this machine remembers"):
        Ledger(place.address).open("digits", BUDGET)


def test_an_old_memory_of_a_ledger_that_is_there_is_completed(place: Place) -> None:
    ledger, _ = lived(place)
    remembered = RememberedEnd(place=ledger.name)
    whole = remembered.read()
    form = json.loads(remembered.path.read_text())
    remembered.path.write_text(json.dumps({key: form[key] for key in ("ledger", "entries", "head")}))
    remembered.digests().path.unlink()
    ledger.verify()
    assert remembered.read() == whole
    assert len(remembered.digests().read()) == 80


def test_receipts_behind_the_remembered_end_are_charged_once_and_others_not(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, put_back = lived(place)
    charge(ledger, "p")
    ledger.start("digits", plan="p", trials=["a"])
    (covered,) = ledger.start("digits", plan="p", trials=["a"])
    before = reserved(ledger)["epsilon"]
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        charge(Ledger(place.address), "p")
        (later,) = Ledger(place.address).start("digits", plan="p", trials=["a"])
    put_back()
    folders = [receipts_of(tmp_path / "one", covered), receipts_of(tmp_path / "two", later, spares=9)]
    told = restore(place.address, backup=None, folders=folders)
    assert [sentence for sentence in told if "by receipts" in sentence] == [told[-1]]
    assert reserved(Ledger(place.address))["epsilon"] == before + 1.0
    assert restore(place.address, backup=None, folders=folders) == (), "also where the old memory is known no more"


def test_receipts_open_an_account_that_nobody_knows(place: Place, tmp_path: Path) -> None:
    ledger, _ = lived(place)
    with_receipt = Ledger(tmp_path / "elsewhere.sqlite")
    with_receipt.open("new", BUDGET)
    charge(with_receipt, "p", "new")
    (receipt,) = with_receipt.start("new", plan="p", trials=["a"])
    restore(place.address, backup=None, folders=[receipts_of(tmp_path, receipt, account="new")])
    assert ledger.statement("new").reserved == (1.0, 1e-5)
    assert ledger.statement("new").budget == BUDGET


def test_sums_beyond_the_budget_are_recorded_and_said(place: Place) -> None:
    ledger = Ledger(place.address)
    ledger.open("digits", BUDGET)
    ledger.record_outside("digits", Guarantee(epsilon=30.0, delta=0.0), "somebody else")
    emptied(place)
    assert "More epsilon is reserved on digits now" in restore(place.address, backup=None, folders=())[-1]


def _restore(pipe: object, address: str) -> None:
    pipe.send(restore(address, backup=None, folders=()))  # type: ignore[attr-defined]


def test_two_processes_restore_a_ledger_once(place: Place) -> None:
    ledger, put_back = lived(place)
    before = reserved(ledger)
    put_back()
    with processes(_restore, [(place.address,)] * 2) as pipes:
        told = [pipe.recv() for pipe in pipes]
    assert sum("charged" in " ".join(sentences) for sentences in told) == 1
    assert reserved(Ledger(place.address)) == before
    assert restore(place.address, backup=None, folders=()) == ()


def _charge(pipe: object, address: str, count: int) -> None:
    for number in range(count):
        charge(Ledger(address), f"p{number}")
    pipe.send(None)  # type: ignore[attr-defined]


def test_two_processes_that_charge_at_once_remember_all_of_it(place: Place) -> None:
    ledger = Ledger(place.address)
    ledger.open("digits", BUDGET)
    with processes(_charge, [(place.address, 8)] * 2) as pipes:
        for pipe in pipes:
            pipe.recv()
    memory = RememberedEnd(place=ledger.name)
    assert memory.read().end == ledger.end()
    emptied(place)
    restore(place.address, backup=None, folders=())
    assert reserved(ledger)["epsilon"] == 16.0


def test_a_password_is_not_remembered(server: Server) -> None:
    place = server.place()
    address = place.address.replace("postgres@", "postgres:secret@")
    ledger = Ledger(address)
    ledger.open("digits", BUDGET)
    emptied(place)
    told = restore(address, backup=None, folders=())
    assert "secret" not in " ".join(told) + RememberedEnd(place=ledger.name).path.read_text()


def test_a_state_that_cannot_be_written_is_said_before_anything_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open("digits", BUDGET)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerDamaged, match=r"cannot be remembered in .*: Not a directory; XDG_STATE_HOME"):
        charge(ledger, "p")
    assert reserved(ledger) == {}, "and it can still be shown"
