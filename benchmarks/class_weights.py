"""What class weights do to each class: sweeps of the same command with several weights, and the winners' recalls.

    python benchmarks/class_weights.py [--toy] [--weights null [1,3]] [--seeds 8]

A sweep has the data set's default grid and rule, and chooses by its balanced accuracy, with noise, on records that it
held out. Printed are the recalls of the winner of each sweep on the public test set, or on all records where a data set
has none: the mean and the standard deviation over seeds. Adult needs DPSWEEP_DATA. Judged is the balanced accuracy of
Adult at epsilon 3 with weights of 1 and 3: at least 78 %.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from measuring.aims import Aim
from measuring.script import start

if TYPE_CHECKING:
    from dpsweep.accounting.records.plan import Trial

AT_LEAST, JUDGED = 78.0, "[1,3]"


@dataclass(frozen=True, kw_only=True)
class Size:
    dataset: str = "adult"
    weights: tuple[str, ...] = ("null", "[1,3]", "[1,5]", "[1,20]")
    seeds: int = 8
    words: tuple[str, ...] = ("privacy.epsilon=3",)


def main(size: Size) -> list[Aim]:
    aims = []
    for weights in size.weights:
        recalls = [winners_recalls(size, weights, seed) for seed in range(1, size.seeds + 1)]
        balanced = [fmean(one) for one in recalls]
        by_class = " ".join(map(told, zip(*recalls, strict=True)))
        print(f"{weights:24} balanced accuracy {told(balanced)}  recalls {by_class}", flush=True)
        if weights == JUDGED:
            aims.append(Aim(name=f"{AT_LEAST:g} over balanced", measured=AT_LEAST / fmean(balanced), at_most=1.0))
    return aims


def told(values: tuple[float, ...] | list[float]) -> str:
    """The mean and the standard deviation."""
    return f"{fmean(values):.1f} ± {stdev(values):.1f}"


def winners_recalls(size: Size, weights: str, seed: int) -> tuple[float, ...]:
    """The recall of each class, in percent, of the model that one sweep chooses."""
    import dpsweep
    from dpsweep.accounting.records.plan import Plan

    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"DPSWEEP_LEDGER": f"{place}/ledger.sqlite", "DPSWEEP_KEY": f"{place}/key"}
        os.chdir(place)
        asked = (f"dataset={size.dataset}", "score.metric=balanced_accuracy", "page=false", "compute.threads=1")
        swept = dpsweep.sweep([*asked, f"loss.class_weights={weights}", f"seed={seed}", *size.words])
        best, plan = swept.best or {}, Plan.read(Path(swept.folder) / "plan.json")
        (trial,) = (one for one in plan.trials if all(best.get(key) == value for key, value in one.axes.items()))
        found = recalls_of_trial(trial, Path(swept.folder) / "trials" / trial.id)
        os.chdir("/")
    return found


def recalls_of_trial(trial: Trial, folder: Path) -> tuple[float, ...]:
    from dpsweep.sweeper.trial.build import make_model
    from dpsweep.sweeper.trial.spec import dataset_from_config
    from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
    from dpsweep.trainers.declarations.scores import quality_per_record
    from dpsweep.trainers.models.weights import load_weights_into_model

    dataset = dataset_from_config(trial.config)
    private, test = dataset.load(Path(os.environ.get("DPSWEEP_DATA", ".")))
    records = private if test is None else test
    model = load_weights_into_model(make_model(trial.config, trial.id), folder)
    quality, labels = quality_per_record(model, records, "cpu", CROSS_ENTROPY), records.labels.numpy()
    return tuple(100 * float(quality[labels == label].mean()) for label in range(dataset.classes))


if __name__ == "__main__":
    toy_weights = ("null", "[1,1,1,1,1,1,1,1,1,4]")
    start(
        main, full=Size(), toy=Size(dataset="digits", weights=toy_weights, seeds=2, words=("steps=3",)), about=__doc__
    )
