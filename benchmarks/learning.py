"""What every method learns: its grid on MNIST under one epsilon of 3 for the whole search, against a stated accuracy.

Logistic regression over grid=small, each point run once, scored on the public test set: no noise on the scores, and the
best of so many runs is shown. What a method reaches says as much of its grid as of the method.

    python benchmarks/learning.py [--toy] [--data FOLDER] [--methods METHOD ...]

FOLDER holds MNIST's official files (default: DPSWEEP_DATA).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from measuring.aims import Aim
from measuring.generated_mnist import study_folder
from measuring.script import start
from sweeping import run

CONF = Path(__file__).parent.parent / "conf"
SWEEP = ("dataset=mnist", "model=logistic", "grid=small", "score=public", "privacy.epsilon=3", "privacy.delta=1e-5")
AT_LEAST = 0.84
"""Of the 10000 test images."""

GENERATED = "generated"
OTHERS = {"sgd", "adam", "clipped_sgd", "normalized_sgd"}
"""Methods without noise."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The folder of the official files, methods (all of those with noise where none is named), and further words."""

    data: str = os.environ.get("DPSWEEP_DATA", "")
    methods: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def trials(method: str, data: Path, words: Sequence[str]) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        run([*SWEEP, f"trainer={method}", f"data={data}", *words], folder)
        (table,) = Path(folder).glob("sweeps/mnist/*/curator/trials.csv")
        return pd.read_csv(table)


def learned(size: Size, data: Path) -> list[Aim]:
    known = {path.stem for path in (CONF / "trainer" / "axes").glob("*.yaml")}
    print(f"{'method':<20} {'runs':>4}  {'worst':>5}  {'median':>6}  {'best':>5}")
    aims = []
    for method in size.methods or sorted(known - OTHERS):
        accuracies = trials(method, data, size.words).accuracy
        low, middle, high = accuracies.min(), accuracies.median(), accuracies.max()
        print(f"{method:<20} {len(accuracies):>4}  {low:5.3f}  {middle:6.3f}  {high:5.3f}", flush=True)
        aims.append(Aim(name=f"{method}, error of the best run", measured=1 - high, at_most=1 - AT_LEAST))
    return aims


def main(size: Size) -> list[Aim]:
    if size.data == GENERATED:
        with study_folder() as (folder, words):
            return learned(replace(size, words=(*size.words, *words.split())), Path(folder))
    if not size.data:
        print("skipped: no folder with MNIST's official files was given")
        return []
    return learned(size, Path(size.data).resolve())


if __name__ == "__main__":
    toy = Size(data=GENERATED, methods=("dpsgd",), words=("trainer.lr=1,2", "trainer.clip_norm=1"))
    start(main, full=Size(), toy=toy, about=__doc__)
