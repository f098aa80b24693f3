"""A ledger's lines come back from its mirrors, whatever was lost; two ledgers with one beginning are told apart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.chain.sqlite_file import SqliteSession
from dpsweep.accounting.errors import BadInput, ContractBroken, LedgerDamaged
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger import restoration
from dpsweep.accounting.ledger.book import Ended, Fingerprint, Launched, Mirrored, Released, ReleaseManifest
from dpsweep.accounting.ledger.data_fingerprint import known_data, record_data
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.mirror import Mirror, named_mirrors, own_mirror
from dpsweep.accounting.ledger.restoration import restore_ledger
from dpsweep.accounting.ledger.upkeep import charge_outside, drop_mirror, name_mirror, raise_budget, verify_entries
from dpsweep.accounting.records.released_files import record_release
from tests.accounting.books import processes
from tests.accounting.losses import BUDGET, FILTER, HIGHER, LOSSES, ONE, Loss, charge, lived, reserved
from tests.charges import charge_cost, start_attempts
from tests.databases import Place, Server, in_file

DATA = Fingerprint(key_id="0" * 64, files=("1" * 64,))
ENDED = Ended(trial="a", attempt=1, resume=0, realised={"status": "finished", "result": "0" * 64})
FORK = "have a common beginning and then other lines each"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that a snapshot of a machine holds: its ledger and the user's own mirrors."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "machine" / "state"))
    (tmp_path / "machine").mkdir()
    return tmp_path / "machine"


def on(machine: Path) -> Ledger:
    return Ledger(machine / "books" / "ledger.sqlite")


def begun(machine: Path) -> Ledger:
    """A ledger with a charge on which one attempt has begun."""
    ledger = on(machine)
    ledger.open_account("digits", BUDGET)
    pay(ledger, "p")
    start_attempts(ledger, "digits", plan="p", trials=["a"])
    return ledger


def pay(ledger: Ledger, plan: str) -> str:
    return charge_cost(ledger, "digits", plan=plan, trials=["a", "b"], cost=ONE).digest


def release(ledger: Ledger) -> None:
    charge = ledger.attempts_of_plan("digits", "p").charges[0].digest
    files = ReleaseManifest(charge=charge, folder="release", manifest="m" * 64)
    record_release(ledger, "digits", plan="p", winner=Released(charge=charge, winner="w" * 64), manifest=files)


STEPS: dict[str, Callable[[Ledger], object]] = {
    "raise": lambda ledger: raise_budget(ledger, "digits", HIGHER),
    "data": lambda ledger: record_data(ledger, "digits", DATA),
    "charge": lambda ledger: pay(ledger, "q"),
    "outside": lambda ledger: charge_outside(ledger, "digits", ONE, "elsewhere"),
    "start": lambda ledger: start_attempts(ledger, "digits", plan="p", trials=["b"]),
    "resume": lambda ledger: ledger.resume("digits", plan="p", trials=["a"]),
    "launch": lambda ledger: ledger.launch("digits", plan="p", nonce="n" * 32),
    "settle": lambda ledger: ledger.end("digits", plan="p", ended=[ENDED]),
    "release": release,
}


def named(ledger: Ledger) -> tuple[Path, ...]:
    with ledger.chain.read_transaction() as lines:
        assert lines is not None
        return tuple(mirror.path for mirror in named_mirrors(lines)[0])


def entries(ledger: Ledger, account: str = "digits") -> list[Any]:
    return list(ledger.statement(account).entries)


def rows_of(mirror: Mirror) -> list[Any]:
    return [row["digest"] for row in mirror.rows()]


@pytest.mark.parametrize("policy", [None, FILTER], ids=["addition", "filter"])
@pytest.mark.parametrize("loss", ["an older copy", *LOSSES])
def test_lines_that_a_file_lost_come_back_as_they_were(tmp_path: Path, loss: Loss | str, policy: Any) -> None:
    place = in_file(tmp_path / "books" / "ledger.sqlite")
    ledger, put_back = lived(place) if policy is None else lived(place, policy)
    before = {account: entries(ledger, account) for account in ledger.account_names()}
    put_back() if isinstance(loss, str) else loss(place)
    again = Ledger(place.address)
    for account, lines in before.items():
        after = entries(again, account)
        assert after[: len(lines)] == lines
        assert {entry.kind for entry in after[len(lines) :]} <= {Launched.kind}
        assert again.statement(account).balance == ledger.statement(account).balance
    count = verify_entries(again.chain)
    charge(again, "t")
    assert verify_entries(again.chain) == count + 1
    assert restore_ledger(again.chain) == ()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_server_that_lost_its_lines_is_not_opened_anew(server: Server, loss: Loss) -> None:
    """It has a mirror only where one is named; what this machine knows of the place says that a ledger was there."""
    place = server.place()
    lived(place)
    loss(place)
    for work in (Ledger(place.address).account_names, lambda: Ledger(place.address).open_account("new", BUDGET)):
        with pytest.raises(LedgerDamaged, match="not the one that this machine remembers there"):
            work()


def test_lines_of_a_server_come_back_from_the_mirror_that_it_names(server: Server, tmp_path: Path) -> None:
    place = server.place()
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    with pytest.raises(BadInput, match="Expected a file for the mirror"):
        name_mirror(ledger.chain, None)
    name_mirror(ledger.chain, tmp_path / "mirror.jsonl")
    charge(ledger, "p")
    before = entries(ledger)
    place.tamper("DELETE FROM entries WHERE seq = 3")
    place.run("ALTER TABLE entries ENABLE TRIGGER ALL")
    assert entries(Ledger(place.address))[:3] == before


@pytest.mark.parametrize("step", STEPS)
def test_a_line_is_in_the_mirror_when_the_step_returns(machine: Path, step: str) -> None:
    ledger = begun(machine)
    STEPS[step](ledger)
    assert rows_of(own_mirror(ledger.chain.identity())) == [entry.digest for entry in entries(ledger)]
    assert own_mirror(ledger.chain.identity()).path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before its commit", "before its mirror"])
def test_a_killed_command_makes_no_false_fork(
    machine: Path, step: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed is mirrored by the next command that writes, and what was not is nowhere."""
    ledger = begun(machine)
    mirror, before = own_mirror(ledger.chain.identity()), entries(ledger)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        if when == "before its commit":
            killed.setattr(SqliteSession, "commit", die)
        else:
            killed.setattr(Mirror, "follow", die)
        with pytest.raises(KeyboardInterrupt):
            STEPS[step](ledger)
    committed = entries(on(machine))
    assert (len(committed) > len(before)) == (when == "before its mirror")
    assert rows_of(mirror) == [entry.digest for entry in before]
    pay(on(machine), "r")
    assert rows_of(mirror) == [entry.digest for entry in entries(on(machine))]
    assert [entry.digest for entry in entries(on(machine))][: len(committed)] == [one.digest for one in committed]


