"""Sweeps on a ledger with a witness: a restored machine does not go on, and the witness learns no number of tries."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, ExitCode, LedgerDamaged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.witness import VARIABLE, witness_from_environment
from dpsweep.accounting.restoration.restore import restore_ledger_and_describe
from dpsweep.accounting.selection.interface import Draw
from dpsweep.sweeper.searches import secret_draw
from tests.conftest import Program
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import SELECTION, Place, work

pytestmark = SEARCHES

SWEEP = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=3", "compute.threads=1"),
    "privacy.noise_multiplier=4",
)
CLI = "dpsweep.sweeper.commands.cli"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All but the witness: what is in the test's folder, and the memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(VARIABLE, str(tmp_path.with_name(f"{tmp_path.name} elsewhere.json")))
    return tmp_path


def snapshot(machine: Path) -> Callable[[], None]:
    """Copies a machine; what is returned puts the copy in its place."""
    copy = machine.with_name(f"{machine.name} snapshot")
    shutil.copytree(machine, copy, symlinks=True)

    def put_back() -> None:
        for path in machine.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(copy, machine, symlinks=True, dirs_exist_ok=True)

    return put_back


@pytest.mark.parametrize("tries", [(), (0,), (0, 1, 2, 3, 3)])
def test_the_moves_of_a_witness_do_not_tell_the_number_of_tries(
    place: Callable[..., Place], tries: tuple[int, ...]
) -> None:
    here = place(SELECTION)
    log = here.plant(Draw(tries=tries))
    work(log, dict.fromkeys(range(99), 0.5))
    here.admit()
    witness = witness_from_environment()
    assert witness is not None
    state = witness.read_state(here.ledger.identity())
    assert state is not None
    assert len(state.earlier) == MOVES


MOVES = 5
"""Moves before the last one: opening, charge, start, settlement, launch, and what a second admission adds."""


def test_a_hidden_search_does_not_go_on_from_before_its_last_launch(
    place: Callable[..., Place], machine: Path, ledger: Ledger
) -> None:
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1, 2)))
    put_back = snapshot(machine)
    here.admit()
    here.admit()
    put_back()
    with pytest.raises(LedgerDamaged, match="restored from a backup or a snapshot"):
        here.admit()
    told = restore_ledger_and_describe(str(ledger.path), backup=None, folders=())
    assert "searches that hide their losers do not go on" in told[-1]
    with pytest.raises(BadInput, match="nothing trains"):
        here.admit()
    assert ledger.verify_and_count_entries()
    assert log.drawn_tries_in_current_state()


def test_a_hidden_search_does_not_go_on_where_only_the_memory_noticed_a_loss(
    place: Callable[..., Place], tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledger, store and folder were restored together, without a witness; the memory knows two more launches."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.with_name(f"{tmp_path.name} state")))
    here = place(SELECTION, own=Ledger(str(ledger.path)))
    here.plant(Draw(tries=(0, 1, 2)))
    put_back = snapshot(tmp_path)
    here.admit()
    work(here.admit(), dict.fromkeys(range(9), 0.5))
    put_back()
    told = restore_ledger_and_describe(str(ledger.path), backup=None, folders=())
    assert "searches that hide their losers do not go on" in told[-1]
    with pytest.raises(BadInput, match="nothing trains"):
        here.admit()


class Killed(BaseException):
    """A coordinator that dies."""


def killed_before(step: str, here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Admits a search and dies before this step."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as killed:
        killed.setattr(secret_draw, step, die)
        with pytest.raises(Killed):
            here.admit()


BEFORE_ITS_LAUNCH = pytest.mark.parametrize(
    "step", ["_record_start_of_search_attempt", "_record_ends_of_search_attempts", "record_launch_and_return_nonce"]
)


@BEFORE_ITS_LAUNCH
def test_a_hidden_search_does_not_go_on_from_before_its_first_launch(
    place: Callable[..., Place], machine: Path, ledger: Ledger, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its draw is stored and charged, and its tries began after the snapshot."""
    here = place(SELECTION, own=Ledger(str(ledger.path)))
    killed_before(step, here, monkeypatch)
    put_back = snapshot(machine)
    here.admit()
    here.admit()
    put_back()
    restore_ledger_and_describe(str(ledger.path), backup=None, folders=())
    with pytest.raises(BadInput, match="nothing trains"):
        here.admit()


@BEFORE_ITS_LAUNCH
def test_a_copy_does_not_go_on_with_a_hidden_search_from_before_its_first_launch(
    place: Callable[..., Place], machine: Path, ledger: Ledger, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = place(SELECTION, own=Ledger(str(ledger.path)))
    killed_before(step, here, monkeypatch)
    (machine / "copy").mkdir()
    shutil.copy(str(ledger.path), machine / "copy" / "ledger.sqlite")
    shutil.copytree(machine / "sweeps", machine / "copy" / "sweeps")
    restore_ledger_and_describe(machine / "copy" / "ledger.sqlite", backup=None, folders=(), as_another=True)
    with pytest.raises(BadInput, match="nothing trains"):
        place(SELECTION, root="copy", own=Ledger(machine / "copy" / "ledger.sqlite")).admit()
    assert here.admit().receipt.launch, "the first one goes on"


def test_a_restored_machine_neither_trains_nor_releases_again_on_one_charge(
    program: Program, environment: dict[str, str], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a user, with a snapshot of everything between two of them."""
    environment["XDG_STATE_HOME"] = str(machine / "state")
    environment[VARIABLE] = str(machine.with_name(f"{machine.name} elsewhere.json"))
    done = program("budget", "open", "dataset=digits", "budget.epsilon=50", "budget.delta=1e-4", module=CLI)
    assert done.returncode == 0, done.stderr
    spent = ("--epsilon", "1", "--delta", "0", "--note", "a pilot study")
    assert program("budget", "charge", "dataset=digits", *spent, module=CLI).returncode == 0
    assert "has the witness" in program("budget", module=CLI).stdout
    put_back = snapshot(machine)
    swept = program(*SWEEP)
    assert swept.returncode == 0, swept.stderr
    monkeypatch.setenv("DPSWEEP_LEDGER", environment["DPSWEEP_LEDGER"])
    before = Ledger(Ledger.user_ledger_place()).statement("digits").reserved_epsilon_and_delta
    put_back()
    again = program(*SWEEP)
    assert again.returncode == ExitCode.LEDGER_DAMAGED
    assert "was restored from a backup or a snapshot" in again.stderr
    assert not list(machine.glob("sweeps/*/*/trials/*/result.json"))
    restored = program("budget", "restore", module=CLI)
    assert restored.returncode == 0, restored.stderr
    assert "The witness knows" in restored.stdout
    assert Ledger(Ledger.user_ledger_place()).statement("digits").reserved_epsilon_and_delta >= before
