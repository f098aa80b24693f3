"""Sweeps on a real Slurm of two nodes on loopback, with the bill in the ledger after each."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from tests.engines.slurm_site import MOST, Site, reason_why_not, site_running_in
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of, results
from tests.sweeper.search_programs import Program
from tests.waiting import HANGS, wait

pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs dpsweep[slurm]")

pytestmark = [pytest.mark.long, TRAINS]

DIGITS = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "score.noise_std=30", "steps=30"),
    *("accountant=rdp", "accountant.witnesses=[]", "privacy.noise_multiplier=60", "compute.device=cpu", "page=false"),
)
SLURM = ("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1")
THIRTY_TWO = f"trainer.lr={','.join(map(str, range(1, 33)))}"
FOUR = ("trainer.lr=1,2,3,4", "compute.together=1")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if reason := reason_why_not():
        pytest.skip(reason)
    with site_running_in(tmp_path_factory.mktemp("slurm")) as site:
        yield site


@pytest.fixture
def site(running: Site, environment: dict[str, str], tmp_path: Path) -> Site:
    """The site, for programs of this test; jobs of earlier tests are done."""
    environment |= {"SLURM_CONF": running.environment["SLURM_CONF"], "OMP_NUM_THREADS": "1"}
    environment["DPSWEEP_PRIVATE"] = str(tmp_path / "private")
    return running


def documented_script() -> str:
    """The script of docs/scaling.md by which the coordinator is a job."""
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
    (found,) = re.findall(r'```bash title="coordinator.sh"\n(.*?)```', page, re.DOTALL)
    return str(found)


def bill(ledger: Ledger) -> tuple[int, int]:
    """The number of charges on digits, and of the runs that they pay for."""
    if not ledger.account_names():
        return (0, 0)
    charges = ledger.statement("digits").charges
    return (len(charges), sum(len(charge.body["trials"]) for charge in charges))


def new_jobs(site: Site, before: dict[str, str]) -> dict[str, str]:
    return {job: state for job, state in site.jobs().items() if job not in before}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("hydra.launcher.partition=nope", "invalid partition specified: nope"),
        ("hydra.launcher.gpus_per_node=4", "Invalid generic resource (gres) specification"),
        ("hydra.launcher.mem_gb=900", "Requested node configuration is not available"),
        ("hydra.launcher.cpus_per_task=64", "Requested node configuration is not available"),
    ],
)
def test_what_the_cluster_lacks_is_refused_before_the_charge(
    setting: str, reason: str, site: Site, fresh_program: Program, ledger: Ledger
) -> None:
    before = site.jobs()
    done = fresh_program(*DIGITS, *SLURM, "trainer.lr=1,2", setting)
    assert done.returncode == 2, done.stdout + done.stderr
    assert reason in done.stderr
    assert "Mend the launcher's settings; nothing was charged." in done.stderr
    assert bill(ledger) == (0, 0)
    assert new_jobs(site, before) == {}


def test_short_runs_share_a_job(site: Site, fresh_program: Program, ledger: Ledger) -> None:
    before = site.jobs()
    planned = fresh_program("plan", *DIGITS, *SLURM, THIRTY_TWO, module="dpsweep")
    assert re.search(r"time: about \d+ s on cpu, 1 job; without the wait for a machine", planned.stdout)
    done = fresh_program(*DIGITS, *SLURM, THIRTY_TWO)
    assert done.returncode == 0, done.stderr
    assert list(new_jobs(site, before).values()) == ["COMPLETED"]
    assert len(results(folder_of(done))) == 32
    assert bill(ledger) == (1, 32)


def test_more_jobs_than_an_array_may_have_are_two_arrays(site: Site, fresh_program: Program, ledger: Ledger) -> None:
    before, many = site.jobs(), MOST + 2
    done = fresh_program(*DIGITS, *SLURM, f"trainer.lr={','.join(map(str, range(1, many + 1)))}", "compute.together=1")
    assert done.returncode == 0, done.stderr
    jobs = new_jobs(site, before)
    assert len(jobs) == many
    assert len({job.partition("_")[0] for job in jobs}) == 2
    assert len(results(folder_of(done))) == many
    assert bill(ledger) == (1, many)


def test_a_dead_task_alone_is_launched_again(
    site: Site, fresh_program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    """It dies before it claims its receipt, so that nothing is lost or charged again."""
    before = site.jobs()
    died = shlex.quote(str(tmp_path / "died"))
    (tmp_path / "die.sh").write_text(
        f'if [ "$SLURM_ARRAY_TASK_ID" = 1 ] && [ ! -e {died} ]; then touch {died}; exit 1; fi\n'
    )
    done = fresh_program(*DIGITS, *SLURM, *FOUR, f"hydra.launcher.setup=['. {tmp_path}/die.sh']")
    assert done.returncode == 0, done.stderr
    assert re.search(r"The launcher lost jobs: ChildProcessError: Job \d+_1 ended without a result", done.stderr)
    assert sorted(new_jobs(site, before).values()) == [*["COMPLETED"] * 4, "FAILED"]
    assert len(results(folder_of(done))) == 4
    assert bill(ledger) == (1, 4)


def test_what_a_dead_coordinator_left_pending_is_cancelled(
    site: Site, fresh_program: Program, environment: dict[str, str], tmp_path: Path, ledger: Ledger
) -> None:
    before, words = site.jobs(), (*DIGITS, *SLURM, *FOUR)
    held = [*words, "+hydra.launcher.additional_parameters.hold=true"]
    with subprocess.Popen(
        [sys.executable, "-m", "sweeper", *held], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
    ) as process:
        wait(lambda: list(new_jobs(site, before).values()) == ["PENDING"] * 4)
        wait(lambda: any(path.read_text() for path in tmp_path.glob("sweeps/*/*/.submitit/arrays")))
        process.send_signal(signal.SIGKILL)
        process.wait(HANGS)
    array = next(iter(new_jobs(site, before))).partition("_")[0]
    done = fresh_program(*words)
    assert done.returncode == 0, done.stderr
    states: dict[bool, set[str]] = {True: set(), False: set()}
    for job, state in new_jobs(site, before).items():
        states[job.partition("_")[0] == array].add(state)
    assert states == {True: {"CANCELLED"}, False: {"COMPLETED"}}
    assert len(results(folder_of(done))) == 4
    assert bill(ledger) == (1, 4)


LONG_RUNS = (*DIGITS, *SLURM, "trainer.lr=1,2", "compute.together=1", "engine=opacus", "steps=3000")


def wait_for_runs_at_work(folder: Path, runs: int) -> None:
    wait(lambda: len(list(folder.glob("sweeps/*/*/trials/*/progress"))) >= runs)


@pytest.mark.parametrize("command", [("scancel", "--signal=USR2"), ("scontrol", "requeue")], ids=["signal", "requeue"])
def test_a_job_that_is_told_to_end_is_resumed_by_the_same_command(
    command: tuple[str, ...], site: Site, environment: dict[str, str], tmp_path: Path, ledger: Ledger
) -> None:
    before = site.jobs()
    words = [sys.executable, "-m", "sweeper", *LONG_RUNS, "hydra.sweeper.resume=2"]
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        wait_for_runs_at_work(tmp_path, 2)
        site.run(*command, min(new_jobs(site, before)))
        said, _ = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    assert "launched again on their charge" in said
    assert len(results(next(tmp_path.glob("sweeps/*/*")))) == 2
    assert bill(ledger) == (1, 2)


def test_jobs_of_a_killed_coordinator_are_waited_for_where_runs_are_resumed(
    site: Site, fresh_program: Program, environment: dict[str, str], tmp_path: Path, ledger: Ledger
) -> None:
    before, words = site.jobs(), (*LONG_RUNS, "hydra.sweeper.resume=2")
    command = [sys.executable, "-m", "sweeper", *words]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_for_runs_at_work(tmp_path, 2)
        process.kill()
    done = fresh_program(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(results(folder_of(done))) == 2
    assert bill(ledger) == (1, 2)
    assert list(new_jobs(site, before).values()) == ["COMPLETED"] * 2


def test_a_coordinator_that_is_a_job_survives_its_own_requeue(
    site: Site, environment: dict[str, str], tmp_path: Path, ledger: Ledger
) -> None:
    """By the documented script, whose sweep and ledger are the test's."""
    before, text = site.jobs(), documented_script()
    words = shlex.join([sys.executable, "-m", "sweeper", *LONG_RUNS, "hydra.sweeper.resume=2"])
    text = re.sub(r"^dpsweep sweep (?:.*\\\n)*.*&$", lambda _: f"{words} &", text, flags=re.MULTILINE)
    (tmp_path / "job.sh").write_text(re.sub(r"^export .*\n", "", text, flags=re.MULTILINE))
    submitted = subprocess.run(
        ["sbatch", "--parsable", "--output=job.log", "job.sh"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    job = submitted.stdout.strip()
    wait_for_runs_at_work(tmp_path, 1)
    site.run("scontrol", "requeue", job)
    wait(lambda: site.jobs().get(job) == "PENDING")
    site.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    wait(lambda: site.jobs().get(job) in ("COMPLETED", "FAILED"))
    assert site.jobs()[job] == "COMPLETED", (tmp_path / "job.log").read_text()
    assert len(results(next(tmp_path.glob("sweeps/*/*")))) == 2
    assert bill(ledger) == (1, 2)
    assert len(new_jobs(site, before)) > 3, "its first jobs were told to end, and others went on"


def test_a_search_that_hides_its_tries_is_one_job(site: Site, fresh_program: Program, ledger: Ledger) -> None:
    before = site.jobs()
    done = fresh_program(*DIGITS, *SLURM, "trainer.lr=1,2,3,4", "tuning=private_selection", "tuning.mean=3")
    assert done.returncode in (0, 4), done.stderr
    assert len(new_jobs(site, before)) == 1
    assert len(ledger.statement("digits").charges) == 1