@pytest.mark.parametrize("step", STEPS)
def test_a_machine_that_was_put_back_gets_its_lines_from_a_mirror_elsewhere(
    machine: Path, tmp_path: Path, step: str
) -> None:
    """Its store may be older than the lines, so what they started is void."""
    ledger = begun(machine)
    name_mirror(ledger.chain, tmp_path / "far.jsonl")
    shutil.copytree(machine, tmp_path / "snapshot")
    STEPS[step](ledger)
    before = entries(ledger)
    shutil.rmtree(machine)
    shutil.copytree(tmp_path / "snapshot", machine)
    after = entries(on(machine))
    assert after[: len(before)] == before
    launch = on(machine).attempts_of_plan("digits", "p").launch
    assert launch != "n" * 32
    assert (launch is None) == (step in ("raise", "data", "charge", "outside"))


def test_a_machine_that_was_put_back_without_a_mirror_elsewhere_does_not_know_it(machine: Path, tmp_path: Path) -> None:
    """docs/threat-model.md says so."""
    ledger = begun(machine)
    shutil.copytree(machine, tmp_path / "snapshot")
    pay(ledger, "q")
    shutil.rmtree(machine)
    shutil.copytree(tmp_path / "snapshot", machine)
    assert reserved(on(machine))["epsilon"] == 1.0


