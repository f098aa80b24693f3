"""Whole sweeps from the command line: what a trial costs beside its training, and two workers beside one.

    python benchmarks/sweeping.py [--toy] [--rounds 1]

The first is a sweep of 41 trials that do almost nothing, less one of a single trial, with a job for each and with one
for all. The second is 12 trials bound by the processor, with a torch thread each, start-up and report included.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from measuring.aims import Aim
from measuring.clock import wall_seconds
from measuring.script import start

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
BUSY = (*CHEAP, ALONE, "privacy.noise_multiplier=120", "score.noise_std=30", "hydra/launcher=joblib")


@dataclass(frozen=True, kw_only=True)
class Size:
    """Trials that do nothing, and trials bound by the processor with their steps."""

    rounds: int = 1
    trials: int = 41
    busy_trials: int = 12
    busy_steps: int = 20_000


def run(sweep: Sequence[str], folder: str) -> None:
    """A sweep from the command line, with a ledger and a key of its own in this folder."""
    own = {f"XDG_{kind}_HOME": folder for kind in ("STATE", "CONFIG", "DATA")}
    ledger = {"DPSWEEP_LEDGER": str(Path(folder) / "ledger.sqlite"), "DPSWEEP_KEY": str(Path(folder) / "key")}
    command = [sys.executable, "-m", "sweeper", *sweep]
    subprocess.run(command, cwd=folder, env=os.environ | own | ledger, stdout=subprocess.DEVNULL, check=True)


def seconds(sweep: Sequence[str], rates: Sequence[float]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return wall_seconds(partial(run, [*sweep, f"trainer.lr={','.join(map(str, rates))}"], folder))


def overhead(trials: int, *words: str) -> float:
    """Seconds of a trial that does almost nothing."""
    many, one = ([1 + trial / 1000 for trial in range(count)] for count in (trials, 1))
    return (seconds((*NOTHING, *words), many) - seconds((*NOTHING, *words), one)) / (trials - 1)


def busy(workers: int, size: Size) -> float:
    words = (*BUSY, f"steps={size.busy_steps}", f"hydra.launcher.n_jobs={workers}")
    return seconds(words, range(1, size.busy_trials + 1))


def main(size: Size) -> list[Aim]:
    alone = statistics.median(overhead(size.trials, ALONE) for _ in range(size.rounds))
    print(f"overhead of a trial, basic launcher, a job each: {alone:.3f} s, of {size.rounds} rounds")
    together = statistics.median(overhead(size.trials) for _ in range(size.rounds))
    print(f"overhead of a trial, all in one job: {together:.3f} s, of {size.rounds} rounds")
    pairs = [(busy(1, size), busy(2, size)) for _ in range(size.rounds)]
    one, two = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(two / one for one, two in pairs)
    print(f"one worker {one:.1f} s, two {two:.1f} s, ratio {ratio:.2f}, of {size.rounds} rounds")
    return [
        Aim(name="overhead of a trial, a job each, s", measured=alone, at_most=0.25),
        Aim(name="two workers over one", measured=ratio, at_most=0.6),
    ]


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(trials=2, busy_trials=2, busy_steps=2), about=__doc__)
