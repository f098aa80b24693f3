"""Faults of real engines under a sweep of two runs: the bill after each, and after the same command again.

No charge is lost and none is doubled: a run that waits at a checkpoint goes on with its charge, and one that was lost
is repeated by a charge of its own, with `--again`. Other faults are in `test_slurm.py` (settings that are refused, a
task that died before its claim, jobs requeued and resumed, a coordinator requeued, or killed with jobs pending),
and in `tests/sweeper/launchers/test_launchers.py` (a killed worker, Ctrl-C, by every launcher).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from tests.engines import postgres_site, ray_site, slurm_site
from tests.engines.postgres_site import Servers
from tests.engines.ray_site import Cluster
from tests.engines.slurm_site import Site
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import results
from tests.waiting import HANGS, wait

pytestmark = [pytest.mark.long, TRAINS]

RUNS = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "score.noise_std=30"),
    *("accountant=rdp", "accountant.witnesses=[]", "privacy.noise_multiplier=60", "compute.device=cpu", "page=false"),
    *("compute.together=1", "engine=opacus", "steps=3000"),
)
AGAIN = "`--again` charges"
PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()


def ray_commands() -> tuple[str, ...]:
    """The page's commands that start a cluster."""
    section = PAGE.split("\n## A Ray cluster")[1].split("\n## ")[0]
    lines = [line.partition("  #")[0].strip() for line in re.findall(r"^\$ (.*)$", section, re.MULTILINE)]
    return tuple(line for line in lines if line.startswith(("export ", "ray ")))


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How an engine is started on this machine, why it may not be, and the words and variables of a sweep on it."""

    reason: Callable[[], str]
    started: Callable[[Path], AbstractContextManager[Any]]
    words: Callable[[Any], tuple[str, ...]]
    variables: Callable[[Any], dict[str, str]]


SLURM_WORDS = ("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.partition=cpu")
ENGINES = {
    "slurm": Engine(
        reason=slurm_site.reason_why_not,
        started=slurm_site.site_running_in,
        words=lambda site: SLURM_WORDS,
        variables=lambda site: {"SLURM_CONF": site.environment["SLURM_CONF"]},
    ),
    "ray": Engine(
        reason=ray_site.reason_why_not,
        started=lambda folder: ray_site.cluster_started_by(ray_commands()),
        words=lambda cluster: (
            *("hydra/launcher=ray", f"hydra.launcher.ray.init.address={cluster.address}"),
            "hydra.launcher.ray.remote.num_cpus=2",
        ),
        variables=lambda cluster: {key: cluster.environment[key] for key in ("HOME", "RAY_AUTH_MODE")},
    ),
    "database": Engine(
        reason=postgres_site.reason_why_not,
        started=lambda folder: postgres_site.servers_running(),
        words=lambda servers: ("hydra/launcher=fork", "hydra.launcher.n_jobs=2"),
        variables=lambda servers: {
            "DPSWEEP_LEDGER": servers.address(servers.pool),
            "PGPASSFILE": servers.environment["PGPASSFILE"],
        },
    ),
}


@dataclass(frozen=True, kw_only=True)
class Sweeping:
    """A sweep whose two runs are at work on a running engine."""

    engine: Any
    process: subprocess.Popen[str]
    folder: Path

    def at_work(self) -> list[int]:
        return [int(json.loads(path.read_text())["pid"]) for path in self.folder.glob("trials/*/.lock.holder")]

    def new_jobs(self) -> list[str]:
        return sorted(self.engine.jobs())


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What strikes, and what is seen of it.

    `code` ends the first command and `finished` runs come of it; `bill` is the number of charges, and of runs paid for,
    after it, and `then` the same after the same command again, which finishes all runs, with `--again` if that costs.
    """

    engine: str
    strike: Callable[[Sweeping], object]
    code: int
    finished: int
    then: tuple[int, int]
    bill: tuple[int, int] = (1, 2)

    @property
    def row(self) -> str:
        """The cells of docs/scaling.md: exit code, finished runs, and what the same command adds to the bill."""
        code = "" if self.code < 0 else str(self.code)
        told = {0: "nothing more is charged", 1: f"{AGAIN} the lost run once more", 2: f"{AGAIN} both once more"}
        return f"| {code} | {self.finished} | 2 finished; {told[self.then[1] - self.bill[1]]} |".replace("|  |", "| |")


def scancel(sweeping: Sweeping) -> None:
    sweeping.engine.run("scancel", sweeping.new_jobs()[0])


def reach_time_limit(sweeping: Sweeping) -> None:
    """Slurm warns or ends the job; the run stands still until then, however fast this machine is."""
    site: Site = sweeping.engine
    job = sweeping.new_jobs()[0]
    (worker,) = (pid for pid in sweeping.at_work() if slurm_job(pid) == job)
    os.kill(worker, signal.SIGSTOP)
    site.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    wait(lambda: has_ended_or_been_told(worker), "Slurm's warning")
    with suppress(ProcessLookupError):  # at the end Slurm wakes it by itself
        os.kill(worker, signal.SIGCONT)