@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_written_without_a_mirror_that_the_ledger_names(machine: Path, tmp_path: Path, step: str) -> None:
    far = tmp_path / "disk" / "far.jsonl"
    far.parent.mkdir()
    ledger = begun(machine)
    name_mirror(ledger.chain, far)
    count = verify_entries(ledger.chain)
    far.parent.rename(tmp_path / "unmounted")
    with pytest.raises(LedgerDamaged, match=rf"mirror {far} of the ledger .* is gone.*`dpsweep budget mirror {far}`"):
        STEPS[step](on(machine))
    assert verify_entries(on(machine).chain) == count, "and it can be shown"
    (tmp_path / "unmounted").rename(far.parent)
    STEPS[step](on(machine))
    assert rows_of(Mirror(path=far)) == [entry.digest for entry in entries(on(machine))]


def test_a_mirror_is_dropped_on_the_record(machine: Path, tmp_path: Path) -> None:
    ledger = begun(machine)
    name_mirror(ledger.chain, tmp_path / "far.jsonl")
    assert named(ledger) == (tmp_path / "far.jsonl",)
    (tmp_path / "far.jsonl").unlink()
    drop_mirror(ledger.chain, tmp_path / "far.jsonl")
    assert named(ledger) == ()
    assert [entry.kind for entry in entries(ledger)].count(Mirrored.kind) == 2
    pay(ledger, "q")
    with pytest.raises(BadInput, match="to be a mirror that"):
        drop_mirror(ledger.chain, tmp_path / "far.jsonl")


def test_a_mirror_of_another_ledger_is_refused(machine: Path, tmp_path: Path) -> None:
    for ledger in (other := Ledger(machine / "other.sqlite"), on(machine)):
        ledger.open_account("digits", BUDGET)
    name_mirror(other.chain, tmp_path / "far.jsonl")
    with pytest.raises(BadInput, match="has lines of another ledger"):
        name_mirror(on(machine).chain, tmp_path / "far.jsonl")
    with pytest.raises(LedgerDamaged, match="cannot be written: No such file or directory"):
        name_mirror(on(machine).chain, tmp_path / "nowhere" / "far.jsonl")
    with pytest.raises(BadInput, match="to be a ledger"):
        name_mirror(Ledger(machine / "none.sqlite").chain, None)


def test_a_lost_state_folder_is_not_taken_for_a_new_user(machine: Path) -> None:
    ledger = begun(machine)
    shutil.rmtree(machine / "state")
    with pytest.raises(LedgerDamaged, match=r"is gone, .*`dpsweep budget mirror` begins it again"):
        pay(ledger, "q")
    assert reserved(ledger) == {"epsilon": 1.0, "delta": 1e-5}
    name_mirror(on(machine).chain, None)
    pay(on(machine), "q")
    assert rows_of(own_mirror(ledger.chain.identity())) == [entry.digest for entry in entries(on(machine))]


def test_a_state_folder_that_cannot_be_written_is_said_before_anything_is_charged(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(machine / "file"))
    with pytest.raises(LedgerDamaged, match=r"cannot be written: Not a directory; XDG_STATE_HOME"):
        on(machine).open_account("digits", BUDGET)
    assert on(machine).account_names() == ()


