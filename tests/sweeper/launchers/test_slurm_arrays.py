"""Slurm's launcher is tried before the charge, keeps to the site's limits, and launches only lost jobs again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.sweeper.launchers import slurm_arrays
from dpsweep.sweeper.launchers.slurm_arrays import IDS, LaunchFailed, SlurmArrays
from tests.sweeper.digits_sweeps import FOUR
from tests.sweeper.launchers.slurm_commands import write_slurm_commands
from tests.sweeper.search_programs import Program
from tests.waiting import wait

pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs dpsweep[slurm]")

SLURM = ("hydra/launcher=submitit_slurm", "compute.device=cpu")


@pytest.fixture
def site(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a played site, whose commands come first on PATH, and whose users look at it often."""
    folder = tmp_path / "site"
    path = f"{write_slurm_commands(folder)}:{os.environ['PATH']}"
    environment |= {"PATH": path, "DPSWEEP_PRIVATE": str(tmp_path / "private")}
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(slurm_arrays, "RESULT_SECONDS", 0.02)
    monkeypatch.setattr(slurm_arrays, "QUEUE_SECONDS", 0.1)
    return folder


def calls(site: Path, command: str) -> list[str]:
    return [line for line in (site / "calls").read_text().splitlines() if line.startswith(command)]


@pytest.fixture
def arrays(site: Path, tmp_path: Path) -> Callable[..., SlurmArrays]:
    def make(**settings: Any) -> SlurmArrays:
        given: dict[str, Any] = {"submitit_folder": f"{tmp_path}/.submitit/%j", "array_parallelism": 2, **settings}
        return SlurmArrays(settings=given)

    return make


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("hydra.launcher.partition=nope", "invalid partition specified: nope"),
        ("+hydra.launcher.typo=1", "typo"),
    ],
)
def test_settings_that_slurm_refuses_charge_nothing(
    setting: str, reason: str, site: Path, program: Program, ledger: Ledger
) -> None:
    done = program(*FOUR, *SLURM, setting)
    assert done.returncode == 2, done.stdout + done.stderr
    assert reason in done.stderr
    assert not ledger.account_names()
    assert not any((site / "ids").iterdir()), "nothing was submitted"


def test_settings_that_joblib_refuses_charge_nothing(program: Program, ledger: Ledger) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs dpsweep[parallel]")
    done = program(*FOUR, "compute.device=cpu", "hydra/launcher=joblib", "hydra.launcher.pre_dispatch=nope")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "nope" in done.stderr
    assert "Mend the launcher's settings; nothing was charged." in done.stderr
    assert not ledger.account_names()


def test_a_machine_without_slurm_charges_nothing(
    program: Program, environment: dict[str, str], tmp_path: Path, ledger: Ledger
) -> None:
    environment |= {"DPSWEEP_PRIVATE": str(tmp_path / "private"), "PATH": str(tmp_path)}
    done = program(*FOUR, *SLURM)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "srun" in done.stderr
    assert done.stderr.count("Mend the launcher's settings; nothing was charged.") == 1
    assert not ledger.account_names()


def test_the_memory_of_a_job_is_compared_with_its_data(site: Path, program: Program, tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a" / "one.png")
    done = program(
        *("dataset=image_folder", "dataset.name=own", "dataset.classes=2", f"dataset.path={tmp_path}/photos"),
        *("dataset.records=1000000", "dataset.shape=[3,64,64]", "dataset.labels=[a,b]", "trainer=dpsgd"),
        *("privacy.delta=1e-9", "budget.delta=1e-8", "privacy.epsilon=8", "budget.epsilon=24"),
        *("accountant=rdp", "accountant.witnesses=[]", *SLURM, "hydra.launcher.mem_gb=8"),
    )
    assert done.returncode == 2, done.stdout
    assert "they need about 12.3 GB a job, 8.6 GB are what the launcher asks for; " in done.stderr


def test_more_jobs_than_an_array_may_have_are_several_arrays(arrays: Callable[..., SlurmArrays], site: Path) -> None:
    slurm = arrays()
    slurm.try_submission(5)
    assert slurm.run_calls(pow, [(base, 2) for base in range(5)]) == [base**2 for base in range(5)]
    scripts = [path.read_text() for path in site.parent.glob(".submitit/*.sh")]
    limits = sorted(found for text in scripts for found in re.findall(r"^#SBATCH --array=(.*)$", text, re.M))
    assert len(calls(site, "sbatch")) == 4
    assert limits == ["0-1%1", "0-1%1"], "two arrays of two at once, and one job after them"


def test_a_job_begins_with_the_script_that_was_submitted(
    arrays: Callable[..., SlurmArrays], site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """submitit moves a script that was submitted, and puts a link in its place: here jobs begin between the two."""
    rename, moved, begun = Path.rename, site / "moved", site / "begun"
    late_shell = site / "commands" / "bash"
    late_shell.write_text(f'#!/bin/bash\nuntil [ -e {moved} ]; do sleep 0.01; done; exec /bin/bash "$@"\n')
    late_shell.chmod(0o755)

    def rename_and_let_jobs_begin(path: Path, target: Path) -> Path:
        renamed = rename(path, target)
        if path.suffix == ".sh":
            moved.touch()
            wait(lambda: begun.exists() or not any((site / "queue").iterdir()), "the beginning of a job")
        return renamed

    monkeypatch.setattr(Path, "rename", rename_and_let_jobs_begin)
    assert arrays(setup=[f"touch {begun}"]).run_calls(pow, [(2, 2), (3, 2)]) == [4, 9]


def test_a_job_that_died_ends_alone(arrays: Callable[..., SlurmArrays], site: Path, tmp_path: Path) -> None:
    (site / "dead").write_text("1_1\n")
    first, dead = arrays().run_calls(pow, [(2, 2), (3, 2)])
    assert first == 4
    assert isinstance(dead, ChildProcessError)
    assert str(dead).startswith("Job 1_1 ended without a result (FAILED); its log is ")
    assert not (tmp_path / ".submitit" / IDS).exists()


def test_an_array_that_is_refused_says_that_the_same_plan_goes_on(
    arrays: Callable[..., SlurmArrays], site: Path
) -> None:
    (site / "closed").touch()
    (end,) = arrays().run_calls(pow, [(2, 2)])
    assert isinstance(end, LaunchFailed)
    assert str(end).endswith(
        "Required partition not available; mend the launcher's settings, and the same plan goes on"
    )


def test_a_sweep_that_is_refused_after_the_charge_waits_for_the_same_plan(
    site: Path, program: Program, ledger: Ledger
) -> None:
    (site / "closed").touch()
    done = program(*FOUR, *SLURM)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "partition not available; mend the launcher's settings, and the same plan goes on" in done.stderr
    assert "The sweep is not finished: 4 not begun, of 4 trials. The same command goes on with these." in done.stderr
    assert len(ledger.statement("digits").charges) == 1
    assert not any((site / "ids").iterdir())


def test_pending_jobs_of_a_dead_coordinator_are_cancelled_and_running_ones_go_on(
    arrays: Callable[..., SlurmArrays], site: Path, tmp_path: Path
) -> None:
    (tmp_path / ".submitit").mkdir()
    (tmp_path / ".submitit" / IDS).write_text("played 7\nelsewhere 8\nplayed 9\n")
    assert arrays().run_calls(pow, [(2, 2)]) == [4]
    assert calls(site, "scancel") == ["scancel --state=PENDING 7 9"]
