"""The program itself, end to end, as a user starts it: on real data, killed, repeated, bypassed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from socket import gethostname

import pytest

from dpsweep.accounting.events.build import from_json, same
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import PrivateStore
from dpsweep.accounting.records.folder_audit import verify_folder
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import MODEL_FILE, Status, TrialResult
from tests.databases import Server
from tests.randomized import TRAINS
from tests.studies import study_in
from tests.waiting import HANGS, strike_when, wait

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]

LIGHT = ("accountant=rdp", "accountant.witnesses=[]")
"""Prices by the quickest accountant alone: the program is under test here, not its accountants."""

SMALL = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=0.1,1", "steps=3", *LIGHT)
TWO = (*SMALL, "trainer.lr=2")
FOUR = (*SMALL, "trainer.lr=2,8")


def folder_of(done: subprocess.CompletedProcess[str]) -> Path:
    """The sweep's folder, by the last line printed: the page to open."""
    assert done.returncode in (0, 4), done.stderr
    page = Path(done.stdout.strip().splitlines()[-1])
    assert page.is_file()
    assert page.parts[-2:] == ("curator", "report.html")
    return page.parent.parent


def results(folder: Path) -> dict[str, TrialResult]:
    plan = Plan.read(folder / "plan.json")
    found = {trial.id: TrialResult.read(folder / "trials" / trial.id) for trial in plan.trials}
    return {trial: result for trial, result in found.items() if result is not None}


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
        assert same(from_json(dict(result.event)), trial.event.training), "what ran is what was charged"
        assert result.score is not None
        assert 0 <= result.score["low"] <= result.score["value"] <= result.score["high"] <= 1
        files = {path.name for path in (folder / "trials" / trial.id).iterdir()}
        assert files >= {"config.yaml", "train.log", "result.json", "receipt.json"}
    statement = ledger.statement("digits")
    (charge,) = statement.charges
    assert charge.plan == plan.id
    assert statement.reserved == (charge.body["epsilon"], plan.delta)
    assert 7.9 < charge.body["epsilon"] <= 8
    first_start = next(entry.seq for entry in statement.entries if entry.kind == "start")
    assert charge.seq < first_start
    assert "4 of 4 results" in verify_folder(folder, ledger)
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
    """Charges never fall, finished trials are not repeated, the killed one is a new charge."""
    line = [*SMALL, "trainer.lr=1,2,4,8", "steps=400", "privacy.noise_multiplier=20", "compute.together=1"]
    command = [sys.executable, "-m", "sweeper", *line]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        strike_when(lambda: _results(tmp_path) >= 2 and _open_claims(tmp_path) == 1, process, signal.SIGKILL)
    folder = next(tmp_path.glob("sweeps/digits/*"))
    before = ledger.statement("digits")
    finished = {trial: result.ended for trial, result in results(folder).items()}
    assert 2 <= len(finished) < 8
    assert len(before.charges) == 1

    folder_of(program(*line))
    after = ledger.statement("digits")
    assert [charge.body["reason"] for charge in after.charges] == ["plan", "repeat"]
    assert after.reserved[0] > before.reserved[0]
    assert after.reserved[1] > before.reserved[1]
    (repeated,) = after.charges[1].body["trials"]
    assert repeated not in finished
    assert len(results(folder)) == 8
    assert {trial: result.ended for trial, result in results(folder).items() if trial in finished} == finished
    plan = Plan.read(folder / "plan.json")
    assert {trial.id: after.started(plan.id, trial.id) for trial in plan.trials} == {
        trial.id: 2 if trial.id == repeated else 1 for trial in plan.trials
    }
    assert after.entries[: len(before.entries)] == before.entries
    ledger.verify()


def _results(root: Path) -> int:
    return len(list(root.glob("sweeps/*/*/trials/*/result.json")))


def _open_claims(root: Path) -> int:
    """How many attempts are at work: claimed, without a result."""
    return sum(not (claim.parent / "result.json").exists() for claim in root.glob("sweeps/*/*/trials/*/claim-1"))


def test_a_deleted_folder_does_not_lower_the_bill(program: Program, ledger: Ledger) -> None:
    line = (*TWO, "privacy.epsilon=12")
    folder = folder_of(program(*line))
    before = ledger.statement("digits").reserved
    shutil.rmtree(folder)
    assert folder_of(program(*line)) == folder
    assert ledger.statement("digits").reserved[0] == pytest.approx(2 * before[0])
    shutil.rmtree(folder)
    refused = program(*line)
    assert refused.returncode == 3
    assert ledger.statement("digits").reserved[0] == pytest.approx(2 * before[0])


def test_a_folder_from_another_ledger_is_refused_before_the_charge(
    program: Program, environment: dict[str, str], tmp_path: Path
) -> None:
    folder_of(program(*TWO))
    other = Ledger(tmp_path / "elsewhere" / "ledger.sqlite")
    environment["DPSWEEP_LEDGER"] = str(other.path)
    done = program(*TWO)
    assert done.returncode == 2
    assert "Use the ledger that it was run with" in done.stderr
    assert other.statement("digits").charges == ()