def test_a_full_mirror_stops_what_would_be_charged_and_goes_on_when_there_is_room(
    machine: Path, tmp_path: Path
) -> None:
    """/dev/full takes no byte; a torn line of a disk that was full is written again."""
    ledger = begun(machine)
    name_mirror(ledger.chain, far := tmp_path / "far.jsonl")
    kept = far.read_bytes()
    far.unlink()
    far.symlink_to("/dev/full")
    with pytest.raises(LedgerDamaged, match="cannot be written: "):
        pay(on(machine), "q")
    far.unlink()
    far.write_bytes(kept[:-7])
    pay(on(machine), "r")
    assert rows_of(Mirror(path=far)) == [entry.digest for entry in entries(on(machine))]


@pytest.mark.parametrize("content", [b"[1]\n", b"{}\n", b"[\n", b"\xff\n"])
def test_a_damaged_mirror_is_one_sentence_and_no_fork(machine: Path, content: bytes) -> None:
    ledger = begun(machine)
    mirror = own_mirror(ledger.chain.identity())
    whole = mirror.path.read_bytes()
    mirror.path.write_bytes(whole + content)
    with pytest.raises(LedgerDamaged, match=f"mirror {mirror.path} is damaged"):
        pay(ledger, "q")
    lines = whole.splitlines(keepends=True)
    mirror.path.write_bytes(b"".join([lines[0], lines[1].replace(b"1.0", b"0.1"), *lines[2:]]))
    (machine / "books" / "ledger.sqlite").unlink()
    with pytest.raises(LedgerDamaged, match="is damaged: line 2 was altered"):
        on(machine).account_names()


def moved(path: Path) -> Path:
    (path.parents[1] / "elsewhere").mkdir()
    return Path(shutil.move(path, path.parents[1] / "elsewhere"))


def linked(path: Path) -> Path:
    (link := path.parents[1] / "link.sqlite").symlink_to(path)
    return link


def linked_folder(path: Path) -> Path:
    (link := path.parents[1] / "linked").symlink_to(path.parent)
    return link / path.name


def renamed_folder(path: Path) -> Path:
    return path.parent.rename(path.parents[1] / "renamed") / path.name


def copied(path: Path) -> Path:
    return Path(shutil.copy(path, path.with_name("copy.sqlite")))


def hard_linked_alone(path: Path) -> Path:
    os.link(path, other := path.with_name("hard.sqlite"))
    path.unlink()
    return other


@pytest.mark.parametrize("way", [moved, linked, linked_folder, renamed_folder, copied, hard_linked_alone])
def test_an_older_copy_gets_its_lines_by_whatever_path_it_is_opened(machine: Path, way: Callable[[Path], Path]) -> None:
    ledger = begun(machine)
    path = machine / "books" / "ledger.sqlite"
    older = path.read_bytes()
    pay(ledger, "q")
    before, identity = entries(ledger), ledger.chain.identity()
    path.write_bytes(older)
    other = Ledger(way(path))
    assert entries(other)[: len(before)] == before
    assert other.chain.identity() == identity
    pay(other, "r")
    assert rows_of(own_mirror(identity)) == [entry.digest for entry in entries(other)]


def test_two_copies_that_are_both_used_on_one_machine_have_one_budget(machine: Path) -> None:
    ledger = begun(machine)
    copy = Ledger(copied(machine / "books" / "ledger.sqlite"))
    for turn in range(3):
        pay(ledger, f"first{turn}")
        pay(copy, f"second{turn}")
    assert reserved(copy) == reserved(ledger) == {"epsilon": 7.0, "delta": 7e-5}


