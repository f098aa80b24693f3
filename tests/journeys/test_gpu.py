"""Sweeps on a GPU, from the command to the page: skipped where there is none, and to be run by hand where there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dpsweep.sweeper.job.devices import names_of_visible_devices
from tests.randomized import TRAINS

pytestmark = [TRAINS, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

COMMON = "steps=4 privacy.epsilon=2 compute.device=cuda"
DPSGD = "trainer=dpsgd trainer.lr=1,2 trainer.clip_norm=1"


@pytest.mark.parametrize(
    "words",
    [
        f"{DPSGD} dataset=digits",
        f"{DPSGD} dataset=digits model=one_hidden engine=fused",
        f"{DPSGD} dataset=digits model=one_hidden engine=vmap",
        f"{DPSGD} dataset=digits model=one_hidden engine=opacus",
        f"{DPSGD} dataset=digits model=one_hidden engine=bfloat16",
        f"{DPSGD} dataset=digits sampler=cyclic_poisson noise=band_mf noise.bands=2 sampler.batch_size=100",
        f"{DPSGD} dataset=digits sampler=shuffle sampler.batch_size=100 steps=15",
        f"{DPSGD} dataset=digits sampler=fixed_size privacy.adjacency=replace_one",
        f"{DPSGD} dataset=digits sampler=random_allocation",
        f"{DPSGD} dataset=digits features=scattering model=logistic",
        f"{DPSGD} dataset=digits model=resnet20 augmentation=shift_flip augmentation.multiplicity=2",
        f"{DPSGD} dataset=digits ema=0.9 lr_schedule=cosine clip_schedule=linear",
        f"{DPSGD} dataset=digits subsample=shared",
        f"{DPSGD} dataset=digits initial_weights=by_repetition repeats=2",
        f"{DPSGD} dataset=digits tuning=random_stopping",
        f"{DPSGD} dataset=digits tuning=noisy_max",
        f"{DPSGD} dataset=digits search=tpe search.trials=3",
        "dataset=digits trainer=dpadam trainer.lr=0.01,0.02 trainer.clip_norm=1 final=true",
        "dataset=digits trainer=auto_s,dpnsgd trainer.lr=1 trainer.regularizer=0.1",
        "dataset=digits trainer=dpmomentum,dpadambc,dpnadam,adadp trainer.lr=0.1 trainer.clip_norm=1",
    ],
)
def test_a_sweep_on_a_gpu_ends_with_a_page(tmp_path: Path, words: str) -> None:
    own = {"DPSWEEP_LEDGER": "ledger.sqlite", "DPSWEEP_KEY": "key", "DPSWEEP_PRIVATE": "private"}
    line = [sys.executable, "-m", "dpsweep", "sweep", *COMMON.split(), *words.split(), "hydra.sweep.dir=out"]
    places = {name: str(tmp_path / place) for name, place in own.items()}
    done = subprocess.run(line, cwd=tmp_path, env=os.environ | places, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "out").rglob("*.html"))


LEASED = (
    *("dataset=digits", "trainer=dpsgd", "trainer.lr=1,2,4", "trainer.clip_norm=1", "steps=4", "privacy.epsilon=2"),
    *("engine=opacus", "page=false", "hydra.sweep.dir=out", "compute.per_device=2"),  # joblib runs one worker at home
)

SEEN = """
import sys

def task(config):
    import os
    from dpsweep.sweeper.job import block_job
    from dpsweep.sweeper.job.job_task import JobTask

    train = JobTask.train_claimed_trials

    def train_and_tell(self, sessions):
        import torch

        train(self, sessions)
        devices = torch.cuda.device_count(), torch.cuda.current_device(), torch.cuda.is_initialized()
        print("job:", self.machine.device, *devices, os.environ["CUDA_VISIBLE_DEVICES"], flush=True)

    JobTask.train_claimed_trials = train_and_tell
    try:
        getattr(block_job, "real", block_job.run_block)(config)
    finally:
        JobTask.train_claimed_trials = train

if __name__ == "__main__":
    from dpsweep.sweeper.commands import hydra_app
    from dpsweep.sweeper.job import block_job
    block_job.real, block_job.run_block = block_job.run_block, task
    try:
        hydra_app.main(sys.argv[1:])
    finally:
        torch = sys.modules.get("torch")
        print("coordinator:", bool(torch and torch.cuda.is_initialized()), flush=True)
"""


@pytest.mark.parametrize("words", ["", "compute.devices=0", "search=tpe search.trials=3 compute.devices=0"])
@pytest.mark.parametrize("launcher", ["fork", "joblib"])
def test_jobs_lease_the_gpu_and_the_coordinator_uses_none(tmp_path: Path, launcher: str, words: str) -> None:
    own = {"DPSWEEP_LEDGER": "ledger.sqlite", "DPSWEEP_KEY": "key", "DPSWEEP_PRIVATE": "private"}
    places = {name: str(tmp_path / place) for name, place in own.items()}
    line = [sys.executable, "-c", SEEN, *LEASED, f"hydra/launcher={launcher}", *words.split()]
    done = subprocess.run(line, cwd=tmp_path, env=os.environ | places, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = [row.split()[1:] for row in done.stdout.splitlines() if row.startswith("job:")]
    assert len(jobs) == 3, done.stdout
    assert {tuple(row[:4]) for row in jobs} == {("cuda", "1", "0", "True")}
    assert {row[4] for row in jobs} <= set(names_of_visible_devices())
    assert "coordinator: False" in done.stdout


def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "dpsweep", "sweep", *LEASED, "hydra/launcher=fork", "compute.devices=99"]
    places = {"DPSWEEP_LEDGER": str(tmp_path / "ledger.sqlite")}
    done = subprocess.run(line, cwd=tmp_path, env=os.environ | places, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Expected compute.devices=[99] to be among the GPUs that are visible here, got 0" in done.stderr


def test_forked_jobs_of_a_machine_with_a_gpu_may_use_the_cpu(tmp_path: Path) -> None:
    """A process in which torch has computed gradients beside a GPU has threads that no fork copies."""
    own = {"DPSWEEP_LEDGER": "ledger.sqlite", "DPSWEEP_KEY": "key", "DPSWEEP_PRIVATE": "private"}
    line = [sys.executable, "-m", "dpsweep", "sweep", *LEASED, "hydra/launcher=fork", "compute.device=cpu"]
    places = {name: str(tmp_path / place) for name, place in own.items()}
    done = subprocess.run(line, cwd=tmp_path, env=os.environ | places, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
