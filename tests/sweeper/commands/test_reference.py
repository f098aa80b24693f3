"""`dpsweep reference`: one look without privacy, recorded before it happens, and named by every later release."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.ledger.ledger import Ledger
from tests.randomized import TRAINS
from tests.sweeper.search_programs import GRID, Program

BUDGET = ("budget.epsilon=1000", "budget.delta=0.01")
WORDS = (*GRID, *BUDGET)
SENTENCE = "A model without privacy was looked at on"


def folder_of(tmp_path: Path, known: frozenset[Path] = frozenset()) -> Path:
    (found,) = {path.parent for path in tmp_path.glob("sweeps/*/*/plan.json")} - known
    return found


def files_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@TRAINS
@pytest.mark.long
def test_the_look_is_recorded_once_and_later_releases_name_it(
    program: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    assert program(*WORDS).returncode == 0
    folder, ledger = folder_of(tmp_path), Ledger(environment["DPSWEEP_LEDGER"])
    refused = program("reference", str(folder), module="dpsweep")
    assert refused.returncode == ExitCode.BAD_INPUT
    assert f"to be released before a model without privacy is looked at: {folder.name} is not" in refused.stderr
    assert program("release", str(folder), module="dpsweep").returncode == 0
    before, head = files_of(folder), ledger.statement("digits").reserved_epsilon_and_delta
    done = program("reference", str(folder), module="dpsweep")
    assert done.returncode == 0, done.stderr
    assert "with privacy" in done.stdout
    assert "For you alone: no epsilon covers these numbers." in done.stdout
    assert files_of(folder) == before, "nothing of it is in the folder"
    statement = ledger.statement("digits")
    assert statement.reserved_epsilon_and_delta == head
    assert statement.reference_entry is not None
    again = program("reference", str(folder), module="dpsweep")
    assert again.returncode == ExitCode.BAD_INPUT
    assert "Expected digits to have no reference yet" in again.stderr
    assert program("release", str(folder), module="dpsweep").returncode == 0
    assert SENTENCE not in (folder / "release" / "report.html").read_text(), "this plan was chosen before"
    assert program(*WORDS, "trainer.lr=1,4", "about='Ward 7, 2015 to 2019'").returncode == 0
    later = folder_of(tmp_path, frozenset({folder}))
    assert program("release", str(later), "--for", "registry,hf,cyclonedx", module="dpsweep").returncode == 0
    assert program("export", str(later), module="dpsweep").returncode == 0
    for name in (
        "release/report.html",
        "release/deployments_registry.yaml",
        "release/model.cdx.json",
        "export/README.md",
    ):
        text = " ".join((later / name).read_text().split())
        assert SENTENCE in text, name
        assert ("The curator states: Ward 7, 2015 to 2019" in unescape(text)) is (name[-4:] in ("html", "E.md")), name
    form = json.loads(program("budget", "dataset=digits", "--json", module="dpsweep").stdout)
    assert form[0]["reference"] == statement.reference_entry.at
    assert f"{SENTENCE} " in program("budget", "dataset=digits", module="dpsweep").stdout


@TRAINS
@pytest.mark.long
def test_the_look_is_on_record_before_it_happens(program: Program, tmp_path: Path, environment: dict[str, str]) -> None:
    """A reference that fails in the middle has been the account's one look."""
    assert program(*WORDS).returncode == 0
    folder, ledger = folder_of(tmp_path), Ledger(environment["DPSWEEP_LEDGER"])
    assert program("release", str(folder), module="dpsweep").returncode == 0
    for weights in folder.glob("trials/*/model.safetensors"):
        weights.unlink()
    assert program("reference", str(folder), module="dpsweep").returncode != 0
    assert ledger.statement("digits").reference_entry is not None
    again = program("reference", str(folder), module="dpsweep")
    assert "Expected digits to have no reference yet" in again.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(("reference",), "sweep folder"), (("reference", "nowhere"), "plan.json")],
)
def test_what_is_no_sweep_is_refused(program: Program, words: tuple[str, ...], sentence: str) -> None:
    done = program(*words, module="dpsweep")
    assert done.returncode == ExitCode.BAD_INPUT
    assert sentence in done.stderr


@TRAINS
def test_a_rehearsal_has_no_reference(program: Program, tmp_path: Path) -> None:
    assert program("rehearse", *WORDS, module="dpsweep").returncode == 0
    refused = program("reference", str(folder_of(tmp_path)), module="dpsweep")
    assert refused.returncode == ExitCode.BAD_INPUT
    assert "a rehearsal has no private records" in refused.stderr