def forked(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger whose copy went on on another machine, and was then brought here."""
    ledger = begun(machine)
    ledger.end("digits", plan="p", ended=[ENDED])
    path = machine / "books" / "ledger.sqlite"
    shutil.copy(path, tmp_path / "copy.sqlite")
    ledger.launch("digits", plan="p", nonce="n" * 32)
    start_attempts(ledger, "digits", plan="p", trials=["b"])
    record_data(ledger, "digits", DATA)
    raise_budget(ledger, "digits", HIGHER)
    ledger.open_account("mnist", BUDGET)
    charge(ledger, "m", "mnist")
    charge_outside(ledger, "digits", Guarantee(epsilon=2.5, delta=0.0), "a pilot study")
    release(ledger)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        other = Ledger(tmp_path / "copy.sqlite")
        name_mirror(other.chain, None)
        pay(other, "r")
    shutil.copy(tmp_path / "copy.sqlite", path)
    return ledger


def test_a_fork_is_refused_and_restored_with_all_that_both_took(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = forked(machine, tmp_path, monkeypatch)
    for work in (ledger.account_names, lambda: pay(ledger, "s"), partial(verify_entries, ledger.chain)):
        with pytest.raises(LedgerDamaged, match=FORK):
            work()
    said = " ".join(restore_ledger(ledger.chain))
    assert "epsilon 2.5 and delta 0.0 charged for line" in said
    assert "1 attempts that had not ended count as used" not in said
    assert reserved(ledger) == {"epsilon": 1.0 + 1.0 + 2.5, "delta": 2e-5}
    assert reserved(ledger, "mnist") == {"epsilon": 1.0, "delta": 1e-5}
    assert ledger.statement("digits").budget == HIGHER
    assert known_data(ledger) == (("digits", DATA),)
    attempts = ledger.attempts_of_plan("digits", "p")
    assert attempts.final_end("a", 1) == ENDED.realised, "what had ended stays paid"
    assert list(attempts.released.values()) == ["w" * 64]
    assert attempts.launch != "n" * 32
    for plan, trial in (("p", "b"), ("r", "a"), ("r", "b")):
        with pytest.raises(ContractBroken, match="covered by no charge"):
            start_attempts(ledger, "digits", plan=plan, trials=[trial])
    count = verify_entries(ledger.chain)
    assert restore_ledger(ledger.chain) == ()
    pay(ledger, "t")
    assert verify_entries(ledger.chain) == count + 1


def test_a_restoration_that_was_killed_before_its_mirror_charges_nothing_twice(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = forked(machine, tmp_path, monkeypatch)

    def die(_: Mirror) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(restoration, "put_mirror_aside", die)
        with pytest.raises(KeyboardInterrupt):
            restore_ledger(ledger.chain)
    restore_ledger(ledger.chain)
    assert reserved(ledger) == {"epsilon": 1.0 + 1.0 + 2.5, "delta": 2e-5}
    assert restore_ledger(ledger.chain) == ()


def test_two_users_whose_mirrors_have_the_same_lost_lines_charge_them_once(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine that comes with its mirror charges what only it knows."""
    states = [str(tmp_path / name) for name in ("one", "two")]
    path = machine / "books" / "ledger.sqlite"

    def as_user(number: int) -> Ledger:
        monkeypatch.setenv("XDG_STATE_HOME", states[number])
        return on(machine)

    as_user(0).open_account("digits", BUDGET)
    name_mirror(as_user(1).chain, None)
    older = path.read_bytes()
    for turn in range(4):
        pay(as_user(turn % 2), f"p{turn}")
    pay(as_user(1), "known to the second alone")
    path.write_bytes(older)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "three"))
    name_mirror(on(machine).chain, None)
    pay(on(machine), "of the third")
    for number in (0, 1):
        with pytest.raises(LedgerDamaged, match=FORK):
            as_user(number).account_names()
        assert restore_ledger(as_user(number).chain)
    for number in (0, 1):
        assert restore_ledger(as_user(number).chain) == ()
        pay(as_user(number), f"later {number}")
        assert reserved(as_user(number))["epsilon"] == 7.0 + number


