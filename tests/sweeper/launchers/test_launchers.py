"""The same sweep through every launcher that is installed, and what becomes of it when workers or Ctrl-C end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.sweeper.coordinator.signals import SAME_SECONDS
from dpsweep.sweeper.launchers.slurm_arrays import run_calls_in_local_processes
from tests.randomized import TRAINS
from tests.sweeper.search_programs import Program, folder_of
from tests.waiting import HANGS, wait

pytestmark = TRAINS

QUICK = (
    "dataset=digits",
    "trainer=dpsgd",
    "trainer.clip_norm=1",
    "score.noise_std=30",
    "accountant=rdp",
    "accountant.witnesses=[]",
)
TWO = (*QUICK, "trainer.lr=1,2", "steps=3", "privacy.noise_multiplier=3", "compute.device=cpu")
FOUR_RUNS = (
    *(*QUICK, "trainer.lr=1,2,3,4", "privacy.noise_multiplier=60", "compute.device=cpu", "compute.threads=1"),
    *("compute.together=1", "engine=opacus"),  # a job for each run, and time enough to strike it
)
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
SUBMITIT = ("hydra/launcher=submitit_local", "hydra.launcher.cpus_per_task=1")
FORK = ("hydra/launcher=fork", "hydra.launcher.n_jobs=2")
RAY = (
    "hydra/launcher=ray",
    "hydra.launcher.ray.init.num_cpus=2",
    "+hydra.launcher.ray.init.include_dashboard=false",
)


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A launcher of two workers: its extra and the module that this brings, and what it makes of a killed worker."""

    name: str
    extra: str
    module: str
    overrides: tuple[str, ...]
    complaint: str | None
    neighbours_live: bool

    def needs(self) -> None:
        pytest.importorskip(self.module, reason=f"needs dpsweep[{self.extra}]")


LONG = pytest.mark.long
LAUNCHERS = {
    "joblib": Launched(
        name="joblib",
        extra="parallel",
        module="hydra_plugins.hydra_joblib_launcher",
        overrides=JOBLIB,
        complaint="TerminatedWorkerError",
        neighbours_live=False,
    ),
    "submitit": Launched(
        name="submitit",
        extra="slurm",
        module="hydra_plugins.hydra_submitit_launcher",
        overrides=SUBMITIT,
        complaint="UncompletedJobError",
        neighbours_live=True,
    ),
    "fork": Launched(
        name="fork",
        extra="",
        module="hydra_plugins.hydra_fork_launcher",
        overrides=FORK,
        complaint="was ended by SIGKILL",
        neighbours_live=True,
    ),
    "ray": Launched(name="ray", extra="ray", module="ray", overrides=RAY, complaint=None, neighbours_live=True),
}


@pytest.fixture
def launched(name: str, environment: dict[str, str], tmp_path: Path) -> Launched:
    LAUNCHERS[name].needs()
    environment["HOME"] = str(tmp_path)  # where Ray leaves a token of its own
    return LAUNCHERS[name]


def results(folder: SweepFolder) -> list[TrialResult]:
    found = (TrialResult.read(folder.trial_folder(trial.id)) for trial in Plan.read(folder.plan_path).trials)
    return [result for result in found if result is not None]


def the_folder(place: Path) -> SweepFolder:
    (folder,) = (SweepFolder(root=path.parent) for path in place.glob("sweeps/*/*/plan.json"))
    return folder


@pytest.mark.parametrize("name", ["fork", *(pytest.param(one, marks=LONG) for one in ("submitit", "joblib", "ray"))])
def test_trials_come_back_through_every_launcher(
    name: str, launched: Launched, program: Program, fresh_program: Program, ledger: Ledger
) -> None:
    run = program if name == "fork" else fresh_program
    folder = folder_of(run(*TWO, *launched.overrides))
    assert [result.status for result in results(folder)] == [Status.FINISHED] * 2
    plan = Plan.read(folder.plan_path)
    attempts = ledger.statement(plan.account, plan.id).attempts_of_plan(plan.id)
    assert [attempts.started[trial.id] for trial in plan.trials] == [1, 1]
    assert {(*one, attempts.resumed[one]) for one in attempts.starts} <= attempts.settled.keys()


