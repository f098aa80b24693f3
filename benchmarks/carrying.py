"""Disjoint parts: how far the learning rate is to be carried to the final run's smaller noise, and what the rule buys.

Settings, written down on 2026-11-23 before the first run: the data sets of `DATA` with their default grid (DP-NSGD and
DP-SGD, 32 points, logistic regression), `EPSILONS` for the whole search, `tuning.share` of 0.2, `ROUNDS` independent
searches each. The winner is chosen by the declared noisy scores. Then the final run is made with every exponent of
`CARRIES`. Beside it, in the same round, the best point of the composed map over all records. Accuracies are exact, on
the private records that the run did not train on: figures for developers, which no release may hold.

Printed: the mean over the rounds with twice its standard error; last, for each exponent, the mean difference to the
composed map and to the best exponent of its data set and epsilon.

python benchmarks/carrying.py FOLDER [ROUNDS]

FOLDER holds the official files of MNIST, Adult and Covertype's sample.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.sweeper.trial.build import load, make_model
from dpsweep.sweeper.trial.spec import declare
from dpsweep.trainers.declarations.score_counts import qualities
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.randomness import secret_streams
from dpsweep.trainers.training.gradient_sums import StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run

DATA = ("mnist_5k", "mnist", "adult", "covertype_sample")
EPSILONS = (1.0, 3.0, 8.0)
CARRIES = (0.0, 0.25, 0.5, 0.75, 1.0)
ROUNDS = 8
TOGETHER = 16


def planned(arguments: Sequence[str], folder: str) -> Plan:
    """The plan of a sweep, by the command line."""
    environment = os.environ | {"DPSWEEP_LEDGER": f"{folder}/ledger"}
    place = Path(folder) / f"{len(list(Path(folder).iterdir()))}"
    command = [sys.executable, "-m", "dpsweep", "plan", *arguments, f"hydra.sweep.dir={place}", "accountant=pld"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return Plan.read(place / "plan.json")


def accuracies(trials: Sequence[Trial], data: Path | None) -> list[tuple[float, float]]:
    """The noisy score that a sweep would see, and the exact accuracy on the held-out records, of each trained trial."""
    scores: dict[str, tuple[float, float]] = {}
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(f"{trial.method} {trial.config.get('part')}", []).append(trial)
    for group in groups.values():
        for first in range(0, len(group), TOGETHER):
            part = group[first : first + TOGETHER]
            for trial, pair in zip(part, _trained(part, data), strict=True):
                scores[trial.id] = pair
    return [scores[trial.id] for trial in trials]


def _trained(trials: Sequence[Trial], data: Path | None) -> list[tuple[float, float]]:
    declared = [declare(trial.config) for trial in trials]
    split = load(trials[0].config, declared[0].adjacency, data)
    models = [make_model(trial.config, f"{trial.id} {os.urandom(8).hex()}") for trial in trials]
    runs = [
        Run(
            trainer=one.trainer,
            sampler=one.sampler,
            schedule=one.schedule,
            noise_multiplier=trial.config["privacy"]["noise_multiplier"],
            steps=one.steps,
            train_records=one.train_records,
            bounds=one.bounds,
        )
        for one, trial in zip(declared, trials, strict=True)
    ]
    streams = secret_streams()
    sums = StackedSums(stack=Stack.of(models[0], declared[0].loss), records=split.train, device="cpu")
    train_together(runs, models, sums, split.train, [streams] * len(runs), device="cpu")
    assert split.holdout is not None
    return [
        (
            one.score.measure(model, split, streams.score, "cpu", one.loss).value,
            float(qualities(model, split.holdout, "cpu", one.loss).mean()),
        )
        for one, model in zip(declared, models, strict=True)
    ]


def compared(name: str, epsilon: float, data: Path, rounds: int, folder: str) -> dict[str, list[float]]:
    """The accuracy of each way in each round."""
    asked = [f"dataset={name}", f"data={data}", f"privacy.epsilon={epsilon}", "budget.epsilon=1000"]
    composed = planned(asked, folder)
    plans = [planned([*asked, "tuning=disjoint", f"tuning.carry={carry}"], folder) for carry in CARRIES]
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        exact = max(accuracies(composed.trials, data))[1]
        found.setdefault("map", []).append(exact)
        scores = accuracies(plans[0].trials, data)
        best = max(range(len(scores)), key=scores.__getitem__)
        finals = [plan.finals[best] for plan in plans]
        for carry, (_, exact) in zip(CARRIES, accuracies(finals, data), strict=True):
            found.setdefault(f"{carry:g}", []).append(exact)
    return found


def mean(values: Sequence[float]) -> str:
    """The mean in percent, with twice its standard error."""
    error = 2 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{100 * statistics.fmean(values):5.1f} ±{100 * error:4.1f}"


def main(data: Path, rounds: int) -> None:
    ways = ["map", *(f"{carry:g}" for carry in CARRIES)]
    print(f"{'data set':<18}{'epsilon':>8}" + "".join(f"{way:>13}" for way in ways), flush=True)
    gains: dict[str, list[float]] = {way: [] for way in ways}
    losses: dict[str, list[float]] = {way: [] for way in ways[1:]}
    for name in DATA:
        for epsilon in EPSILONS:
            with tempfile.TemporaryDirectory() as folder:
                found = compared(name, epsilon, data, rounds, folder)
            print(f"{name:<18}{epsilon:>8g}" + "".join(f"{mean(found[way]):>13}" for way in ways), flush=True)
            means = {way: statistics.fmean(found[way]) for way in ways}
            for way in ways:
                gains[way].append(means[way] - means["map"])
            for way in losses:
                losses[way].append(max(means[other] for other in losses) - means[way])
    print(f"{'above the map':<26}" + "".join(f"{mean(gains[way]):>13}" for way in ways))
    print(f"{'below the best exponent':<26}{'':>13}" + "".join(f"{mean(own):>13}" for own in losses.values()))


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DPSWEEP_DATA", "")
    if not folder:
        sys.exit(print("skipped: no folder with the official files was given"))
    main(Path(folder).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS)
