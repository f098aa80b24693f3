"""A sweep whose models are trained by several processes gives the results of one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.sweeper.job.machine import Compute
from dpsweep.sweeper.trial.gradient_sums import device_of_each_process
from tests.conftest import Program

SEEDED = (
    *("dataset=digits", "model=one_hidden", "engine=vmap", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2"),
    *("score.noise_std=30", "accountant=rdp", "accountant.witnesses=[]", "steps=3", "privacy.noise_multiplier=3"),
    *("compute.device=cpu", "compute.threads=1", "seed=1"),
)


def results(folder: Path) -> list[TrialResult | None]:
    found = SweepFolder(root=folder)
    ended = [TrialResult.read(found.trial_folder(trial.id)) for trial in Plan.read(found.plan_path).trials]
    return [one and replace(one, seconds=0.0, started="", ended="", salt="", model=None) for one in ended]


@pytest.mark.long
def test_a_sweep_over_processes_comes_out_as_in_one(
    program: Program, environment: dict[str, str], tmp_path: Path
) -> None:
    for processes in (1, 2):
        environment["DPSWEEP_LEDGER"] = str(tmp_path / f"ledger-{processes}.sqlite")
        done = program(*SEEDED, f"compute.processes={processes}", f"hydra.sweep.dir=with-{processes}")
        assert done.returncode == 0, done.stderr
    one, two = results(tmp_path / "with-1"), results(tmp_path / "with-2")
    assert one == two
    assert None not in one
    logs = [*(tmp_path / "with-2").glob("trials/*/*.log")]
    assert len(logs) == 2
    assert all("2 processes" in log.read_text() for log in logs)


@pytest.mark.parametrize("processes", [0, -1, True, "2", None, 1.5])
def test_the_number_of_processes_is_a_positive_integer(processes) -> None:
    asked = {"device": "cpu", "threads": None, "chunk": None, "together": None, "processes": processes}
    with pytest.raises(BadInput, match=r"^Expected compute.processes=.* to be an integer >= 1.$"):
        Compute.from_config(asked)


def test_threads_are_shared_among_processes(monkeypatch) -> None:
    monkeypatch.setattr("dpsweep.sweeper.job.machine.usable_core_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    asked = Compute(device="cpu", threads=None, chunk=None, together=None, processes=2)
    assert asked.machine_of_worker_process(None, workers=2).threads == 2
    assert asked.machine_of_worker_process(None).processes == 2


def test_every_process_has_a_gpu_of_its_own(monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert device_of_each_process("cpu", 3) == ["cpu"] * 3
    assert device_of_each_process("cuda", 2) == ["cuda:0", "cuda:1"]
    with pytest.raises(BadInput, match=r"^Expected compute.processes=3 <= 2, the GPUs of this machine.$"):
        device_of_each_process("cuda", 3)
