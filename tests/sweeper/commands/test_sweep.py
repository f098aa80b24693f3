"""The program itself, end to end, as a user starts it: on real data, killed, repeated, by several processes."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path
from socket import gethostname

import pytest

from dpsweep.accounting.events.build import are_same_events, from_json
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import MODEL_FILE, Status
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from tests.databases import Server
from tests.forked_programs import Run
from tests.randomized import TRAINS
from tests.studies import study_in
from tests.sweeper.digits_sweeps import FOUR, LIGHT, SMALL, TWO, Program, folder_of, results
from tests.waiting import strike_when, wait

pytestmark = TRAINS


@pytest.mark.usefixtures("pages")
def test_a_sweep_from_command_to_page_and_back_again(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    done = program(*FOUR)
    folder = folder_of(done)
    plan = Plan.read(folder / "plan.json")
    found = results(folder)
    assert len(found) == 4
    for trial in plan.trials:
        result = found[trial.id]
        assert result.status is Status.FINISHED
        assert result.randomness == "secret"
        assert result.event is not None
        assert are_same_events(from_json(dict(result.event)), trial.event.training), "what ran is what was charged"
        assert result.score is not None
        assert 0 <= result.score["low"] <= result.score["value"] <= result.score["high"] <= 1
        files = {path.name for path in (folder / "trials" / trial.id).iterdir()}
        assert files == {"train.log", "result.json", "receipt.json", "claim-1", "model.safetensors"}
    statement = ledger.statement("digits")
    (charge,) = statement.charges
    assert charge.plan == plan.id
    assert reserved_amounts(statement) == (charge.body["epsilon"], plan.delta)
    assert 7.9 < charge.body["epsilon"] <= 8
    first_start = next(entry.seq for entry in statement.entries if entry.kind == "start")
    assert charge.seq < first_start
    assert "4 of 4 results" in verify_sweep_folder_and_describe(folder, ledger)
    assert sorted(path.name for path in (folder / "curator").glob("*.png")) != []
    study = study_in(folder / "study.log")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4
    assert study.best_value == max(result.score["value"] for result in found.values() if result.score)

    again = program(*FOUR)
    assert folder_of(again) == folder
    assert "nothing is run or charged" in again.stdout
    assert ledger.statement("digits").entries == statement.entries
    assert len(study_in(folder / "study.log").trials) == 4

    repeated = program(*FOUR, "--again")
    assert folder_of(repeated) == folder
    assert [charge.body["reason"] for charge in ledger.statement("digits").charges] == ["plan", "repeat"]
    assert {result.attempt for result in results(folder).values()} == {2}


def test_kill_minus_nine_and_resume(
    program: Program, ledger: Ledger, environment: dict[str, str], tmp_path: Path
) -> None:
    """Charges never fall, finished trials are not repeated, the killed one is a new charge if the user accepts it."""
    line = [*SMALL, "trainer.lr=1,2,4,8", "steps=400", "privacy.noise_multiplier=20", "compute.together=1"]
    with Run(line, tmp_path, environment, module="sweeper") as process:
        strike_when(lambda: _results(tmp_path) >= 2 and _open_claims(tmp_path) == 1, process, signal.SIGKILL)
    folder = next(tmp_path.glob("sweeps/digits/*"))
    before = ledger.statement("digits")
    finished = {trial: result.ended for trial, result in results(folder).items()}
    assert 2 <= len(finished) < 8
    assert len(before.charges) == 1

    waiting = program(*line)
    assert waiting.returncode == 4
    assert "Another attempt at 1 run that was killed or lost is not paid for: it charges epsilon " in waiting.stderr
    assert f"`dpsweep report {folder}` shows what finished. To accept the charge: " in waiting.stderr
    assert (
        f"to pass on without 1 killed run, which has no score: dpsweep release {folder.relative_to(tmp_path)}"
        in waiting.stdout
    )
    assert len(results(folder)) == 7, "what is paid for went on"
    assert len(ledger.statement("digits").charges) == 1
    folder_of(program(*line, "--again"))
    after = ledger.statement("digits")
    assert [charge.body["reason"] for charge in after.charges] == ["plan", "repeat"]
    assert reserved_amounts(after)[0] > reserved_amounts(before)[0]
    assert reserved_amounts(after)[1] > reserved_amounts(before)[1]
    (repeated,) = after.charges[1].body["trials"]
    assert repeated not in finished
    assert len(results(folder)) == 8
    assert {trial: result.ended for trial, result in results(folder).items() if trial in finished} == finished
    plan = Plan.read(folder / "plan.json")
    assert {trial.id: after.attempts_of_plan(plan.id).started[trial.id] for trial in plan.trials} == {
        trial.id: 2 if trial.id == repeated else 1 for trial in plan.trials
    }
    assert after.entries[: len(before.entries)] == before.entries
    verify_entries(ledger.chain)


def _results(root: Path) -> int:
    return len(list(root.glob("sweeps/*/*/trials/*/result.json")))


def _open_claims(root: Path) -> int:
    """How many attempts are at work: claimed, without a result."""
    return sum(not (claim.parent / "result.json").exists() for claim in root.glob("sweeps/*/*/trials/*/claim-1"))


def test_a_diverged_trial_is_the_worst_score_and_no_crash(program: Program) -> None:
    line = [
        "dataset=digits",
        "trainer=dpsgd",
        "trainer.lr=1e-9,1",
        "trainer.clip_norm=1e3",
        "lr_schedule=paper_a",
        "lr_schedule.milestones=[0.5]",
        "lr_schedule.factors=[1e38]",
        "steps=8",
        *LIGHT,
    ]
    found = results(folder_of(program(*line)))
    assert sorted(result.status.value for result in found.values()) == ["diverged", "finished"]
    diverged = next(result for result in found.values() if result.status is Status.DIVERGED)
    assert diverged.score == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert diverged.steps < 8


def test_a_page_that_was_not_asked_for_is_drawn_later(program: Program, tmp_path: Path) -> None:
    done = program(*TWO)
    folder = folder_of(done)
    assert done.stdout.splitlines()[-1] == str(folder)
    assert not (folder / "curator").exists()
    drawn = program("report", str(folder), module="dpsweep.sweeper.commands.cli")
    assert Path(drawn.stdout.strip()) == folder / "curator" / "report.html"
    for typo in ("page=later", "fit=maybe"):
        refused = program("plan", *TWO, typo, module="dpsweep.sweeper.commands.cli")
        assert refused.returncode == 2
        assert f"Expected {typo} to be true or false." in refused.stderr


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_reproducible_sweeps_repeat_and_are_no_release(program: Program, tmp_path: Path) -> None:
    scores = []
    for place in ("a", "b"):
        folder = folder_of(program(*TWO, "seed=7", f"hydra.sweep.dir={tmp_path / place}", "privacy.epsilon=11"))
        found = results(folder)
        assert {result.randomness for result in found.values()} == {"reproducible"}
        scores.append({trial: result.score for trial, result in found.items()})
    assert scores[0] == scores[1]
    refused = program("release", str(folder), module="dpsweep.sweeper.commands.cli")
    assert refused.returncode == 2
    assert not (folder / "release").exists()
    page = (folder / "curator" / "report.html").read_text()
    assert "reproducible" in page


@pytest.mark.randomized(
    draws="secret noise of two sweeps", bound="keys of 128 bits are the same, of 6 pairs", false_alarm=6 * 2.0**-128
)
def test_secret_sweeps_do_not_repeat(program: Program, ledger: Ledger) -> None:
    """The same seedless command twice: another draw of noise, hence other weights."""
    line = (*SMALL, "trainer.lr=2,4,8", "privacy.epsilon=11")
    models = []
    for _ in range(2):
        folder = folder_of(program(*line, "--again"))
        models.append({trial: (folder / "trials" / trial / MODEL_FILE).read_bytes() for trial in results(folder)})
        shutil.rmtree(folder)
    assert models[0].keys() == models[1].keys()
    assert len(models[0]) == 6
    assert all(models[0][trial] != models[1][trial] for trial in models[0])


@pytest.mark.long
def test_two_workers(fresh_program: Program) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    folder = folder_of(fresh_program(*FOUR, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"))
    assert {result.status for result in results(folder).values()} == {Status.FINISHED}


@pytest.fixture(params=["file", "server"])
def anywhere(request: pytest.FixtureRequest, environment: dict[str, str]) -> None:
    if request.param == "server":
        environment["DPSWEEP_LEDGER"] = request.getfixturevalue("server").place().address


@pytest.mark.usefixtures("anywhere")
def test_a_second_coordinator_is_refused_in_whichever_folder(
    program: Program, environment: dict[str, str], tmp_path: Path
) -> None:
    line = [*TWO, "steps=100000", "privacy.noise_multiplier=200"]
    with Run(line, tmp_path, environment, module="sweeper") as first:
        wait(lambda: _open_claims(tmp_path) >= 1)
        second = program(*line, f"hydra.sweep.dir={tmp_path / 'elsewhere'}")
        first.kill()
    assert second.returncode == 2
    assert re.search(rf"Plan \w+ on digits is being run by process {first.pid} on {gethostname()}", second.stderr)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.long
def test_a_ledger_on_a_server_serves_a_sweep(program: Program, environment: dict[str, str], server: Server) -> None:
    environment["DPSWEEP_LEDGER"] = server.place().address
    folder = folder_of(program(*TWO))
    ledger = Ledger(environment["DPSWEEP_LEDGER"])
    assert "2 of 2 results" in verify_sweep_folder_and_describe(folder, ledger)
    assert "nothing is run or charged" in program(*TWO).stdout
    assert len(ledger.statement("digits").charges) == 1


def test_ctrl_c_is_130_and_says_how_to_go_on(environment: dict[str, str], tmp_path: Path, ledger: Ledger) -> None:
    line = [*TWO, "steps=100000", "privacy.noise_multiplier=200"]
    with Run(line, tmp_path, environment, module="sweeper") as process:
        wait(lambda: _open_claims(tmp_path) >= 1)
        process.send_signal(signal.SIGINT)
        done = process.wait()
    assert done.code == 130
    assert "2 waiting at a checkpoint, of 2 trials" in done.out
    assert f"the same command goes on: python -m sweeper {TWO[0]}" in done.out
    assert "finish their step and write a checkpoint" in done.err
    assert "Traceback" not in done.err
    assert len(ledger.statement("digits").charges) == 1
