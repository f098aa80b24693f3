"""`dpsweep budget mirror` and `budget restore`, and what every command does on a ledger that was lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, ExitCode, LedgerDamaged
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.ledger.upkeep import charge_outside, name_mirror
from dpsweep.sweeper.commands.budget import budget
from tests.conftest import Program
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import SELECTION, Place, folder_of, work

pytestmark = SEARCHES

BUDGET = Guarantee(epsilon=24.0, delta=1e-4)
SWEEP = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=3", "compute.threads=1"),
    "privacy.noise_multiplier=4",
)


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
def test_every_verb_works_on_a_ledger_whose_lines_came_back(say: Callable[..., str], ledger: Ledger, line: str) -> None:
    ledger.open_account("digits", BUDGET)
    charge_outside(ledger, "digits", Guarantee(epsilon=2.0, delta=0.0), "a pilot study")
    deleted(ledger)
    assert say(*line.split())
    assert reserved_amounts(ledger.statement("digits"))[0] >= 2.0


def test_every_command_works_on_a_sweep_whose_ledger_was_deleted(program: Program, place: Callable[..., Place]) -> None:
    here = place(SELECTION)
    work(here.admit(), dict.fromkeys(range(99), 0.5))
    before = here.ledger.statement("digits").entries
    for line in (("budget",), ("verify", str(here.folder.root))):
        deleted(here.ledger)
        done = program(*line, module="dpsweep.sweeper.commands.cli")
        assert done.returncode == 0, (line, done.stderr)
        assert here.ledger.statement("digits").entries[: len(before)] == before


@pytest.mark.long
def test_a_finished_sweep_whose_lines_came_back_is_verified_reported_and_released(
    say: Callable[..., str], program: Program, ledger: Ledger
) -> None:
    root = folder_of(program(*SWEEP)).root
    for verb in ("verify", "report", "release"):
        deleted(ledger)
        done = program(verb, str(root), module="dpsweep.sweeper.commands.cli")
        assert done.returncode == 0, done.stderr


def test_a_mirror_is_named_shown_and_dropped(say: Callable[..., str], ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="to be a ledger"):
        say("mirror", "here.jsonl")
    ledger.open_account("digits", BUDGET)
    far = tmp_path / "far.jsonl"
    assert f"has a mirror in {far}" in say("mirror", str(far))
    assert f"has a mirror in {far}: without it nothing is charged" in say("show")
    assert f"has no mirror in {far} from now on" in say("mirror", str(far), "--drop")
    assert str(far) not in say("show")
    assert "in your state folder" in say("mirror")


@pytest.mark.parametrize("words", [("mirror", "a", "b"), ("mirror", "--copy"), ("mirror", "--drop"), ("restore", "x")])
def test_words_that_are_not_known_are_one_sentence(say: Callable[..., str], words: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="Expected"):
        say(*words)


def test_two_ledgers_with_one_beginning_become_one_bill(
    say: Callable[..., str], ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.open_account("digits", BUDGET)
    assert "Nothing to restore" in say("restore")
    shutil.copy(str(ledger.path), tmp_path / "older.sqlite")
    say("charge", "dataset=digits", "--epsilon", "2", "--delta", "1e-6", "--note", "here")
    shutil.copy(tmp_path / "older.sqlite", str(ledger.path))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        say("mirror")
        say("charge", "dataset=digits", "--epsilon", "3", "--delta", "0", "--note", "there")
    with pytest.raises(LedgerDamaged, match="`dpsweep budget restore` charges what only the mirror has"):
        say("show")
    assert "digits: epsilon 2.0 and delta 1e-06 charged for line 2 of" in say("restore")
    assert reserved_amounts(ledger.statement("digits")) == (5.0, 1e-6)
    assert "Nothing to restore" in say("restore")
    assert say("verify").startswith(ledger.name)


def test_a_fork_is_said_by_a_sweep_and_nothing_is_charged(
    program: Program, ledger: Ledger, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    assert program(*SWEEP).returncode == 0
    older = Path(shutil.copy(str(ledger.path), tmp_path / "older.sqlite"))
    assert program(*SWEEP, "steps=4").returncode == 0
    shutil.copy(older, str(ledger.path))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        name_mirror(Ledger(str(ledger.path)).chain, None)
        charge_outside(Ledger(str(ledger.path)), "digits", Guarantee(epsilon=1.0, delta=0.0), "there")
    done = program(*SWEEP, "steps=5")
    assert done.returncode == ExitCode.LEDGER_DAMAGED
    assert "`dpsweep budget restore`" in done.stderr
