"""Processor time of whole commands as multiples of `import torch`, which makes the table hold on any machine.

python benchmarks/latency.py [--rounds 3] [PYTHON...]    # further interpreters, with other versions, side by side
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

TORCH = "import torch"
TAB = "a TAB"
FOLDER = "FOLDER"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    TORCH: ("-c", "import torch"),
    "import hydra": ("-c", "import hydra"),
    "--help": ("-m", "dpsweep", "--help"),
    TAB: ("-m", "dpsweep", "-sc", "query=bash"),
    "plan, the first": ("-m", "dpsweep", "plan"),
    "sweep": ("-m", "dpsweep", "sweep"),
    "sweep, nothing to do": ("-m", "dpsweep", "sweep"),
    "plan, later": ("-m", "dpsweep", "plan"),
    "budget": ("-m", "dpsweep", "budget"),
    "report": ("-m", "dpsweep", "report", FOLDER),
    "release": ("-m", "dpsweep", "release", FOLDER),
    "verify": ("-m", "dpsweep", "verify", FOLDER),
}
"""In this order, in one empty folder with a ledger of its own: a sweep makes what later commands read."""


def seconds(python: str) -> Iterator[tuple[str, float]]:
    """Processor seconds of each command and its children."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        environment = os.environ | {
            "DPSWEEP_LEDGER": str(home / "ledger.sqlite"),
            "DPSWEEP_KEY": str(home / "fingerprint.key"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        for name, command in COMMANDS.items():
            folders = [str(path.parent) for path in home.glob("sweeps/*/*/plan.json")]
            words = [word for part in command for word in (folders if part == FOLDER else [part])]
            line = {"COMP_LINE": "dpsweep plan trainer=d"} if name == TAB else {}
            before = _children()
            done = subprocess.run([python, *words], cwd=home, env=environment | line, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")
            yield name, _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("others", nargs="*", metavar="PYTHON")
    options = parser.parse_args()
    pythons = [*options.others, sys.executable]
    rounds = [[dict(seconds(python)) for python in pythons] for _ in range(options.rounds)]
    print(f"{'medians of ' + str(options.rounds):22}" + "".join(f"{'s':>9}{'x torch':>9}" for _ in pythons))
    for name in COMMANDS:
        columns = [
            (
                statistics.median(turn[place][name] for turn in rounds),
                statistics.median(turn[place][name] / turn[place][TORCH] for turn in rounds),
            )
            for place in range(len(pythons))
        ]
        print(f"{name:22}" + "".join(f"{taken:9.2f}{ratio:9.2f}" for taken, ratio in columns))


if __name__ == "__main__":
    main()
