"""Disjoint parts: how far the learning rate is to be carried to the final run's smaller noise, and what the rule buys.

Settings, written down on 2026-11-23 before the first run: the data sets that `Size` names with their default grid
(DP-NSGD and DP-SGD, 32 points, logistic regression), its epsilons for the whole search, `tuning.share` of 0.2, and
independent searches, one a round. The winner is chosen by the declared noisy scores. Then the final run is made with
every exponent of `Size.carries`. Beside it, in the same round, the best point of the composed map over all records.
Accuracies are exact, on the private records that the run did not train on: figures for developers, which no release
may hold.

Printed: the mean over the rounds with twice its standard error; last, for each exponent, the mean difference to the
composed map and to the best exponent of its data set and epsilon.

    python benchmarks/carrying.py [--toy] [--data FOLDER] [--rounds 8]

FOLDER holds the official files of MNIST, Adult and Covertype's sample (default: DPSWEEP_DATA).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measuring.aims import Aim
from measuring.script import start

from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.sweeper.trial.build import make_model
from dpsweep.sweeper.trial.spec import declaration_from_config
from dpsweep.trainers.declarations.scores import quality_per_record
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.randomness import secret_streams
from dpsweep.trainers.training.gradient_sums import StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run
from dpsweep.trainers.training.run_records import RecordStore
from tests.places import READER

TOGETHER = 16


@dataclass(frozen=True, kw_only=True)
class Size:
    """Data sets, epsilons, exponents, rounds, and what is said beside to each command."""

    data: str = os.environ.get("DPSWEEP_DATA", "")
    names: tuple[str, ...] = ("mnist_5k", "mnist", "adult", "covertype_sample")
    epsilons: tuple[float, ...] = (1.0, 3.0, 8.0)
    carries: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    rounds: int = 8
    words: tuple[str, ...] = ()


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
    declared = [declaration_from_config(trial.config) for trial in trials]
    split = declared[0].records.open_split(READER, RecordStore(folder=data))
    models = [make_model(trial.config, f"{trial.id} {os.urandom(8).hex()}") for trial in trials]
    runs = [
        Run(
            trainer=one.trainer,
            sampler=one.sampler,
            schedule=one.lr_schedule,
            noise_multiplier=trial.config["privacy"]["noise_multiplier"],
            steps=one.steps,
            train_records=one.nominal_training_units,
            bounds=one.clip_schedule,
        )
        for one, trial in zip(declared, trials, strict=True)
    ]
    streams = secret_streams()
    sums = StackedSums(stack=Stack.from_model(models[0], declared[0].loss), records=split.train, device="cpu")
    train_together(runs, models, sums, split.train, [streams] * len(runs), device="cpu")
    assert split.holdout is not None
    return [
        (
            one.score.measure(model, split, streams.score, "cpu", one.loss).value,
            float(quality_per_record(model, split.holdout, "cpu", one.loss).mean()),
        )
        for one, model in zip(declared, models, strict=True)
    ]


def compared(name: str, epsilon: float, size: Size, folder: str) -> dict[str, list[float]]:
    """The accuracy of each way in each round."""
    data = Path(size.data).resolve()
    asked = [f"dataset={name}", f"data={data}", f"privacy.epsilon={epsilon}", "budget.epsilon=1000", *size.words]
    composed = planned(asked, folder)
    plans = [planned([*asked, "tuning=disjoint", f"tuning.carry={carry}"], folder) for carry in size.carries]
    found: dict[str, list[float]] = {}
    for _ in range(size.rounds):
        exact = max(accuracies(composed.trials, data))[1]
        found.setdefault("map", []).append(exact)
        scores = accuracies(plans[0].trials, data)
        best = max(range(len(scores)), key=scores.__getitem__)
        finals = [plan.final_runs[best] for plan in plans]
        for carry, (_, exact) in zip(size.carries, accuracies(finals, data), strict=True):
            found.setdefault(f"{carry:g}", []).append(exact)
    return found


def mean(values: Sequence[float]) -> str:
    """The mean in percent, with twice its standard error."""
    error = 2 * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{100 * statistics.fmean(values):5.1f} ±{100 * error:4.1f}"


def main(size: Size) -> list[Aim]:
    if not size.data:
        print("skipped: no folder with the official files was given")
        return []
    ways = ["map", *(f"{carry:g}" for carry in size.carries)]
    print(f"{'data set':<18}{'epsilon':>8}" + "".join(f"{way:>13}" for way in ways), flush=True)
    gains: dict[str, list[float]] = {way: [] for way in ways}
    losses: dict[str, list[float]] = {way: [] for way in ways[1:]}
    for name in size.names:
        for epsilon in size.epsilons:
            with tempfile.TemporaryDirectory() as folder:
                found = compared(name, epsilon, size, folder)
            print(f"{name:<18}{epsilon:>8g}" + "".join(f"{mean(found[way]):>13}" for way in ways), flush=True)
            means = {way: statistics.fmean(found[way]) for way in ways}
            for way in ways:
                gains[way].append(means[way] - means["map"])
            for way in losses:
                losses[way].append(max(means[other] for other in losses) - means[way])
    print(f"{'above the map':<26}" + "".join(f"{mean(gains[way]):>13}" for way in ways))
    print(f"{'below the best exponent':<26}{'':>13}" + "".join(f"{mean(own):>13}" for own in losses.values()))
    return []


if __name__ == "__main__":
    words = ("trainer=dpnsgd", "trainer.lr=1,2", "trainer.regularizer=0.1", "steps=2")
    toy = Size(data=tempfile.gettempdir(), names=("mnist_5k",), epsilons=(8.0,), carries=(0.75,), rounds=1, words=words)
    start(main, full=Size(), toy=toy, about=__doc__)