def test_a_deleted_ledger_is_no_fresh_budget(program: Program, ledger: Ledger) -> None:
    folder_of(program(*TWO))
    assert ledger.path is not None
    ledger.path.unlink()
    done = program(*TWO)
    assert done.returncode == 5
    assert "Traceback" not in done.stderr
    assert not ledger.path.exists()


def test_what_does_not_fit_is_refused_and_says_what_would(program: Program, ledger: Ledger) -> None:
    refused = program(*FOUR, "privacy.epsilon=25")
    assert refused.returncode == 3
    assert "24.000 of 24" in refused.stderr
    assert "3 of these 4 runs" in refused.stderr
    assert "privacy.epsilon=24" in refused.stderr
    assert "dpsweep budget raise" in refused.stderr
    assert ledger.statement("digits").reserved == (0.0, 0.0)
    assert ledger.statement("digits").charges == ()


OUTSIDE = (
    "Nothing trains outside a charged sweep: start one with `dpsweep sweep` (no hydra.mode=RUN, no other "
    "hydra/sweeper)."
)
BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
BYPASSES = {
    "hydra.mode=RUN": OUTSIDE,
    "hydra.mode=null": OUTSIDE,
    "hydra.mode=RUN hydra.job.chdir=true hydra.run.dir=here": OUTSIDE,
    "hydra.mode=RUN block=abc plan.id=def": "Expected block=abc to be left out: the sweeper fills it in.",
    "hydra/sweeper=basic": OUTSIDE,
    "-m hydra/sweeper=basic": OUTSIDE,
    "hydra/sweeper=basic hydra/launcher=fork trainer.lr=1,2": OUTSIDE,
    f"hydra.sweeper._target_={BASIC}": OUTSIDE,
    "--config-name=job hydra.mode=RUN": OUTSIDE,
    "--config-name=job -m": OUTSIDE,
    "--config-name=job -m ++block=abc": "Expected ++block=abc to be left out: the sweeper fills it in.",
    "block=abc": "Expected block=abc to be left out: the sweeper fills it in.",
    "parts=2": "Expected parts=2 to be left out: the sweeper fills it in.",
    "plan.id=abc": "Expected plan.id=abc to be left out: the sweeper fills it in.",
    "--experimental-rerun=job.pickle": "Expected --experimental-rerun to be left out: nothing trains from a file that "
    "Hydra has stored.",
    "hydra.callbacks.door._target_=hydra.experimental.callback.Callback hydra.mode=RUN": "Expected "
    "hydra.callbacks.door._target_ to be left out: it refuses jobs outside a charged sweep.",
    "~hydra.callbacks.door": "Expected ~hydra.callbacks.door to be left out: it refuses jobs outside a charged sweep.",
}


@pytest.mark.parametrize("bypass", BYPASSES)
def test_ways_round_the_sweeper_train_nothing_and_say_so_in_one_sentence(
    program: Program, ledger: Ledger, tmp_path: Path, bypass: str
) -> None:
    words = bypass.split()
    done = program(*words, *([] if words[0].startswith("--config-name") else ["dataset=digits"]))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [BYPASSES[bypass], "(exit code 2: bad input, nothing was charged)"]
    assert [path.name for path in tmp_path.rglob("*") if path.name != "multirun.yaml"] == []
    assert ledger.accounts() == ()


BY_HAND = """
import sys
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.one_sentence import one_sentence
from dpsweep.sweeper.job.block_job import run_block
block, folder, store = sys.argv[1:]
with one_sentence(), initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
    words = [f"block='{block}'", f"hydra.sweep.dir={folder}", f"store={store}", "hydra.runtime.cwd=."]
    config = compose("job", words, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    run_block(config)
"""
"""A job as our sweeper starts it."""


