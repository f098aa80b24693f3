"""Every verb shows a stranger's names as visible text: of folders, accounts, files, keys, notes and plans."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import charge_outside
from dpsweep.accounting.printing import has_only_visible_characters
from dpsweep.sweeper.commands.account_statement import print_account
from dpsweep.sweeper.commands.budget import budget
from dpsweep.sweeper.commands.cli import _print_tab_completions
from dpsweep.sweeper.terminal import Terminal, TerminalTable

Program = Callable[..., subprocess.CompletedProcess[str]]
HOSTILE = "a\x1b]0;owned\x07\x1b[31m\u202egod\u2066\r\x9bb"
"""Sets a terminal's title and colour, turns the order of letters, and goes back to the start of the line."""

NAMED = "\\x1b]0;owned\\x07"
MARKUP = "[bold red]all is well[/bold red][link=https://example.org]:skull:"


def is_harmless(output: str) -> bool:
    """Whether a terminal that is shown this does nothing but show it."""
    return all(has_only_visible_characters(line) for line in output.split("\n"))


COMMANDS = {
    "verb": [HOSTILE],
    "report": ["report", HOSTILE],
    "release": ["release", HOSTILE],
    "export": ["export", HOSTILE],
    "resume": ["resume", HOSTILE],
    "verify": ["verify", HOSTILE],
    "restore": ["budget", "restore", HOSTILE],
    "budget": ["budget", HOSTILE],
    "account": ["budget", "show", f"dataset={HOSTILE}"],
    "help": ["help", HOSTILE],
    "key": ["plan", f"trainer.{HOSTILE}=1"],
    "value": ["plan", f"dataset={HOSTILE}"],
    "file": ["plan", f"--config-dir={HOSTILE}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_refusal_obeys_what_it_names(name: str, program: Program) -> None:
    done = program(*COMMANDS[name], module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2, done.stderr
    assert is_harmless(done.stdout + done.stderr), done.stderr
    assert len(done.stderr.strip().splitlines()) == 2, "one sentence and the exit code"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger in the test's folder, which the commands use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("COLUMNS", "200")
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize("name", [HOSTILE, MARKUP, "a\nledger: the chain is whole."])
def test_an_account_is_shown_as_it_is_called(name: str, here: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    """A ledger refuses such a name, but for the markup; a forged one may have it."""
    here.open_account("digits", Guarantee(epsilon=4.0, delta=1e-5))
    statement = charge_outside(here, "digits", Guarantee(epsilon=1.0, delta=1e-6), MARKUP)
    print_account(replace(statement, account=name))
    shown = capsys.readouterr().out
    assert is_harmless(shown)
    assert MARKUP in shown
    assert "ledger: the chain is whole." not in shown.splitlines()
    if name == HOSTILE:
        assert NAMED in shown


def test_our_colours_stay_and_theirs_do_not(
    here: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    print_account(replace(here.open_account("digits", Guarantee(epsilon=4.0, delta=1e-5)), account=HOSTILE))
    shown = capsys.readouterr().out
    assert shown.startswith("\x1b[1m")
    assert NAMED in shown
    assert "\x1b[31m" not in shown
    assert "\x1b]" not in shown


@pytest.mark.parametrize("note", ["a\x1b[31m", "a\nb", "\u202ea", "a\u2069", "a\x00", "a\udcff", "a\u2028b"])
def test_a_note_refuses_what_a_terminal_obeys(note: str, here: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    before = here.open_account("digits", Guarantee(epsilon=4.0, delta=1e-5))
    with pytest.raises(BadInput, match=r"^Expected note=.*one line without control and bidirectional") as refusal:
        budget(["charge", "dataset=digits", "--epsilon", "1", "--delta", "1e-6", "--note", note])
    assert has_only_visible_characters(str(refusal.value))
    with pytest.raises(ValueError, match=r"^Expected note="):
        charge_outside(here, "digits", Guarantee(epsilon=1.0, delta=1e-6), note)
    assert here.statement("digits") == before
    budget(["charge", "dataset=digits", "--epsilon", "1", "--delta", "1e-6", "--note", "경희 ≤ 1: épreuve"])
    assert "경희 ≤ 1: épreuve" in capsys.readouterr().out


def test_no_folder_is_offered_whose_name_cannot_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sweeps/good", f"sweeps/{HOSTILE}", "sweeps/\udcff"):
        folder = tmp_path / os.fsdecode(os.fsencode(name))
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text("{}")
    monkeypatch.setenv("COMP_LINE", "dpsweep report sweeps/")
    _print_tab_completions(["-sc", "query=bash"])
    assert capsys.readouterr().out.split() == ["sweeps/good"]


def test_tables_and_lines_show_markup_as_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    table = TerminalTable(title=MARKUP)
    table.add_column("a")
    table.add_row(f"{MARKUP}\n{HOSTILE}")
    terminal = Terminal(soft_wrap=True)
    terminal.print_table(table)
    terminal.print_line(f"{MARKUP}\n{HOSTILE}")
    shown = capsys.readouterr().out
    assert is_harmless(shown)
    assert shown.count(MARKUP) == 3
    assert shown.splitlines()[-1].startswith(f"{MARKUP}\\x0aa\\x1b")


def test_a_file_of_configurations_is_named_harmlessly(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "own\x1b[31m"
    (folder / "dataset").mkdir(parents=True)
    (folder / "dataset" / "mine.yaml").write_text("a: [\n")
    done = program("plan", f"--config-dir={folder}", "dataset=mine", module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2
    assert "own\\x1b[31m" in done.stderr
    assert is_harmless(done.stderr)


def test_a_plan_of_a_stranger_is_refused_harmlessly(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({"format": HOSTILE, "account": HOSTILE}))
    for verb in ("report", "verify", "release", "resume"):
        done = program(verb, "sweep", module="dpsweep.sweeper.commands.cli")
        assert done.returncode != 0
        assert is_harmless(done.stdout + done.stderr), done.stderr
        assert "Traceback" not in done.stderr
