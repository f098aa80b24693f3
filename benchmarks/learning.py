"""What every method learns: its grid on MNIST under one epsilon of 3 for the whole search, against a stated accuracy.

Logistic regression over grid=small, each point run once, scored on the public test set: no noise on the scores, and the
best of so many runs is shown. What a method reaches says as much of its grid as of the method.

python benchmarks/learning.py FOLDER [METHOD...]

FOLDER holds MNIST's official files.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from sweeping import run

CONF = Path(__file__).parent.parent / "conf"
SWEEP = ("dataset=mnist", "model=logistic", "grid=small", "score=public", "privacy.epsilon=3", "privacy.delta=1e-5")
AT_LEAST = 0.84
"""Of the 10000 test images."""

OTHERS = {"sgd", "adam", "clipped_sgd", "normalized_sgd"}
"""Methods without noise."""


def trials(method: str, data: Path) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        run([*SWEEP, f"trainer={method}", f"data={data}"], folder)
        (table,) = Path(folder).glob("sweeps/mnist/*/curator/trials.csv")
        return pd.read_csv(table)


def main(data: Path, methods: Sequence[str]) -> int:
    print(f"{'method':<20} {'runs':>4}  {'worst':>5}  {'median':>6}  {'best':>5}  at least")
    failed = 0
    for method in methods:
        accuracies = trials(method, data).accuracy
        failed += accuracies.max() < AT_LEAST
        low, middle, high = accuracies.min(), accuracies.median(), accuracies.max()
        print(f"{method:<20} {len(accuracies):>4}  {low:5.3f}  {middle:6.3f}  {high:5.3f}  {AT_LEAST:8.2f}", flush=True)
    return int(failed)


if __name__ == "__main__":
    folder, *named = sys.argv[1:] or [os.environ.get("DPSWEEP_DATA", "")]
    if not folder:
        sys.exit(print("skipped: no folder with MNIST's official files was given"))
    methods = {path.stem for path in (CONF / "trainer" / "axes").glob("*.yaml")}
    sys.exit(main(Path(folder).resolve(), named or sorted(methods - OTHERS)))
