"""A witness outside the machine: what a restored machine lost is neither trained nor released again on one charge."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.chain.hash_chain import new_row_with_time
from dpsweep.accounting.chain.sqlite_file import SqliteSession
from dpsweep.accounting.errors import BadInput, LedgerDamaged, WitnessUnreachable
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.bodies import Ended, Released, ReleaseManifest
from dpsweep.accounting.ledger.compared_chain import ComparedChain
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.remembered_ends import Memory
from dpsweep.accounting.ledger.witness import (
    _NEXT,
    _TABLE,
    VARIABLE,
    FileWitness,
    ServerWitness,
    Witness,
    WitnessedState,
    witness_from_environment,
)
from dpsweep.accounting.restoration.restore import restore_ledger_and_describe
from tests.accounting.losses import BUDGET, HIGHER, reserved
from tests.charges import charge_cost
from tests.databases import Server

ONE = Guarantee(epsilon=1.0, delta=1e-5)
DATA = Fingerprint(key_id="0" * 64, files=("1" * 64,))
BEHIND = "restored from a backup or a snapshot"


@pytest.fixture(params=["file", "server"])
def witness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Witness:
    """A named witness, of either kind."""
    (tmp_path / "another disk").mkdir()
    places: dict[str, Callable[[], str]] = {
        "file": lambda: str(tmp_path / "another disk" / "witness.json"),
        "server": lambda: request.getfixturevalue("server").place().address,
    }
    monkeypatch.setenv(VARIABLE, places[request.param]())
    named = witness_from_environment()
    assert named is not None
    return named


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that a snapshot of a machine holds: its ledger, stores and memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "machine" / "state"))
    (tmp_path / "machine").mkdir()
    return tmp_path / "machine"


def on(machine: Path) -> Ledger:
    return Ledger(machine / "books" / "ledger.sqlite")


def restored(machine: Path, snapshot: Path) -> Ledger:
    """The machine as it was, all of it but the witness."""
    shutil.rmtree(machine)
    shutil.copytree(snapshot, machine)
    return on(machine)


def charge(ledger: Ledger, plan: str = "p", cost: Guarantee = ONE) -> str:
    return charge_cost(ledger, "digits", plan=plan, trials=["a", "b"], cost=cost).digest


def opened(machine: Path) -> Ledger:
    ledger = on(machine)
    ledger.open_account("digits", BUDGET)
    return ledger


ENDED = Ended(trial="a", attempt=1, resume=0, realised={"status": "finished", "result": "0" * 64})


def release(ledger: Ledger, winner: str = "w", manifest: str = "m", plan: str = "p", charge: str = "c" * 64) -> None:
    files = ReleaseManifest(charge=charge, folder="release", manifest=manifest * 64)
    ledger.record_release("digits", plan=plan, winner=Released(charge=charge, winner=winner * 64), manifest=files)


STEPS: dict[str, Callable[[Ledger], object]] = {
    "raise": lambda ledger: ledger.raise_budget("digits", HIGHER),
    "data": lambda ledger: ledger.record_data_and_return_message("digits", DATA),
    "charge": lambda ledger: charge(ledger, "q"),
    "outside": lambda ledger: ledger.record_outside_cost("digits", ONE, "elsewhere"),
    "start": lambda ledger: ledger.record_starts_and_return_receipts("digits", plan="p", trials=["b"]),
    "resume": lambda ledger: ledger.record_resumes_and_return_receipts("digits", plan="p", trials=["a"]),
    "launch": lambda ledger: ledger.record_launch("digits", plan="p", nonce="n" * 32),
    "settle": lambda ledger: ledger.record_ended_attempts("digits", plan="p", ended=[ENDED]),
    "release": lambda ledger: release(ledger),
}


def begun(machine: Path) -> Ledger:
    """A ledger with a charge on which one attempt has begun."""
    ledger = opened(machine)
    charge(ledger)
    ledger.record_starts_and_return_receipts("digits", plan="p", trials=["a"])
    return ledger


def test_a_ledger_says_that_it_has_a_witness_from_its_first_line_on(machine: Path, witness: Witness) -> None:
    ledger = opened(machine)
    for step in (
        charge,
        lambda one: one.record_data_and_return_message("digits", DATA),
        lambda one: one.raise_budget("digits", HIGHER),
    ):
        step(ledger)
        state = witness.read_state(ledger.identity())
        assert state is not None
        assert (ledger.witness_name(), state.head) == (witness.name, ledger.chain_end().head), "it moves at every line"
    assert ledger.verify_and_count_entries() == 5


ROW = new_row_with_time(1, "0" * 32, account="digits", kind="close", plan="", body={}, balance={}, who="me@here")


def test_moves_of_two_ledgers_in_one_database_do_not_conflict(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two transactions at once, in a table that is small enough to be read whole."""
    monkeypatch.setenv(VARIABLE, server.place().address)
    witness, identities = witness_from_environment(), ("a" * 32, "b" * 32)
    assert isinstance(witness, ServerWitness)
    for identity in identities:
        assert witness.replace_state_if_unchanged(
            identity, None, WitnessedState(head="a" * 64, rows=(ROW,), earlier=(), memory=Memory())
        )
    with witness.server.open_session() as session:
        session.run_statement(f"ANALYZE {_TABLE}")
        session.commit()
    with witness.server.open_session() as one, witness.server.open_session() as other:
        for session, identity in zip((one, other), identities, strict=True):
            assert session.run_statement(_NEXT, identity=identity, head="b", state="{}", seen="a" * 64)
        one.commit()
        other.commit()