def test_two_machines_on_one_mirror_have_one_budget(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of one ledger on two machines; what one of them commits after it was overtaken never returns."""
    ledger = begun(machine)
    name_mirror(ledger.chain, tmp_path / "far.jsonl")
    shutil.copytree(machine, tmp_path / "second")
    pay(ledger, "q")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "second" / "state"))
    second = on(tmp_path / "second")
    assert reserved(second) == {"epsilon": 2.0, "delta": 2e-5}
    overtake = Mirror.follow
    calls = iter(range(9))

    def follow(mirror: Mirror, chain: Any) -> None:
        if mirror.path == tmp_path / "far.jsonl" and next(calls) == 1:
            with monkeypatch.context() as first:
                first.setattr(Mirror, "follow", overtake)
                first.setenv("XDG_STATE_HOME", str(machine / "state"))
                pay(on(machine), "of the first")
        overtake(mirror, chain)

    monkeypatch.setattr(Mirror, "follow", follow)
    with pytest.raises(LedgerDamaged, match=FORK):
        pay(second, "of the second")
    monkeypatch.setattr(Mirror, "follow", overtake)
    with pytest.raises(LedgerDamaged, match=FORK):
        pay(second, "again")
    assert restore_ledger(second.chain)
    assert reserved(second)["epsilon"] == 4.0


def test_a_damaged_file_is_put_aside_and_its_lines_come_from_the_mirror(machine: Path) -> None:
    ledger = begun(machine)
    before = entries(ledger)
    path = machine / "books" / "ledger.sqlite"
    place = in_file(path)
    place.tamper("UPDATE entries SET body = replace(body, '1.0', '0.1') WHERE seq = 2")
    with pytest.raises(LedgerDamaged, match="Entry 2"):
        verify_entries(ledger.chain)
    (said,) = restore_ledger(on(machine).chain)
    assert "It was put aside as" in said
    assert entries(on(machine))[: len(before)] == before
    path.write_bytes(b"no database" * 999)
    restore_ledger(on(machine).chain)
    assert entries(on(machine))[: len(before)] == before
    assert len(list(path.parent.glob("ledger.sqlite.damaged-*"))) >= 1


def test_a_damaged_file_with_lines_that_no_mirror_has_is_not_replaced_by_fewer(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colleague wrote last, and only the colleague's mirror has that charge."""
    ledger = begun(machine)
    with monkeypatch.context() as colleague:
        colleague.setenv("XDG_STATE_HOME", str(tmp_path / "colleague"))
        name_mirror(on(machine).chain, None)
        pay(on(machine), "of the colleague")
    in_file(machine / "books" / "ledger.sqlite").tamper("UPDATE entries SET who = 'x' WHERE seq = 2")
    with pytest.raises(LedgerDamaged, match="has more lines than its mirrors here"):
        restore_ledger(ledger.chain)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "colleague"))
    restore_ledger(on(machine).chain)
    assert reserved(on(machine))["epsilon"] == 2.0


def test_an_account_that_was_opened_anew_for_other_neighbours_is_not_mixed(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = begun(machine)
    path = machine / "books" / "ledger.sqlite"
    older = path.read_bytes()
    ledger.open_account("mnist", BUDGET)
    path.write_bytes(older)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        name_mirror(on(machine).chain, None)
        on(machine).open_account("mnist", Guarantee(epsilon=2.0, delta=1e-5, unit="patient"))
    with pytest.raises(BadInput, match="it was opened anew otherwise"):
        restore_ledger(ledger.chain)


def _charge(pipe: Any, address: str, count: int) -> None:
    for number in range(count):
        charge(Ledger(address), f"p{number}")
    pipe.send(None)


def test_processes_that_charge_at_once_mirror_every_line(place: Place, tmp_path: Path) -> None:
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    name_mirror(ledger.chain, tmp_path / "far.jsonl")
    with processes(_charge, [(place.address, 4)] * 3) as pipes:
        for pipe in pipes:
            pipe.recv()
    assert rows_of(Mirror(path=tmp_path / "far.jsonl")) == [entry.digest for entry in entries(ledger)]
    assert reserved(ledger)["epsilon"] == 12.0
