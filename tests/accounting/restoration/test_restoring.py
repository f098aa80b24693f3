"""A ledger that was lost is refused by whatever opens it, and restored from memory at no lower sum than it had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.chain.hash_chain import Kind
from dpsweep.accounting.errors import ContractBroken, LedgerDamaged
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.bodies import Ended
from dpsweep.accounting.ledger.composition_policy import Addition, Policy
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.restoration.restore import restore_ledger_and_describe
from tests.accounting.books import processes
from tests.accounting.losses import (
    BUDGET,
    FILTER,
    HIGHER,
    LOSSES,
    OLD,
    ONE,
    Loss,
    charge,
    copied,
    emptied,
    lived,
    memory_of,
    reserved,
)
from tests.charges import charge_cost
from tests.databases import Place, Server

OPENINGS: dict[str, Callable[[Ledger], object]] = {
    "show": lambda ledger: ledger.statement("digits"),
    "accounts": lambda ledger: ledger.account_names(),
    "end": lambda ledger: ledger.chain_end(),
    "data_sets": lambda ledger: ledger.account_and_fingerprint_pairs(),
    "open": lambda ledger: ledger.open_account("new", BUDGET),
    "find": lambda ledger: ledger.open_account_or_check_neighbours("digits", BUDGET),
    "use": lambda ledger: ledger.open_account_or_check_budget("digits", BUDGET),
    "raise": lambda ledger: ledger.raise_budget("digits", HIGHER),
    "close": lambda ledger: ledger.close_account("digits"),
    "charge": lambda ledger: charge(ledger, "t"),
    "outside": lambda ledger: ledger.record_outside_cost("digits", ONE, "elsewhere"),
    "start": lambda ledger: ledger.record_starts_and_return_receipts("digits", plan="p", trials=["a"]),
    "resume": lambda ledger: ledger.record_resumes_and_return_receipts("digits", plan="p", trials=["a"]),
    "settle": lambda ledger: ledger.record_ended_attempts("digits", plan="p", ended=[]),
    "recognise": lambda ledger: ledger.record_data_and_return_message(
        "digits", Fingerprint(key_id="0" * 64, files=("1" * 64,))
    ),
    "verify": lambda ledger: ledger.verify_and_count_entries(),
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
    before = {account: ledger.statement(account) for account in ledger.account_names()}
    put_back() if isinstance(loss, str) else loss(place)
    told = " ".join(restore_ledger_and_describe(place.address, backup=None, folders=()))
    assert "This machine remembers 10 entries" in told
    assert "mnist: epsilon 1.0 and delta 1e-05 charged" in told
    again = Ledger(place.address)
    for account, statement in before.items():
        after = again.statement(account)
        assert after.reserved_epsilon_and_delta >= statement.reserved_epsilon_and_delta
        assert after.reserved_epsilon_and_delta == pytest.approx(statement.reserved_epsilon_and_delta, rel=1e-12)
        assert (after.budget, after.policy, after.balance.closed) == (
            statement.budget,
            statement.policy,
            statement.balance.closed,
        )
        (line,) = [entry for entry in after.entries if entry.kind == Kind.RESTORED]
        assert line.body["remembered"]["entries"] == 10
    lines = again.verify_and_count_entries()
    charge(again, "t")
    assert restore_ledger_and_describe(place.address, backup=None, folders=()) == ()
    assert again.verify_and_count_entries() == lines + 1


def test_attempts_that_a_lost_line_may_have_started_are_not_paid_for_any_more(place: Place) -> None:
    """A ledger and the store beside it, restored to between two batches of one launch; the memory was not."""
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    charge_cost(ledger, "digits", plan="p", trials=["a", "b"], cost=ONE)
    ledger.record_launch("digits", plan="p", nonce="n" * 32)
    ended = Ended(trial="a", attempt=1, resume=0, realised={"status": "finished", "result": "0" * 64})
    ledger.record_starts_and_return_receipts("digits", plan="p", trials=["a"])
    ledger.record_ended_attempts("digits", plan="p", ended=[ended])
    put_back = copied(place)
    ledger.record_starts_and_return_receipts("digits", plan="p", trials=["b"])
    put_back()
    told = restore_ledger_and_describe(place.address, backup=None, folders=())
    assert "1 attempts that had not ended count as used" in told[-1]
    again = Ledger(place.address)
    attempts = again.statement("digits", "p").attempts_of_plan("p")
    assert attempts.launch != "n" * 32
    assert attempts.final_end_record_of_attempt("a", 1) == ended.realised, "what had ended stays paid"
    with pytest.raises(ContractBroken, match="covered by no charge"):
        again.record_starts_and_return_receipts("digits", plan="p", trials=["b"])
    assert again.verify_and_count_entries()


def test_nothing_is_restored_where_nothing_is_missing(place: Place, tmp_path: Path) -> None:
    lived(place)
    assert restore_ledger_and_describe(place.address, backup=None, folders=()) == ()
    assert restore_ledger_and_describe(tmp_path / "nowhere" / "ledger.sqlite", backup=None, folders=()) == ()
    assert not (tmp_path / "nowhere").exists()


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
    restore_ledger_and_describe(place.address, backup=None, folders=())
    assert reserved(Ledger(place.address))["epsilon"] == before["epsilon"] + 1.0
    assert restore_ledger_and_describe(place.address, backup=None, folders=()) == ()


def test_two_machines_that_remember_the_same_lines_charge_them_once(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, put_back = lived(place)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        Ledger(place.address).verify_and_count_entries()
        charge(Ledger(place.address), "seen there alone")
    with monkeypatch.context() as elsewhere:
        whole = reserved(Ledger(place.address))
        put_back()
        restore_ledger_and_describe(place.address, backup=None, folders=())
        assert reserved(Ledger(place.address))["epsilon"] == whole["epsilon"] - 1.0
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        with pytest.raises(LedgerDamaged, match="this machine remembers"):
            Ledger(place.address).statement("digits")
        restore_ledger_and_describe(place.address, backup=None, folders=())
    assert reserved(Ledger(place.address)) == whole


def test_an_account_that_was_opened_anew_with_another_policy_takes_the_converted_amounts(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = lived(place, FILTER)
    promised = ledger.statement("digits").reserved_epsilon_and_delta
    emptied(place)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        Ledger(place.address).open_account("digits", Guarantee(epsilon=2.0, delta=1e-6))
    told = restore_ledger_and_describe(place.address, backup=None, folders=())
    again = Ledger(place.address).statement("digits")
    assert again.reserved_epsilon_and_delta[0] >= promised[0]
    assert again.reserved_epsilon_and_delta[1] >= promised[1]
    assert again.budget == HIGHER
    assert not any("More" in sentence for sentence in told)


def test_a_restoration_that_was_interrupted_before_it_was_remembered_is_not_charged_twice(place: Place) -> None:
    ledger, put_back = lived(place)
    before = reserved(ledger)
    remembered = memory_of(ledger)
    files = {path: path.read_bytes() for path in (remembered.path, remembered.digests().path)}
    put_back()
    restore_ledger_and_describe(place.address, backup=None, folders=())
    count = Ledger(place.address).verify_and_count_entries()
    for path, content in files.items():
        path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match="this machine remembers"):
        Ledger(place.address).statement("digits")
    assert (
        "An earlier restoration is on the record"
        in restore_ledger_and_describe(place.address, backup=None, folders=())[0]
    )
    assert reserved(Ledger(place.address)) == before
    assert Ledger(place.address).verify_and_count_entries() == count
    assert restore_ledger_and_describe(place.address, backup=None, folders=()) == ()


def test_sums_beyond_the_budget_are_recorded_and_said(place: Place) -> None:
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    ledger.record_outside_cost("digits", Guarantee(epsilon=30.0, delta=0.0), "somebody else")
    emptied(place)
    assert (
        "More epsilon is reserved on digits now"
        in restore_ledger_and_describe(place.address, backup=None, folders=())[-1]
    )


def _restore(pipe: object, address: str) -> None:
    pipe.send(restore_ledger_and_describe(address, backup=None, folders=()))  # type: ignore[attr-defined]


def test_two_processes_restore_a_ledger_once(place: Place) -> None:
    ledger, put_back = lived(place)
    before = reserved(ledger)
    put_back()
    with processes(_restore, [(place.address,)] * 2) as pipes:
        told = [pipe.recv() for pipe in pipes]
    assert sum("charged" in " ".join(sentences) for sentences in told) == 1
    assert reserved(Ledger(place.address)) == before
    assert restore_ledger_and_describe(place.address, backup=None, folders=()) == ()


def _charge(pipe: object, address: str, count: int) -> None:
    for number in range(count):
        charge(Ledger(address), f"p{number}")
    pipe.send(None)  # type: ignore[attr-defined]


def test_two_processes_that_charge_at_once_remember_all_of_it(place: Place) -> None:
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    with processes(_charge, [(place.address, 8)] * 2) as pipes:
        for pipe in pipes:
            pipe.recv()
    memory = memory_of(ledger)
    assert memory.read().end == ledger.chain_end()
    emptied(place)
    restore_ledger_and_describe(place.address, backup=None, folders=())
    assert reserved(ledger)["epsilon"] == 16.0


def test_a_password_is_not_remembered(server: Server) -> None:
    place = server.place()
    address = place.address.replace("postgres@", "postgres:secret@")
    ledger = Ledger(address)
    ledger.open_account("digits", BUDGET)
    emptied(place)
    told = restore_ledger_and_describe(address, backup=None, folders=())
    assert "secret" not in " ".join(told) + memory_of(ledger).path.read_text()


def test_a_state_that_cannot_be_written_is_said_before_anything_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerDamaged, match=r"cannot be remembered in .*: Not a directory; XDG_STATE_HOME"):
        charge(ledger, "p")
    assert reserved(ledger) == {}, "and it can still be shown"
