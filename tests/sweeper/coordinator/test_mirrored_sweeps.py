"""Sweeps on a ledger that lost lines: they come back, and nothing trains or releases twice on one charge."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, ExitCode, LedgerDamaged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.ledger.upkeep import close_account, name_mirror, user_ledger_place, verify_entries
from dpsweep.accounting.selection.interface import Draw
from dpsweep.sweeper.searches import secret_draw
from tests.conftest import Program
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import SELECTION, Place

pytestmark = SEARCHES

SWEEP = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=3", "compute.threads=1"),
    "privacy.noise_multiplier=4",
)
CLI = "dpsweep.sweeper.commands.cli"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All but the mirror elsewhere: what is in the test's folder, and the user's own mirrors."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """A mirror on another disk."""
    return tmp_path.with_name(f"{tmp_path.name} elsewhere.jsonl")


def snapshot(machine: Path) -> Callable[[], None]:
    """Copies a machine; what is returned puts the copy in its place."""
    copy = machine.with_name(f"{machine.name} snapshot")
    shutil.copytree(machine, copy, symlinks=True)

    def put_back() -> None:
        for path in machine.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(copy, machine, symlinks=True, dirs_exist_ok=True)

    return put_back


def test_a_hidden_search_does_not_go_on_from_before_its_last_launch(
    place: Callable[..., Place], machine: Path, far: Path
) -> None:
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1, 2)))
    name_mirror(here.ledger.chain, far)
    put_back = snapshot(machine)
    here.admit()
    here.admit()
    put_back()
    with pytest.raises(BadInput, match="nothing trains"):
        here.admit()
    assert verify_entries(here.ledger.chain)
    assert log.drawn_tries_in_current_state()


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
    place: Callable[..., Place], machine: Path, far: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its draw is stored and charged, and its tries began after the snapshot."""
    here = place(SELECTION)
    killed_before(step, here, monkeypatch)
    name_mirror(here.ledger.chain, far)
    put_back = snapshot(machine)
    here.admit()
    here.admit()
    put_back()
    with pytest.raises(BadInput, match="nothing trains"):
        here.admit()


@BEFORE_ITS_LAUNCH
def test_a_copy_does_not_go_on_with_a_hidden_search_from_before_its_first_launch(
    place: Callable[..., Place], machine: Path, ledger: Ledger, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine its own mirror must be begun first; back here, the two are told apart."""
    here = place(SELECTION, own=Ledger(str(ledger.path)))
    killed_before(step, here, monkeypatch)
    (machine / "copy").mkdir()
    shutil.copy(str(ledger.path), machine / "copy" / "ledger.sqlite")
    shutil.copytree(machine / "sweeps", machine / "copy" / "sweeps")
    assert here.admit().receipt.launch, "the first one goes on"
    with pytest.raises(BadInput, match="nothing trains"):
        place(SELECTION, root="copy", own=Ledger(machine / "copy" / "ledger.sqlite")).admit()


def test_a_machine_that_was_put_back_neither_trains_nor_releases_again_on_one_charge(
    program: Program, environment: dict[str, str], machine: Path, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a user, with a snapshot of everything between two of them."""
    environment["XDG_STATE_HOME"] = str(machine / "state")
    done = program("budget", "open", "dataset=digits", "budget.epsilon=50", "budget.delta=1e-4", module=CLI)
    assert done.returncode == 0, done.stderr
    assert program("budget", "mirror", str(far), module=CLI).returncode == 0
    assert f"has a mirror in {far}" in program("budget", module=CLI).stdout
    put_back = snapshot(machine)
    swept = program(*SWEEP)
    assert swept.returncode == 0, swept.stderr
    monkeypatch.setenv("DPSWEEP_LEDGER", environment["DPSWEEP_LEDGER"])
    before = reserved_amounts(Ledger(user_ledger_place()).statement("digits"))
    put_back()
    again = program(*SWEEP)
    assert again.returncode == ExitCode.BAD_INPUT, again.stderr
    assert not list(machine.glob("sweeps/*/*/trials/*/result.json"))
    assert reserved_amounts(Ledger(user_ledger_place()).statement("digits")) == before


def test_a_sweep_on_a_ledger_whose_mirror_is_gone_is_refused_before_its_charge(
    program: Program, environment: dict[str, str], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment["XDG_STATE_HOME"] = str(machine / "state")
    assert program(*SWEEP).returncode == 0
    environment["XDG_STATE_HOME"] = str(machine / "another")
    done = program(*SWEEP, "steps=4")
    assert done.returncode == ExitCode.LEDGER_DAMAGED
    assert "`dpsweep budget mirror` begins it again" in done.stderr
    monkeypatch.setenv("XDG_STATE_HOME", environment["XDG_STATE_HOME"])
    monkeypatch.setenv("DPSWEEP_LEDGER", environment["DPSWEEP_LEDGER"])
    ledger = Ledger(user_ledger_place())
    assert len(ledger.statement("digits").charges) == 1
    with pytest.raises(LedgerDamaged, match="is gone"):
        close_account(ledger, "digits")
