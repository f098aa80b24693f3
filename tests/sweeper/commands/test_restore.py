"""`dpsweep budget restore`, and what every command says of a ledger that was lost."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, ExitCode, LedgerDamaged
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.searches.folder_audit import chain_ends_in_receipts
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.commands.account_statement import PANEL
from dpsweep.sweeper.commands.budget import budget
from tests.accounting.losses import memory_of
from tests.conftest import Program
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import SELECTION, Place, folder_of, work

pytestmark = SEARCHES

BUDGET = Guarantee(epsilon=24.0, delta=1e-4)
SWEEP = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=3", "compute.threads=1"),
    "privacy.noise_multiplier=4",
)
SAYS = r"that this machine remembers: .*`dpsweep budget restore`.*DPSWEEP_LEDGER"


def emptied(ledger: Ledger) -> None:
    with closing(sqlite3.connect(str(ledger.path))) as connection:
        connection.execute("DROP TRIGGER entries_refuse_delete")
        connection.execute("DELETE FROM entries")
        connection.commit()


def deleted(ledger: Ledger) -> None:
    assert ledger.path is not None
    for part in ledger.path.parent.glob(f"{ledger.path.name}*"):
        if part.is_file():
            part.unlink()


@pytest.fixture
def say(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    monkeypatch.setenv("DPSWEEP_LEDGER", str(ledger.path))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> str:
        budget(words)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("loss", [emptied, deleted])
@pytest.mark.parametrize(
    "line",
    [
        "show",
        "dataset=digits --json",
        "open dataset=mnist budget.epsilon=3 budget.delta=1e-6",
        "raise dataset=digits budget.epsilon=30",
        "close dataset=digits",
        "charge dataset=digits --epsilon 1 --delta 0 --note x",
        "verify",
    ],
)
def test_every_verb_refuses_a_ledger_that_was_lost(
    say: Callable[..., str], ledger: Ledger, line: str, loss: Callable[[Ledger], None]
) -> None:
    ledger.open_account("digits", BUDGET)
    loss(ledger)
    with pytest.raises(LedgerDamaged, match=SAYS):
        say(*line.split())
    assert memory_of(ledger).read().end.entries == 1


def test_every_command_refuses_a_ledger_that_was_lost(program: Program, place: Callable[..., Place]) -> None:
    here = place(SELECTION)
    work(here.admit(), dict.fromkeys(range(99), 0.5))
    deleted(here.ledger)
    root = str(here.folder.root)
    lines = (
        *(("sweep", *SWEEP), ("plan", *SWEEP), ("budget",), ("budget", "open", "dataset=mnist"), ("verify", root)),
        *(("report", root), ("release", root), ("export", root)),
    )
    for line in lines:
        done = program(*line, module="dpsweep.sweeper.commands.cli")
        assert done.returncode == ExitCode.LEDGER_DAMAGED, (line, done.stderr)
        assert "Traceback" not in done.stderr
        assert "`dpsweep budget restore`" in done.stderr, line
    assert here.ledger.path is not None
    assert not here.ledger.path.exists()
    for opening in (write_report, write_release):
        with pytest.raises(LedgerDamaged, match=SAYS):
            opening(here.folder.root, here.ledger)


def test_a_lost_ledger_is_restored_by_memory_and_then_shown(say: Callable[..., str], ledger: Ledger) -> None:
    ledger.open_account("digits", BUDGET)
    say("charge", "dataset=digits", "--epsilon", "2", "--delta", "1e-6", "--note", "a pilot study")
    deleted(ledger)
    told = say("restore")
    assert "This machine remembers 2 entries of" in told
    assert "digits: epsilon 2.0 and delta 1e-06 charged; opened again." in told
    assert "lost lines up to entry 2, as remembered" in say("dataset=digits")
    assert ledger.statement("digits").reserved_epsilon_and_delta == (2.0, 1e-6)
    assert "Nothing to restore" in say("restore")
    assert say("verify").startswith(ledger.name)


@pytest.mark.long
def test_a_finished_sweep_whose_lines_were_restored_is_verified_reported_and_released(
    say: Callable[..., str], program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    root = folder_of(program(*SWEEP)).root
    shutil.copy(str(ledger.path), tmp_path / "copy.sqlite")
    say("charge", "dataset=digits", "--epsilon", "2", "--delta", "1e-6", "--note", "a pilot study")
    deleted(ledger)
    shutil.copy(tmp_path / "copy.sqlite", str(ledger.path))
    assert "entries of" in say("restore")
    for verb in ("verify", "report", "release"):
        done = program(verb, str(root), module="dpsweep.sweeper.commands.cli")
        assert done.returncode == 0, done.stderr


def test_a_restoration_says_first_what_it_cannot_bring_back(
    say: Callable[..., str], program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    root = folder_of(program(*SWEEP)).root
    shutil.copy(str(ledger.path), tmp_path / "copy.sqlite")
    deleted(ledger)
    first = say("restore").splitlines()[0]
    assert "are lost, and only a copy that has them" in first
    assert "can no longer be verified, reported or released" in first
    assert program("verify", str(root), module="dpsweep.sweeper.commands.cli").returncode == ExitCode.BAD_INPUT
    deleted(ledger)
    told = say("restore", "--backup", str(tmp_path / "copy.sqlite"))
    assert program("verify", str(root), module="dpsweep.sweeper.commands.cli").returncode == 0, told


@pytest.mark.parametrize("words", [("--backup",), ("--copy", "x"), ("nowhere",), ("--backup", "nowhere")])
def test_what_cannot_be_read_is_one_sentence(say: Callable[..., str], words: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="Expected"):
        say("restore", *words)


def test_a_sweep_is_charged_by_its_receipts_where_nobody_remembers(
    say: Callable[..., str],
    program: Program,
    ledger: Ledger,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its folder stays a stranger to the restored ledger, which never started these attempts."""
    root = folder_of(program(*SWEEP)).root
    before = ledger.statement("digits")
    assert ledger.path is not None
    assert "holds all that is remembered" in say("restore", str(root))
    deleted(ledger)
    environment["XDG_STATE_HOME"] = str(root / "another machine")
    monkeypatch.setenv("XDG_STATE_HOME", environment["XDG_STATE_HOME"])
    told = say("restore", str(root))
    assert "1 times its whole price, by receipts in" in told
    after = ledger.statement("digits")
    assert after.reserved_epsilon_and_delta == before.reserved_epsilon_and_delta
    assert after.budget == before.budget
    assert "Nothing to restore" in say("restore", str(root))
    done = program(*SWEEP)
    assert done.returncode == ExitCode.BAD_INPUT, done.stderr
    assert "is not in it. Use the ledger that it was run with" in done.stderr
    assert ledger.statement("digits").reserved_epsilon_and_delta == after.reserved_epsilon_and_delta


