"""A rehearsal does all that a sweep does, on generated records and a scratch ledger, and is never taken for a sweep."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dpsweep
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import user_ledger_place
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import FEATURES, private_store_of_plan, shared_folder
from dpsweep.accounting.rehearsal import ledger_of_sweep_folder, scratch_ledger_of_folder
from dpsweep.sweeper.planning.public_search import winner_of_public_sweep
from dpsweep.sweeper.trial.handover import script_inputs_folder
from tests.randomized import SEARCHES, TRAINS
from tests.sweeper.digits_sweeps import LIGHT, TWO, folder_of, results

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"
OWN = (
    *("dataset=table", "dataset.name=visits", "dataset.file=visits.csv", "dataset.records=600", "dataset.label=ill"),
    *("dataset.labels=[a,b]", "dataset.classes=2", "dataset.bounds={age: [0, 90], dose: [0, 5]}", "dataset.shape=[2]"),
    *(
        "privacy.epsilon=8",
        "privacy.delta=1e-5",
        "sampler.batch_size=100",
        "steps=3",
        "trainer=dpsgd",
        "trainer.lr=1,2",
    ),
    *("trainer.clip_norm=1", *LIGHT),
)
PUBLIC = ("dataset.public=true", "privacy.noise_multiplier=1", "score=training")
PATIENTS = ("dataset.unit=patient", "dataset.unit_column=who", "dataset.units=200", "dataset.contribution_cap=3")


def rehearsed(program: Program, *words: str) -> Path:
    done = program("rehearse", *words, "page=false", module=CLI)
    assert done.returncode == 0, done.stderr
    return folder_of(done)


@pytest.mark.long
@TRAINS
@pytest.mark.usefixtures("pages")
def test_a_rehearsal_says_so_wherever_it_is_looked_at(
    program: Program, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    done = program("rehearse", *TWO, module=CLI)
    folder = folder_of(done)
    assert folder.parent.name == "rehearsal-digits"
    assert "A REHEARSAL on generated records" in " ".join(done.stdout.replace("│", " ").split())
    assert "to pass on: nothing, since this was a REHEARSAL" in done.stdout
    page = (folder / "curator" / "report.html").read_text()
    assert re.search(r'class="alarm".{1,20}<p>A REHEARSAL on generated records', page, re.DOTALL)
    assert "no record of digits was read" in page
    assert "dpsweep rehearse dataset=digits" in page and "dpsweep sweep dataset" not in page
    statement = json.loads((folder / "curator" / "report.json").read_text())["statement"]
    assert "REHEARSAL" in json.dumps(statement)
    for verb in ("release", "export"):
        refused = program(verb, str(folder), module=CLI)
        assert refused.returncode == 2
        assert "A REHEARSAL on generated records" in refused.stderr
        assert not (folder / verb).exists()
    verified = program("verify", str(folder), module=CLI)
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.startswith("A REHEARSAL on generated records")
    shutil.rmtree(folder / "curator")
    assert program("report", str(folder), module=CLI).returncode == 0
    assert "A REHEARSAL" in (folder / "curator" / "report.html").read_text()
    resumed = program("resume", str(folder), module=CLI)
    assert resumed.returncode == 0, resumed.stderr
    assert "this was a REHEARSAL" in resumed.stdout
    for name in ("DPSWEEP_LEDGER", "DPSWEEP_KEY"):
        monkeypatch.setenv(name, environment[name])
    values = dpsweep.results(folder)
    assert values.rehearsal
    assert "REHEARSAL of digits" in repr(values)
    assert values.epsilon == float("inf")
    with pytest.raises(BadInput, match="A REHEARSAL"):
        values.release()
    with pytest.raises(BadInput, match="rehearsal on generated records"):
        winner_of_public_sweep(folder)
    assert not (tmp_path / "ledger.sqlite").exists()
    assert not (tmp_path / "fingerprint.key").exists()
    assert ledger.account_names() == ()


@TRAINS
def test_a_search_that_spends_its_budget_is_rehearsed_at_the_steps_of_its_plan(program: Program) -> None:
    """The plan solves for the steps of generated records as for real ones."""
    words = [word for word in TWO if not word.startswith(("steps=", "privacy."))]
    spent = ("steps=when_budget_spent", "privacy.noise_multiplier=20", "privacy.epsilon=1")
    plan = Plan.read(rehearsed(program, *words, *spent) / "plan.json")
    assert {type(trial.config["steps"]) for trial in plan.trials} == {int}


@TRAINS
def test_no_bill_changes_and_the_same_words_go_on(program: Program, ledger: Ledger) -> None:
    swept = folder_of(program("sweep", *TWO, module=CLI))
    before = ledger.statement("digits")
    folder = rehearsed(program, *TWO)
    again = program("rehearse", *TWO, "page=false", module=CLI)
    assert "All 2 trials of this plan are finished; nothing is run or charged" in again.stdout
    assert ledger.account_names() == ("digits",)
    assert ledger.statement("digits") == before
    plan, real = (Plan.read(path / "plan.json") for path in (folder, swept))
    assert len(results(folder)) == len(plan.trials) == len(real.trials)
    for trial, other in zip(plan.trials, real.trials, strict=True):  # the same event at the same noise, steps and axes
        assert (trial.axes, trial.event) == (other.axes, other.event)
        assert trial.config | {"dataset": 0} == other.config | {"dataset": 0}


@TRAINS
def test_a_deleted_rehearsal_begins_anew_with_its_whole_budget(program: Program, environment: dict[str, str]) -> None:
    for _ in range(2):
        folder = rehearsed(program, *TWO, "budget.epsilon=8")
        shutil.rmtree(folder)
    folder = rehearsed(program, *TWO, "budget.epsilon=8")
    word = json.loads((folder / "rehearsal.json").read_text())["ledger"]
    scratch = Ledger(Path(environment["DPSWEEP_LEDGER"]).parent / "rehearsals" / word / "ledger.sqlite")
    assert len(scratch.statement("rehearsal-digits").charges) == 1


@TRAINS
def test_a_rehearsal_is_charged_and_may_be_refused(program: Program) -> None:
    done = program("rehearse", *TWO, "budget.epsilon=1", module=CLI)
    assert done.returncode == 3
    assert "dpsweep rehearse" not in done.stderr
    refused = program("sweep", *TWO, "budget.epsilon=1", module=CLI)
    assert refused.returncode == 3
    assert "To try the same words on generated records, without spending: `dpsweep rehearse`." in refused.stderr


@TRAINS
@pytest.mark.parametrize("more", [(), PATIENTS, PUBLIC])
def test_an_own_table_is_rehearsed_by_its_declaration_alone(program: Program, more: tuple[str, ...]) -> None:
    """The file does not exist, and no budget is given."""
    words = [word for word in OWN if more is not PUBLIC or not word.startswith("privacy.epsilon")]
    folder = rehearsed(program, *words, *more)
    assert {result.status.value for result in results(folder).values()} == {"finished"}


def test_what_is_missing_is_asked_for_in_one_message(program: Program, tmp_path: Path) -> None:
    words = [word for word in OWN if not word.startswith(("dataset.shape", "dataset.bounds"))]
    done = program("rehearse", *words, module=CLI)
    assert done.returncode == 2
    assert "dataset.shape=" in done.stderr
    assert "dataset.bounds=" in done.stderr
    assert "budget.epsilon" not in done.stderr
    asked = program("sweep", *OWN, module=CLI)
    assert "budget.epsilon=" in asked.stderr
    assert "`dpsweep rehearse`" in asked.stderr
    mine = ("dataset._target_=tests.nowhere.Mine", "~dataset.shape", "dataset=digits", "trainer=dpsgd")
    unknown = program("rehearse", *mine, module=CLI)
    assert unknown.returncode == 2
    assert "Expected dataset.shape in the configuration of this data set" in unknown.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_never_trains_on_generated_records(program: Program, ledger: Ledger) -> None:
    home = "dpsweep.trainers.data.sets.generated.Generated"
    gone = [f"~dataset.{key}" for key in ("distribution", "file", "md5", "pool", "scale", "mean", "std")]
    for verb in ("sweep", "plan"):
        done = program(verb, *TWO, f"dataset._target_={home}", *gone, module=CLI)
        assert done.returncode == 2
        assert "generated ones are for `dpsweep rehearse` alone" in done.stderr
    assert ledger.account_names() == ()


@SEARCHES
def test_a_search_that_hides_its_losers_is_rehearsed_too(program: Program) -> None:
    folder = rehearsed(program, *TWO, "tuning=private_selection", "tuning.mean=3")
    assert ledger_word(folder)


def ledger_word(folder: Path) -> str:
    return str(json.loads((folder / "rehearsal.json").read_text())["ledger"])


@TRAINS
def test_a_folder_from_elsewhere_names_no_ledger_outside_the_rehearsals(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    folder = rehearsed(program, *TWO)
    monkeypatch.setenv("DPSWEEP_LEDGER", environment["DPSWEEP_LEDGER"])
    for word in ("../..", "", 3, None):
        (folder / "rehearsal.json").write_text(json.dumps({"ledger": word}))
        with pytest.raises(BadInput, match="to name the scratch ledger"):
            ledger_of_sweep_folder(folder)
    (folder / "rehearsal.json").write_text(json.dumps({"ledger": "0" * 32}))
    done = program("verify", str(folder), module=CLI)
    assert done.returncode == 2
    assert "rehearsal-digits" in done.stderr


def test_a_rehearsals_stores_and_features_lie_apart_from_real_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setenv("DPSWEEP_LEDGER", environment["DPSWEEP_LEDGER"])
    (tmp_path / "rehearsal.json").write_text(json.dumps({"ledger": "0" * 32}))
    for private in (None, str(tmp_path / "shared")):
        if private is not None:
            monkeypatch.setenv("DPSWEEP_PRIVATE", private)
        scratch = private_store_of_plan(scratch_ledger_of_folder(tmp_path), "rehearsal-digits", "p")
        real = private_store_of_plan(Ledger(user_ledger_place()), "digits", "p")
        assert shared_folder(scratch, FEATURES) != shared_folder(real, FEATURES)
        assert "rehearsals" in shared_folder(scratch, FEATURES).parts
        assert script_inputs_folder(scratch).parent != script_inputs_folder(real).parent


WATCHED = """
import sys
log = open(sys.argv.pop(1), "a", buffering=1)
sys.addaudithook(lambda event, details: event == "open" and log.write(f"{details[0]}\\n"))
from dpsweep.__main__ import main
main()
"""


@pytest.mark.long
@TRAINS
def test_no_file_of_the_real_data_set_is_opened(environment: dict[str, str], tmp_path: Path) -> None:
    """An audit hook sees every file that the coordinator and its jobs open; the sweep's opens are the control."""
    (tmp_path / "visits.csv").write_text("age,dose,ill\n" + "".join(f"{age},1,{'ab'[age % 2]}\n" for age in range(90)))

    def opened(verb: str, *words: str) -> str:
        log = tmp_path / f"{verb}.log"
        arguments = [sys.executable, "-c", WATCHED, str(log), verb, *words, f"data={tmp_path}", "page=false"]
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return log.read_text()

    assert "visits.csv" not in opened("rehearse", *OWN)
    assert "visits.csv" in opened("sweep", *OWN, "budget.epsilon=8", "budget.delta=1e-5")
