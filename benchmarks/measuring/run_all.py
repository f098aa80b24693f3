"""Runs all benchmarks of speed, one after another, and says at the end which aims were missed.

    python benchmarks/measuring/run_all.py [--toy]

A benchmark whose aim is missed, or that fails, does not keep the others from running. The exit code is 1 where any was
missed or failed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1]
sys.path.insert(0, str(FOLDER))
from measuring.aims import MISSED  # noqa: E402

STUDIES: Mapping[str, str] = {
    "adapters": "accuracy of adapters on official files, hours",
    "carrying": "accuracy of disjoint parts on official files, hours",
    "correlated_noise": "accuracy with correlated noise and without on official files, hours",
    "defaults": "accuracy of each default on official files, days",
    "grid_sizes": "accuracy of each rule by number of points on official files, hours",
    "learning": "accuracy of each method on official files, hours",
    "learning_rates": "the best learning rate against the noise on official files, hours",
    "published": "accuracy beside published results on official files, hours",
    "recipes": "steps, batch and rate by a law of declared numbers, on ten data sets, hours",
    "sealing": "accuracy with sealed parts and without on official files, hours",
    "selection_gap": "tightness of prices, no speed, half an hour",
    "selection_orders": "tightness of prices, no speed, a minute",
    "small_deltas": "prices beside dp-accounting's, no speed",
    "small_changes": "accuracy with small changes and without on official files, an hour",
    "structure": "what there is to hold in the code, no speed",
}
"""The scripts that measure no speed, and are run by hand."""


def speed_benchmarks() -> list[Path]:
    """All scripts but the studies, by name."""
    return sorted(path for path in FOLDER.glob("*.py") if path.stem not in STUDIES)


def complaints(script: Path, words: Sequence[str] = ()) -> list[str]:
    """Runs a script, prints what it prints, and returns the aims that it missed, or its exit code where it failed."""
    print(f"== {script.stem}", flush=True)
    missed = []
    with subprocess.Popen([sys.executable, str(script), *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith(MISSED):
                missed.append(f"{script.stem}: {line.removeprefix(MISSED).rstrip()}")
    if process.returncode and not missed:
        missed.append(f"{script.stem}: failed with exit code {process.returncode}")
    return missed


def run_all(scripts: Sequence[Path], words: Sequence[str] = ()) -> int:
    """Runs scripts in turn; 1 where any missed an aim or failed."""
    found = [complaint for script in scripts for complaint in complaints(script, words)]
    print("== all benchmarks ran; " + ("missed or failed:" if found else "every aim is met"))
    for complaint in found:
        print(f"   {complaint}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(run_all(speed_benchmarks(), sys.argv[1:]))
