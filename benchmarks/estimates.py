"""The time that a sweep says it takes, beside the processor seconds that it took: six kinds of real sweeps.

    python benchmarks/estimates.py [--toy] [--cases digits mnist_5k cifar10 looks convex adult]

A case is planned and swept with a new ledger, without a page, by one worker with one thread. The same with as little
training as there can be (one step, or the same fit of fewer points) gives the time of all that is not estimated:
imports, prices, the timing of a step, reading of records. "took" is the difference of both, and the little training.
Judged are the larger over the smaller one. MNIST, Adult and CIFAR-10 need DPSWEEP_DATA; features of CIFAR-10 are read
below DPSWEEP_PRIVATE.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from measuring.aims import Aim
from measuring.clock import children_seconds
from measuring.script import start

from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.timing.time_estimate import Speeds, configs_of_plan_runs, timing_key_of_config

AT_MOST = 1.5
DIGITS = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=0.1", "trainer.lr=1,2")


@dataclass(frozen=True)
class Case:
    """The words of a sweep, and others that leave nearly nothing to train."""

    words: tuple[str, ...]
    least: tuple[str, ...] = ("steps=1",)


CASES: Mapping[str, Case] = {
    "toy": Case((*DIGITS, "steps=3")),
    "digits": Case(()),
    "mnist_5k": Case(("dataset=mnist_5k",)),
    "cifar10": Case(("dataset=cifar10",)),
    "looks": Case(("dataset=mnist", "score=public", "score.every=5"), ("steps=1", "score.every=null")),
    "convex": Case(("dataset=adult", "trainer=output_perturbation"), ("trainer.l2=1.0", "trainer.feature_norm=1.0")),
    "adult": Case(("dataset=adult",)),
}


@dataclass(frozen=True, kw_only=True)
class Size:
    cases: tuple[str, ...] = tuple(name for name in CASES if name != "toy")


def swept(*words: str) -> tuple[float, float]:
    """The seconds that a plan estimates, not rounded, and the processor seconds of the sweep."""
    with tempfile.TemporaryDirectory() as place:
        run(place, "plan", *words)
        estimate = estimated(Path(place))
        before = children_seconds()
        run(place, "sweep", *words, "page=false")
        return estimate, children_seconds() - before


def run(place: str, *words: str) -> None:
    own = {"DPSWEEP_LEDGER": f"{place}/ledger.sqlite", "DPSWEEP_KEY": f"{place}/key", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "dpsweep", *words, "compute.threads=1"]
    done = subprocess.run(line, cwd=place, env=os.environ | own, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def estimated(place: Path) -> float:
    """The seconds of all runs of the only plan here, by the times that planning it has stored beside the ledger."""
    (file,) = place.glob("sweeps/*/*/plan.json")
    plan = Plan.read(file)
    costs = Speeds(path=place / "speeds.json", device="auto", threads=1, most=1).costs_if_all_known_else_none(
        configs_of_plan_runs(plan)
    )
    if costs is None:
        raise SystemExit("Expected planning to have timed a step.")
    by_run = [(costs[timing_key_of_config(trial.config)], float(trial.config["steps"])) for trial in plan.trials]
    return sum(cost.step * steps + cost.beside for cost, steps in by_run)


def main(size: Size) -> list[Aim]:
    print(f"{'':10}{'estimate':>9}{'took':>9}{'ratio':>7}   seconds")
    aims = []
    for name in size.cases:
        case = CASES[name]
        least, beside = swept(*case.words, *case.least)
        estimate, whole = swept(*case.words)
        taken = max(0.01, whole - beside + least)
        ratio = max(estimate / taken, taken / estimate)
        print(f"{name:10}{estimate:9.2f}{taken:9.2f}{estimate / taken:7.2f}   (whole command {whole:.1f})", flush=True)
        aims.append(Aim(name=f"{name}: estimate beside what it took", measured=ratio, at_most=AT_MOST))
    return aims


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(cases=("toy",)), about=__doc__)