def slurm_job(pid: int) -> str:
    """The job of an array that a process belongs to."""
    variables = dict(word.partition("=")[::2] for word in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"


def has_ended_or_been_told(pid: int) -> bool:
    """Whether a process that stands still has a signal to handle, or is gone."""
    with suppress(FileNotFoundError):
        pending = re.findall(r"^ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return bool(int(pending[0], 16))
    return True


def requeue(sweeping: Sweeping) -> None:
    site: Site = sweeping.engine
    job = sweeping.new_jobs()[0]
    site.run("scontrol", "requeue", job)
    wait(lambda: site.jobs().get(job) == "PENDING")
    site.run("scontrol", "update", f"JobId={job}", "StartTime=now")


def kill_coordinator_of_queue(sweeping: Sweeping) -> None:
    """Its jobs go on."""
    sweeping.process.kill()
    wait(lambda: len(results(sweeping.folder)) == 2)


def preempt(sweeping: Sweeping) -> None:
    site: Site = sweeping.engine
    node = site.run("squeue", "--noheader", f"--jobs={sweeping.new_jobs()[0]}", "--format=%N").strip()
    urgent = ["sbatch", "--partition=urgent", "--exclusive", f"--nodelist={node}", "--output=/dev/null"]
    site.run(*urgent, "--wrap=sleep 5")


def kill_node(sweeping: Sweeping) -> None:
    """It stays dead."""
    site: Site = sweeping.engine
    site.kill_node(site.run("squeue", "--noheader", f"--jobs={sweeping.new_jobs()[0]}", "--format=%N").strip())


def kill_one_worker(sweeping: Sweeping) -> None:
    os.kill(sweeping.at_work()[0], signal.SIGKILL)


def kill_coordinator(sweeping: Sweeping) -> None:
    workers = sweeping.at_work()
    sweeping.process.kill()
    wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def kill_raylet(sweeping: Sweeping) -> None:
    cluster: Cluster = sweeping.engine
    cluster.kill_second_machine()


def crash_server(sweeping: Sweeping) -> None:
    servers: Servers = sweeping.engine
    servers.crash()
    wait(lambda: len(results(sweeping.folder)) == 2 or sweeping.process.poll() is not None)
    sweeping.process.wait(HANGS)
    servers.start_again()


def connections(pid: int, port: int) -> int:
    """The number of a process's connections to a port of this machine."""
    own = subprocess.run(["ls", "-l", f"/proc/{pid}/fd"], capture_output=True, text=True).stdout
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[2].partition(":")[2], 16) == port and f"socket:[{row[9]}]" in own for row in rows)


def restart_server(sweeping: Sweeping) -> None:
    """A coordinator whose runs are at work has one connection, which holds its lock."""
    servers: Servers = sweeping.engine
    wait(lambda: connections(sweeping.process.pid, servers.pool) == 1, "a single connection")
    servers.crash()
    servers.start_again()


SCENARIOS = {
    "Slurm: scancel": Scenario(engine="slurm", strike=scancel, code=4, finished=1, then=(1, 2)),
    "Slurm: time limit": Scenario(engine="slurm", strike=reach_time_limit, code=4, finished=1, then=(1, 2)),
    "Slurm: requeue": Scenario(engine="slurm", strike=requeue, code=4, finished=1, then=(1, 2)),
    "Slurm: killed coordinator": Scenario(
        engine="slurm", strike=kill_coordinator_of_queue, code=-9, finished=2, then=(1, 2)
    ),
    "Slurm: preemption": Scenario(engine="slurm", strike=preempt, code=4, finished=1, then=(1, 2)),
    "Slurm: dead node": Scenario(engine="slurm", strike=kill_node, code=4, finished=1, then=(2, 3)),
    "Ray: killed worker": Scenario(engine="ray", strike=kill_one_worker, code=4, finished=1, then=(2, 3)),
    "Ray: killed coordinator": Scenario(engine="ray", strike=kill_coordinator, code=-9, finished=0, then=(2, 4)),
    "Ray: killed raylet": Scenario(engine="ray", strike=kill_raylet, code=4, finished=1, then=(2, 3)),
    "PostgreSQL: crash, and back": Scenario(engine="database", strike=restart_server, code=0, finished=2, then=(1, 2)),
    "PostgreSQL: stopped": Scenario(engine="database", strike=crash_server, code=5, finished=2, then=(1, 2)),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_charge_is_lost_or_doubled(
    name: str, environment: dict[str, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scenario, kind = SCENARIOS[name], ENGINES[SCENARIOS[name].engine]
    if reason := kind.reason():
        pytest.skip(reason)
    with kind.started(tmp_path_factory.mktemp("engine")) as engine, pytest.MonkeyPatch.context() as patch:
        own = kind.variables(engine) | {"OMP_NUM_THREADS": "1", "DPSWEEP_PRIVATE": str(tmp_path / "private")}
        for variable, value in own.items():
            patch.setenv(variable, value)
        environment |= own
        command = [sys.executable, "-m", "sweeper", *RUNS, *kind.words(engine)]
        start = partial(subprocess.Popen, command, cwd=tmp_path, env=environment, text=True)
        with start(stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            wait(lambda: len([*tmp_path.glob("sweeps/*/*/trials/*/progress")]) == 2 or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            (folder,) = tmp_path.glob("sweeps/*/*")
            scenario.strike(Sweeping(engine=engine, process=process, folder=folder))
            said, _ = process.communicate(timeout=HANGS)
        ledger = Ledger(environment["DPSWEEP_LEDGER"])
        assert (process.returncode, len(results(folder))) == (scenario.code, scenario.finished), said
        assert bill(ledger) == scenario.bill
        command += ["--again"] if scenario.then != scenario.bill else []
        with start(stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            said, _ = process.communicate(timeout=HANGS)
        assert (process.returncode, len(results(folder))) == (0, 2), said
        assert bill(ledger) == scenario.then
        verify_entries(ledger.chain)


def bill(ledger: Ledger) -> tuple[int, int]:
    """The number of charges on digits, and of the runs that they pay for."""
    charges = ledger.statement("digits").charges
    return (len(charges), sum(len(charge.body["trials"]) for charge in charges))