@pytest.fixture
def begun(
    launched: Launched, tmp_path: Path, environment: dict[str, str]
) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """A sweep with two workers at work, in a group of processes of its own as a terminal makes them."""
    started: list[subprocess.Popen[str]] = []

    def begin(steps: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweeper", *FOUR_RUNS, *launched.overrides, f"steps={steps}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        wait(lambda: len(list(tmp_path.glob("sweeps/*/*/trials/*/progress"))) == 2)
        return process

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def at_work(place: Path) -> list[int]:
    """The processes that are at work on trials."""
    return [int(json.loads(path.read_text())["pid"]) for path in place.glob("sweeps/*/*/trials/*/.lock.holder")]


@pytest.mark.long
@pytest.mark.parametrize("name", LAUNCHERS)
def test_ctrl_c_spares_the_workers_and_the_same_command_goes_on(
    begun: Callable[[int], subprocess.Popen[str]], tmp_path: Path, ledger: Ledger
) -> None:
    """A terminal sends it to the coordinator and to its workers alike."""
    with begun(20000) as process:
        os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert "2 not begun and 2 waiting at a checkpoint, of 4 trials" in said
    assert f"python -m sweeper {QUICK[0]}" in said
    assert "exit code 130" in errors
    assert "Traceback" not in errors
    folder = the_folder(tmp_path)
    assert folder.stop_file_path.exists()
    plan = Plan.read(folder.plan_path)
    statement = ledger.statement(plan.account, plan.id)
    assert len(statement.charges) == 1
    attempts = statement.attempts_of_plan(plan.id)
    assert {one[0] for one in attempts.starts if (*one, attempts.resumed[one]) not in attempts.settled} <= {
        trial.id for trial in plan.trials if not (folder.trial_folder(trial.id) / "claim-1").exists()
    }


@pytest.mark.long
@pytest.mark.parametrize("name", ["fork", "joblib"])
def test_a_second_ctrl_c_is_out_at_once_without_a_traceback(
    begun: Callable[[int], subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The workers are stopped, so that no checkpoint is written and the second signal finds the coordinator waiting."""
    with begun(20000) as process:
        workers = at_work(tmp_path)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        os.killpg(process.pid, signal.SIGINT)
        wait(the_folder(tmp_path).stop_file_path.exists)
        time.sleep(2 * SAME_SECONDS)  # signals that come closer together are one request
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    asked, stopped, code = errors.strip().splitlines()
    assert asked.startswith("Stopping: ")
    assert stopped.startswith("Stopped at once.")
    assert code == "(exit code 130: stopped by the user; what was charged stays charged)"
    wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 10)


@pytest.mark.long
@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_killed_worker_costs_what_ran_and_nothing_else(
    launched: Launched, begun: Callable[[int], subprocess.Popen[str]], tmp_path: Path, ledger: Ledger
) -> None:
    """Where the pool ends with it, its neighbour is killed too; what waited runs as if nothing had happened."""
    with begun(3000) as process:
        os.kill(at_work(tmp_path)[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 4
    assert ("The launcher lost jobs" in errors) == (launched.complaint is not None)
    assert (launched.complaint or "") in errors
    finished = 3 if launched.neighbours_live else 2
    assert [result.status for result in results(the_folder(tmp_path))] == [Status.FINISHED] * finished
    plan = Plan.read(the_folder(tmp_path).plan_path)
    attempts = ledger.statement(plan.account, plan.id).attempts_of_plan(plan.id)
    assert set(attempts.started.values()) == {1}
    assert sorted(str(body["status"]) for body in attempts.settled.values()) == [
        *["finished"] * finished,
        *["killed"] * (4 - finished),
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", ["submitit"])
def test_a_job_that_is_told_that_its_time_is_up_waits_at_a_checkpoint_for_the_same_command(
    launched: Launched,
    begun: Callable[[int], subprocess.Popen[str]],
    fresh_program: Program,
    tmp_path: Path,
    ledger: Ledger,
) -> None:
    """Slurm's word, two minutes before it ends a job, comes by submitit's signal."""
    with begun(3000) as process:
        os.kill(at_work(tmp_path)[0], signal.SIGUSR2)
        _, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 4
    assert "not finished: 1 waiting at a checkpoint, of 4 trials" in errors
    folder = the_folder(tmp_path)
    assert len(results(folder)) == 3
    assert folder_of(fresh_program(*FOUR_RUNS, *launched.overrides, "steps=3000")).root == folder.root
    assert [result.status for result in results(folder)] == [Status.FINISHED] * 4
    plan = Plan.read(folder.plan_path)
    assert len(ledger.statement(plan.account, plan.id).charges) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["fork", "joblib"])
def test_a_killed_coordinator_takes_its_workers_along_and_the_same_command_goes_on(
    launched: Launched,
    begun: Callable[[int], subprocess.Popen[str]],
    fresh_program: Program,
    tmp_path: Path,
    ledger: Ledger,
) -> None:
    """Their locks are free at once; what they did stays charged, and with `--again` is charged once more."""
    with begun(3000) as process:
        workers = at_work(tmp_path)
        process.kill()
    assert len(workers) == 2
    wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    folder = the_folder(tmp_path)
    assert results(folder) == []
    assert folder_of(fresh_program(*FOUR_RUNS, *launched.overrides, "steps=3000", "--again")).root == folder.root
    assert [result.status for result in results(folder)] == [Status.FINISHED] * 4
    plan = Plan.read(folder.plan_path)
    statement = ledger.statement(plan.account, plan.id)
    assert [charge.body["reason"] for charge in statement.charges] == ["plan", "repeat"]
    assert len(statement.charges[1].body["trials"]) == 2


def test_a_killed_process_of_submitit_is_noticed_at_once_and_costs_no_other_job(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs dpsweep[slurm]")
    settings = {"submitit_folder": str(tmp_path / ".submitit"), "timeout_min": 5}

    def job(number: int) -> tuple[int, float]:
        if number == 0:
            os.kill(os.getpid(), 9)
        return number, time.time()

    lost, kept = run_calls_in_local_processes(settings, job, [(0,), (1,)])
    assert isinstance(lost, Exception)
    assert kept[0] == 1
    assert time.time() - kept[1] < 10, "submitit alone waits for 15 s"
