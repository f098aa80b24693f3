"""Whole sweeps from the command line: what a trial costs beside its training, and two workers beside one.

The first is a sweep of 41 trials that do almost nothing, less one of a single trial, with a job for each and with one
for all. The second is 12 trials bound by
the processor, with a torch thread each, start-up and report included.

python benchmarks/sweeping.py [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TRIALS = 41
CHEAP = (
    "dataset=digits",
    "trainer=dpsgd",
    "trainer.clip_norm=1",
    "accountant=rdp",
    "accountant.witnesses=[]",
    "budget.epsilon=1e6",
    "compute.device=cpu",
    "compute.threads=1",
)
NOTHING = (*CHEAP, "steps=1", "privacy.noise_multiplier=3", "score.noise_std=3")
ALONE = "compute.together=1"
BUSY = (*CHEAP, ALONE, "steps=20000", "privacy.noise_multiplier=120", "score.noise_std=30", "hydra/launcher=joblib")


def run(sweep: Sequence[str], folder: str) -> None:
    """A sweep from the command line, with a ledger and a key of its own in this folder."""
    own = {f"XDG_{kind}_HOME": folder for kind in ("STATE", "CONFIG", "DATA")}
    ledger = {"DPSWEEP_LEDGER": str(Path(folder) / "ledger.sqlite"), "DPSWEEP_KEY": str(Path(folder) / "key")}
    command = [sys.executable, "-m", "sweeper", *sweep]
    subprocess.run(command, cwd=folder, env=os.environ | own | ledger, stdout=subprocess.DEVNULL, check=True)


def seconds(sweep: Sequence[str], rates: Sequence[float]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run([*sweep, f"trainer.lr={','.join(map(str, rates))}"], folder)
        return time.perf_counter() - started


def overhead(*words: str) -> float:
    many, one = ([1 + trial / 1000 for trial in range(trials)] for trials in (TRIALS, 1))
    return (seconds((*NOTHING, *words), many) - seconds((*NOTHING, *words), one)) / (TRIALS - 1)


def busy(workers: int) -> float:
    return seconds((*BUSY, f"hydra.launcher.n_jobs={workers}"), range(1, 13))


def main(rounds: int) -> None:
    each = statistics.median(overhead(ALONE) for _ in range(rounds))
    print(f"overhead of a trial, basic launcher, a job each: {each:.3f} s (at most 0.25), of {rounds} rounds")
    each = statistics.median(overhead() for _ in range(rounds))
    print(f"overhead of a trial, all in one job: {each:.3f} s, of {rounds} rounds")
    pairs = [(busy(1), busy(2)) for _ in range(rounds)]
    one, two = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(two / one for one, two in pairs)
    print(f"one worker {one:.1f} s, two {two:.1f} s, ratio {ratio:.2f} (at most 0.60), of {rounds} rounds")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