def test_a_home_of_nobody_is_no_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "~no-user-has-this-name/witness")
    with pytest.raises(BadInput, match=f"Expected {VARIABLE}=~no-user-has-this-name/witness to be a file"):
        witness_from_environment()


def test_a_witness_moves_from_the_head_that_was_seen_and_from_no_other(witness: Witness) -> None:
    first, second = (WitnessedState(head=name * 64, rows=(ROW,), earlier=(), memory=Memory()) for name in "ab")
    assert witness.replace_state_if_unchanged("i" * 32, None, first)
    assert not witness.replace_state_if_unchanged("i" * 32, None, second)
    assert not witness.replace_state_if_unchanged("i" * 32, second.head, second)
    assert witness.read_state("i" * 32) == first
    assert witness.replace_state_if_unchanged("i" * 32, first.head, second)
    assert witness.read_state("i" * 32) == second
    assert witness.read_state("j" * 32) is None


@pytest.mark.parametrize("step", STEPS)
def test_without_its_witness_nothing_is_charged_launched_or_released(
    machine: Path, witness: Witness, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = begun(machine)
    entries = ledger.verify_and_count_entries()
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(BadInput, match=f"Expected {VARIABLE} to name the witness of"):
        STEPS[step](on(machine))
    monkeypatch.setenv(VARIABLE, str(machine / "no disk" / "witness.json"))
    with pytest.raises(WitnessUnreachable, match="cannot be asked: No such file"):
        STEPS[step](on(machine))
    monkeypatch.setenv(VARIABLE, str(machine.parent / "another.json"))
    with pytest.raises(LedgerDamaged, match=r"holds nothing of the ledger .*--new-witness"):
        STEPS[step](on(machine))
    monkeypatch.delenv(VARIABLE)
    assert on(machine).verify_and_count_entries() == entries, "and it can be shown"
    assert reserved(on(machine))["epsilon"] == 1.0
    assert witness.read_state(ledger.identity()) is not None


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize("step", STEPS)
def test_a_command_that_is_killed_after_it_moved_the_witness_loses_nothing(
    machine: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one appends the very line that was announced, also if it only reads."""
    ledger = begun(machine)
    with monkeypatch.context() as killed:
        killed.setattr(SqliteSession, "commit", _die)
        with pytest.raises(KeyboardInterrupt):
            STEPS[step](ledger)
    before = 4
    kinds = [entry.kind for entry in on(machine).statement("digits").entries]
    expected = {"resume": ["resume", "settle"], "release": ["release", "manifest", "witness"]}.get(step, [step])
    assert kinds[before:] == expected, "what a resumed attempt has run is unknown, so it ends"
    assert on(machine).verify_and_count_entries() == before + len(expected)
    charge(on(machine), "r")


@pytest.mark.usefixtures("witness")
def test_a_writer_that_waited_while_another_was_killed_appends_what_that_one_announced(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, waited = begun(machine), ComparedChain._append_announced_lines

    def wait(chain: ComparedChain) -> None:
        waited(chain)
        monkeypatch.setattr(ComparedChain, "_append_announced_lines", waited)
        with monkeypatch.context() as killed:
            killed.setattr(SqliteSession, "commit", _die)
            with pytest.raises(KeyboardInterrupt):
                charge(on(machine), "q")

    monkeypatch.setattr(ComparedChain, "_append_announced_lines", wait)
    ledger.raise_budget("digits", HIGHER)
    assert [entry.kind for entry in on(machine).statement("digits").entries][4:] == ["charge", "raise"]
    assert on(machine).verify_and_count_entries()


def test_an_older_witness_is_told_apart_from_an_older_ledger(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The witness's disk was restored; or somebody else still names the one before."""
    place, first, second = machine / "books" / "ledger.sqlite", tmp_path / "witness.json", tmp_path / "another.json"
    monkeypatch.setenv(VARIABLE, str(first))
    ledger = opened(machine)
    older = first.read_bytes()
    charge(ledger)
    first.write_bytes(older)
    told = f"{first} .* is older than the ledger .* which was {first} at last.*--new-witness"
    for command in (
        charge,
        lambda one: one.verify_and_count_entries(),
        lambda _: restore_ledger_and_describe(place, backup=None, folders=()),
    ):
        with pytest.raises(LedgerDamaged, match=told):
            command(on(machine))
    with pytest.raises(BadInput, match="name one that holds nothing of it"):
        restore_ledger_and_describe(place, backup=None, folders=(), new_witness=True)
    monkeypatch.setenv(VARIABLE, str(second))
    restore_ledger_and_describe(place, backup=None, folders=(), new_witness=True)
    charge(on(machine), "q")
    monkeypatch.setenv(VARIABLE, str(first))
    with pytest.raises(LedgerDamaged, match=f"is older than the ledger .* which was {second} at last"):
        charge(on(machine), "r")


def test_a_ledger_that_was_charged_without_the_witness_of_a_killed_charge_takes_a_new_one(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge that would have been its first witnessed line was killed."""
    charge(opened(machine))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "witness.json"))
    with monkeypatch.context() as killed:
        killed.setattr(SqliteSession, "commit", _die)
        with pytest.raises(KeyboardInterrupt):
            charge(on(machine), "q")
    monkeypatch.delenv(VARIABLE)
    charge(on(machine), "r")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "witness.json"))
    with pytest.raises(LedgerDamaged, match="or name a new witness, if no line here says that it had one"):
        restore_ledger_and_describe(machine / "books" / "ledger.sqlite", backup=None, folders=())
    monkeypatch.setenv(VARIABLE, str(tmp_path / "another.json"))
    charge(on(machine), "s")
    assert on(machine).witness_name() == str(tmp_path / "another.json")


@pytest.mark.usefixtures("witness")
def test_an_announced_release_is_repeated_with_the_same_files_and_no_others(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have left before the machine was restored."""
    ledger = begun(machine)
    with monkeypatch.context() as killed:
        killed.setattr(SqliteSession, "commit", _die)
        with pytest.raises(KeyboardInterrupt):
            release(ledger)
    for _ in range(2):
        with pytest.raises(BadInput, match="the files that the ledger's witness recorded"):
            release(on(machine), manifest="n")
        release(on(machine))
    assert [body.manifest for _, body in on(machine).statement("digits").attempts_of_plan("p").manifests] == ["m" * 64]


def _die(session: SqliteSession) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize("step", STEPS)
def test_a_restored_machine_appends_the_announced_line_and_no_other(machine: Path, tmp_path: Path, step: str) -> None:
    ledger = begun(machine)
    shutil.copytree(machine, tmp_path / "snapshot")
    STEPS[step](ledger)
    entry = ledger.statement("digits").entries[4]
    again = restored(machine, tmp_path / "snapshot")
    assert again.statement("digits").entries[4] == entry


@pytest.mark.usefixtures("witness")
def test_a_machine_that_was_restored_further_back_is_refused_by_whatever_it_does(machine: Path, tmp_path: Path) -> None:
    ledger = begun(machine)
    shutil.copytree(machine, tmp_path / "snapshot")
    STEPS["launch"](ledger)
    STEPS["start"](ledger)
    again = restored(machine, tmp_path / "snapshot")
    for step in (*STEPS.values(), lambda one: one.verify_and_count_entries(), lambda one: one.statement("digits")):
        with pytest.raises(LedgerDamaged, match=BEHIND):
            step(again)


@pytest.mark.usefixtures("witness")
def test_of_two_copies_of_a_machine_one_goes_on(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone of a virtual machine: each has a memory of its own."""
    ledger = begun(machine)
    shutil.copytree(machine, tmp_path / "clone")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "clone" / "state"))
    clone = on(tmp_path / "clone")
    charge(clone, "q")
    charge(clone, "r")
    monkeypatch.setenv("XDG_STATE_HOME", str(machine / "state"))
    with pytest.raises(LedgerDamaged, match=BEHIND):
        charge(ledger, "s")


def history(machine: Path, tmp_path: Path) -> Ledger:
    """A ledger that did most of what it did after a snapshot was made."""
    ledger = begun(machine)
    ledger.record_ended_attempts("digits", plan="p", ended=[ENDED])
    shutil.copytree(machine, tmp_path / "snapshot")
    ledger.record_launch("digits", plan="p", nonce="n" * 32)
    ledger.record_starts_and_return_receipts("digits", plan="p", trials=["b"])
    ledger.record_data_and_return_message("digits", DATA)
    paid = charge(ledger, "q", Guarantee(epsilon=2.5, delta=1e-9))
    release(ledger, plan="q", charge=paid)
    return ledger


def test_a_restored_machine_is_charged_for_all_that_its_witness_knows(
    machine: Path, tmp_path: Path, witness: Witness
) -> None:
    before = reserved(history(machine, tmp_path))
    again = restored(machine, tmp_path / "snapshot")
    told = " ".join(restore_ledger_and_describe(machine / "books" / "ledger.sqlite", backup=None, folders=()))
    assert "digits: epsilon 2.5 and delta 1e-09 charged" in told or "digits: epsilon 2.5 and delta 1e-9 charged" in told
    assert "1 attempts that had not ended count as used" in told
    assert reserved(again) == before
    assert again.account_and_fingerprint_pairs() == (("digits", DATA),)
    attempts = again.statement("digits", "p").attempts_of_plan("p")
    assert attempts.final_end_record_of_attempt("a", 1) == {"status": "finished", "result": "0" * 64}, (
        "what had ended stays paid"
    )
    assert not attempts.is_next_attempt_paid_for("b")
    assert attempts.last_sessions_without_final_end() == ()
    (released,) = again.statement("digits", "q").attempts_of_plan("q").released.items()
    with pytest.raises(BadInput, match="the one that was released before"):
        release(again, plan="q", charge=released[0], winner="x")
    charge(again, "r")
    assert restore_ledger_and_describe(machine / "books" / "ledger.sqlite", backup=None, folders=()) == ()
    assert witness.read_state(again.identity()).head == again.chain_end().head  # type: ignore[union-attr]


def test_a_launch_that_the_store_had_is_void_after_a_restoration(
    machine: Path, tmp_path: Path, witness: Witness
) -> None:
    ledger = begun(machine)
    ledger.record_launch("digits", plan="p", nonce="n" * 32)
    shutil.copytree(machine, tmp_path / "snapshot")
    charge(ledger, "q")
    charge(ledger, "r")
    again = restored(machine, tmp_path / "snapshot")
    restore_ledger_and_describe(machine / "books" / "ledger.sqlite", backup=None, folders=())
    assert again.verify_and_count_entries()
    assert again.statement("digits", "p").attempts_of_plan("p").launch != "n" * 32
    assert witness.read_state(again.identity()) is not None


@pytest.mark.usefixtures("witness")
def test_a_ledger_that_is_gone_with_its_memory_is_restored_from_its_witness_by_a_backup(
    machine: Path, tmp_path: Path
) -> None:
    before = reserved(history(machine, tmp_path))
    shutil.rmtree(machine)
    machine.mkdir()
    told = restore_ledger_and_describe(
        machine / "books" / "ledger.sqlite",
        backup=tmp_path / "snapshot" / "books" / "ledger.sqlite",
        folders=(),
    )
    assert "The witness knows 11 entries" in " ".join(told)
    assert on(machine).verify_and_count_entries() > 10
    assert reserved(on(machine)) == before


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize("left", ["an older ledger", "no ledger"])
def test_a_memory_that_is_older_than_the_witness_charges_its_part_and_the_witness_the_rest(
    machine: Path, tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine charged the shared ledger last; both lost it."""
    books = machine / "books"
    ledger = begun(machine)
    shutil.copytree(books, tmp_path / "older")
    charge(ledger, "q", Guarantee(epsilon=2.5, delta=1e-9))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        charge(on(machine), "r", Guarantee(epsilon=0.5, delta=1e-9))
        before = reserved(on(machine))
    shutil.rmtree(books)
    if left == "an older ledger":
        shutil.copytree(tmp_path / "older", books)
    told = " ".join(restore_ledger_and_describe(books / "ledger.sqlite", backup=None, folders=()))
    assert "This machine remembers" in told
    assert "The witness knows" in told
    assert on(machine).verify_and_count_entries()
    assert reserved(on(machine)) == before
    charge(on(machine), "s")
    assert restore_ledger_and_describe(books / "ledger.sqlite", backup=None, folders=()) == ()


@pytest.mark.usefixtures("witness")
def test_another_branch_of_a_witnessed_ledger_is_refused_for_good(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its witness was away while it was written, so nobody can prove what it lost."""
    with monkeypatch.context() as before:
        before.delenv(VARIABLE)
        ledger = opened(machine)
    shutil.copytree(machine, tmp_path / "snapshot")
    ledger = on(machine)
    charge(ledger)
    charge(ledger, "q")
    restored(machine, tmp_path / "snapshot")
    with monkeypatch.context() as without:
        without.delenv(VARIABLE)
        charge(on(machine), "r")
    with pytest.raises(LedgerDamaged, match="another branch of the witnessed ledger"):
        restore_ledger_and_describe(machine / "books" / "ledger.sqlite", backup=None, folders=())


def test_a_lost_witness_is_replaced_on_the_record(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    place = machine / "books" / "ledger.sqlite"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "one" / "witness.json"))
    begun(machine)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "two" / "witness.json"))
    with pytest.raises(LedgerDamaged, match="holds nothing of the ledger"):
        charge(on(machine), "q")
    assert "is the witness of" in restore_ledger_and_describe(place, backup=None, folders=(), new_witness=True)[0]
    charge(on(machine), "q")
    assert on(machine).witness_name() == str(tmp_path / "two" / "witness.json")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "one" / "witness.json"))
    with pytest.raises(LedgerDamaged):
        charge(on(machine), "r")


@pytest.mark.usefixtures("witness")
def test_a_copy_that_goes_on_as_another_ledger_has_the_witness_too(machine: Path, tmp_path: Path) -> None:
    ledger = begun(machine)
    copy = Path(shutil.copy(machine / "books" / "ledger.sqlite", tmp_path / "copy.sqlite"))
    restore_ledger_and_describe(copy, backup=None, folders=(), as_another=True)
    charge(Ledger(copy), "q")
    charge(ledger, "q")
    assert Ledger(copy).witness_name() == ledger.witness_name() is not None


def test_a_damaged_witness_is_one_sentence(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "witness.json"
    monkeypatch.setenv(VARIABLE, str(path))
    begun(machine)
    (identity, form), *_ = json.loads(path.read_text()).items()
    damaged = ({}, {**form, "rows": []}, {**form, "rows": [{"previous": form["head"]}]})
    for content in ("{", "[]", *(json.dumps({identity: one}) for one in damaged)):
        path.write_text(content)
        with pytest.raises(WitnessUnreachable, match=r"cannot be asked: .*Nothing is charged or launched without"):
            charge(on(machine), "q")


def test_a_witness_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    witness = FileWitness(path=tmp_path / "witness.json")
    witness.replace_state_if_unchanged(
        "i" * 32, None, WitnessedState(head="a" * 64, rows=(ROW,), earlier=(), memory=Memory())
    )
    assert witness.path.stat().st_mode & 0o777 == 0o600


def test_an_address_of_another_kind_is_no_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "mysql://host/name")
    with pytest.raises(BadInput, match=f"Expected {VARIABLE}"):
        witness_from_environment()
