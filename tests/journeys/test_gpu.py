"""Sweeps on a GPU, from the command to the page: skipped where there is none, and to be run by hand where there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.randomized import TRAINS

pytestmark = [TRAINS, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

COMMON = "trainer=dpsgd trainer.lr=1,2 trainer.clip_norm=1 steps=4 privacy.epsilon=2 compute.device=cuda"


@pytest.mark.parametrize(
    "words",
    [
        "dataset=digits",
        "dataset=digits model=one_hidden engine=fused",
        "dataset=digits model=one_hidden engine=vmap",
        "dataset=digits model=one_hidden engine=opacus",
        "dataset=digits sampler=cyclic_poisson noise=band_mf noise.bands=2 sampler.batch_size=100",
        "dataset=digits trainer=dpadam trainer.lr=0.01,0.02 final=true",
        "dataset=digits features=scattering model=logistic",
    ],
)
def test_a_sweep_on_a_gpu_ends_with_a_page(tmp_path: Path, words: str) -> None:
    own = {"DPSWEEP_LEDGER": "ledger.sqlite", "DPSWEEP_KEY": "key", "DPSWEEP_PRIVATE": "private"}
    line = [sys.executable, "-m", "dpsweep", "sweep", *COMMON.split(), *words.split(), "hydra.sweep.dir=out"]
    places = {name: str(tmp_path / place) for name, place in own.items()}
    done = subprocess.run(line, cwd=tmp_path, env=os.environ | places, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "out").rglob("*.html"))