def test_a_finished_block_is_not_trained_again_by_hand(
    program: Program, environment: dict[str, str], ledger: Ledger
) -> None:
    """The receipt was used: neither the same block nor an edited point trains on it."""
    folder = folder_of(program(*TWO))
    plan = Plan.read(folder / "plan.json")
    before = results(folder)
    store = PrivateStore.of(ledger, plan.account, plan.id).root

    def by_hand() -> str:
        command = [sys.executable, "-c", BY_HAND, plan.blocks[0].id, str(folder), str(store)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 2
        return done.stderr

    assert "already used" in by_hand()
    form = json.loads((folder / "plan.json").read_text())
    form["blocks"][0][0]["config"]["trainer"]["lr"] = 99.0
    (folder / "plan.json").write_text(json.dumps(form))
    assert "edited after planning" in by_hand()
    assert {trial: result.ended for trial, result in before.items()} == {
        trial.id: TrialResult.read(folder / "trials" / trial.id).ended  # type: ignore[union-attr]
        for trial in plan.trials
    }


SPY = '''
"""A data set that writes down what the ledger held when its records were read."""
import json, os
from dataclasses import dataclass
from pathlib import Path
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.trainers.data.sets.embedded import EmbeddedImages

@dataclass(frozen=True, kw_only=True)
class Spy:
    name: str
    records: int
    test_records: int
    shape: tuple
    classes: int
    unit: str
    inner: EmbeddedImages
    fail: bool = False

    def locate(self, folder): pass
    def verify(self, folder): return self.inner.verify(folder)
    def load(self, folder):
        statement = Ledger(Ledger.locate()).statement(self.name)
        started = [entry for entry in statement.entries if entry.kind == "start"]
        with Path(os.environ["SPY"]).open("a") as stream:
            stream.write(json.dumps([len(statement.charges), len(started)]) + "\\n")
        if self.fail:
            raise OSError("the disk is gone")
        return self.inner.load(folder)
'''


@pytest.fixture
def spy(tmp_path: Path, environment: dict[str, str]) -> tuple[str, ...]:
    (tmp_path / "spy.py").write_text(SPY)
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    digits = (Path(__file__).parents[3] / "conf" / "dataset" / "digits.yaml").read_text()
    head, _, body = digits.partition("dataset:\n")
    inner, _, tail = body.partition("\n\n")
    spied = "dataset:\n  _target_: spy.Spy\n  name: digits\n  records: 1797\n  test_records: 0\n  shape: [1, 8, 8]\n"
    spied += "  classes: 10\n  unit: record\n  inner:\n" + "\n".join(f"  {line}" for line in inner.splitlines())
    (tmp_path / "conf" / "dataset" / "spied.yaml").write_text(f"{head}{spied}\n\n{tail}")
    environment |= {"SPY": str(tmp_path / "seen"), "PYTHONPATH": str(tmp_path)}
    rest = [override for override in TWO if not override.startswith("dataset=")]
    return ("dataset=spied", f"hydra.searchpath=[file://{tmp_path / 'conf'}]", *rest)


def test_records_are_read_only_after_the_charge_and_the_start_are_committed(
    program: Program, spy: tuple[str, ...], tmp_path: Path
) -> None:
    folder_of(program(*spy))
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert seen[0] == [1, 2], "one charge and the starts of both runs stood in the ledger at the first look"


def test_a_failing_trial_is_a_result_stays_charged_and_is_said(
    program: Program, spy: tuple[str, ...], ledger: Ledger
) -> None:
    done = program(*spy, "+dataset.fail=true")
    assert done.returncode == 4
    assert "2 of 2 trials failed" in done.stderr
    folder = folder_of(done)
    for trial, result in results(folder).items():
        assert result.status is Status.FAILED
        assert result.error == "OSError: the disk is gone"
        assert "the disk is gone" in (folder / "trials" / trial / "train.log").read_text()
    before = ledger.statement("digits").reserved
    again = program(*spy, "+dataset.fail=true")
    assert again.returncode == 4
    assert ledger.statement("digits").reserved == before, "a failed trial is not paid for again unasked"
    retried = program(*spy, "+dataset.fail=true", "hydra.sweeper.retry=failed")
    assert retried.returncode == 3 or ledger.statement("digits").reserved[0] > before[0]


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
        folder = folder_of(program(*line))
        models.append({trial: (folder / "trials" / trial / MODEL_FILE).read_bytes() for trial in results(folder)})
        shutil.rmtree(folder)
    assert models[0].keys() == models[1].keys()
    assert len(models[0]) == 6
    assert all(models[0][trial] != models[1][trial] for trial in models[0])


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
    command = [sys.executable, "-m", "sweeper", *line]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as first:
        wait(lambda: _open_claims(tmp_path) >= 1)
        second = program(*line, f"hydra.sweep.dir={tmp_path / 'elsewhere'}")
        os.kill(first.pid, signal.SIGKILL)
    assert second.returncode == 2
    assert re.search(rf"Plan \w+ on digits is being run by process {first.pid} on {gethostname()}", second.stderr)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.long
def test_a_ledger_on_a_server_serves_a_sweep(program: Program, environment: dict[str, str], server: Server) -> None:
    environment["DPSWEEP_LEDGER"] = server.place().address
    folder = folder_of(program(*TWO))
    ledger = Ledger(environment["DPSWEEP_LEDGER"])
    assert "2 of 2 results" in verify_folder(folder, ledger)
    assert "nothing is run or charged" in program(*TWO).stdout
    assert len(ledger.statement("digits").charges) == 1


def test_ctrl_c_is_130_and_says_how_to_go_on(environment: dict[str, str], tmp_path: Path, ledger: Ledger) -> None:
    command = [sys.executable, "-m", "sweeper", *TWO, "steps=100000", "privacy.noise_multiplier=200"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait(lambda: _open_claims(tmp_path) >= 1)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert "2 waiting at a checkpoint of 2 trials" in said
    assert f"the same command goes on: python -m sweeper {TWO[0]}" in said
    assert "finish their step and write a checkpoint" in errors
    assert "Traceback" not in errors
    assert len(ledger.statement("digits").charges) == 1