@pytest.mark.long
def test_a_sweep_whose_charge_is_remembered_is_not_charged_by_its_receipts_too(
    say: Callable[..., str], program: Program, ledger: Ledger
) -> None:
    root = folder_of(program(*SWEEP)).root
    before = ledger.statement("digits").reserved_epsilon_and_delta
    deleted(ledger)
    told = say("restore", str(root))
    assert "by receipts" not in told
    assert ledger.statement("digits").reserved_epsilon_and_delta == before
    assert "Nothing to restore" in say("restore", str(root))
    assert ledger.verify_and_count_entries(list(chain_ends_in_receipts(root))) == 3, (
        "the account, the loss, and the data's fingerprint"
    )


def test_a_search_that_hides_its_losers_is_charged_by_its_receipts(
    say: Callable[..., str],
    place: Callable[..., Place],
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = place(SELECTION)
    work(here.admit(), dict.fromkeys(range(99), 0.5))
    deleted(ledger)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    copy = shutil.copytree(here.folder.root, tmp_path / "copy")
    told = say("restore", str(here.folder.root), str(copy))
    assert told.count("1 times its whole price, by receipts in") == 1
    assert ledger.verify_and_count_entries(list(chain_ends_in_receipts(copy))) == 2
    price = PANEL.epsilon(here.plan.event, here.plan.delta, here.plan.adjacency)
    assert ledger.statement("digits").reserved_epsilon_and_delta == (price, here.plan.delta)


def test_a_backup_is_named_on_the_command_line(say: Callable[..., str], ledger: Ledger, tmp_path: Path) -> None:
    ledger.open_account("digits", BUDGET)
    ledger.record_outside_cost("digits", Guarantee(epsilon=2.0, delta=0.0), "elsewhere")
    shutil.copy(str(ledger.path), tmp_path / "copy.sqlite")
    before = ledger.statement("digits").entries
    emptied(ledger)
    assert f"Entries 1 to 2 of {ledger.name} were put back from the backup." in say(
        "restore", f"--backup={tmp_path / 'copy.sqlite'}"
    )
    assert ledger.statement("digits").entries[:2] == before
