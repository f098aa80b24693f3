"""Processor time of whole commands as multiples of `import torch`, which makes the table hold on any machine.

    python benchmarks/latency.py [--toy] [--rounds 3] [--groups cifar10 clip_schedule points map] [--others PYTHON ...]

Further interpreters, with other versions, are measured side by side. Commands run in the order of `GROUPS`: a sweep
makes what later commands read. Printed are medians; the aims are about the median of this interpreter's ratios within a
round. 35 jobs that do nothing are in launchers.py. Our modules are compiled beforehand, as an installation does: where
PYTHONDONTWRITEBYTECODE is set, every command would compile them anew, .3 of `import torch`. All folders are removed at
the end: where files were removed a minute ago, ext4 without a journal searches all of them for each new file.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from measuring.aims import Aim
from measuring.clock import children_seconds
from measuring.script import start

TORCH, TAB, FOLDER = "import torch", "a TAB", "FOLDER"
COMPILE = """
import compileall, pathlib, dpsweep
for room in pathlib.Path(dpsweep.__file__).parent.iterdir():
    if room.is_dir():
        compileall.compile_dir(room.resolve(), quiet=2)
"""
"""Compiles the modules of this program; in a checkout the rooms are links."""

IMPORT_TORCH = 2.55
"""Seconds of `import torch` on the machine whose seconds the aims were set in."""


def program(*words: str) -> tuple[str, ...]:
    """This program's command line, after the interpreter."""
    return ("-m", "dpsweep", *words)


@dataclass(frozen=True)
class Command:
    """The words after the interpreter, and the aim in seconds of the machine on which `import torch` takes 2.55.

    FOLDER stands for the folders of all sweeps of the group so far. A toy run has `toy` in place of the words.
    """

    words: tuple[str, ...]
    at_most: float | None = None
    toy: tuple[str, ...] = ()


def axis(key: str, count: int) -> str:
    """An axis of so many values a little above 1."""
    return f"{key}=" + ",".join(f"{1 + step / 10_000:.4f}" for step in range(count))


FEW = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=0.1", "trainer.lr=1,2", "steps=2", "accountant=rdp")
POINTS = ("dataset=digits", "trainer=dpnsgd", "budget.epsilon=1e6")
ONE_STEP = (*POINTS, "steps=1", "privacy.noise_multiplier=3", "score.noise_std=3")
LINEAR = ("trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1,2", "clip_schedule=linear")
GROUPS: Mapping[str, Mapping[str, Command]] = {
    "default": {
        TORCH: Command(("-c", "import torch")),
        "import hydra": Command(("-c", "import hydra")),
        "--help": Command(program("--help"), 0.2),
        TAB: Command(program("-sc", "query=bash"), 0.6),
        "plan, the first": Command(program("plan"), 6, program("plan", *FEW)),
        "sweep": Command(program("sweep"), 9, program("sweep", *FEW)),
        "sweep, nothing to do": Command(program("sweep"), 4, program("sweep", *FEW)),
        "plan, later": Command(program("plan"), 3, program("plan", *FEW)),
        "budget": Command(program("budget"), 1.5),
        "report": Command(program("report", FOLDER), 4),
        "release": Command(program("release", FOLDER), 3),
        "verify": Command(program("verify", FOLDER), 1.5),
    },
    "cifar10": {"plan dataset=cifar10": Command(program("plan", "dataset=cifar10"), 4)},
    "clip_schedule": {
        "plan clip_schedule=linear": Command(
            program("plan", *LINEAR, "steps=5000"), 5, program("plan", *LINEAR, "steps=5")
        )
    },
    "points": {
        "plan of 1000 points": Command(
            program("plan", *POINTS, "trainer.regularizer=1", axis("trainer.lr", 1000)),
            5,
            program("plan", *POINTS, "trainer.regularizer=1", axis("trainer.lr", 2)),
        ),
    },
    "map": {
        "sweep of 1600 one-step points": Command(
            program("sweep", *ONE_STEP, axis("trainer.lr", 40), axis("trainer.regularizer", 40)),
            15,
            program("sweep", *ONE_STEP, axis("trainer.lr", 2), axis("trainer.regularizer", 2)),
        ),
    },
}
"""Commands by group, in this order; each group begins in an empty folder with a ledger of its own."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Rounds, groups beside the default one, interpreters beside this one, and whether commands are given toy words."""

    rounds: int = 3
    groups: tuple[str, ...] = tuple(name for name in GROUPS if name != "default")
    others: tuple[str, ...] = ()
    commands: str = "words"


def seconds(python: str, size: Size, room: Path) -> Iterator[tuple[str, float]]:
    """Processor seconds of each command and its children, in new folders of this one."""
    for group in ("default", *size.groups):
        place = Path(tempfile.mkdtemp(dir=room))
        for name, command in GROUPS[group].items():
            words = (command.toy if size.commands == "toy" else ()) or command.words
            yield name, _seconds(python, name, words, place)


def _seconds(python: str, name: str, words: tuple[str, ...], home: Path) -> float:
    environment = _writing_bytecode() | {
        "DPSWEEP_LEDGER": str(home / "ledger.sqlite"),
        "DPSWEEP_KEY": str(home / "fingerprint.key"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    folders = [str(path.parent) for path in home.glob("sweeps/*/*/plan.json")]
    line = [word for part in words for word in (folders if part == FOLDER else [part])]
    completed = {"COMP_LINE": "dpsweep plan trainer=d"} if name == TAB else {}
    before = children_seconds()
    done = subprocess.run([python, *line], cwd=home, env=environment | completed, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")
    return children_seconds() - before


def _writing_bytecode() -> dict[str, str]:
    """The environment, in which modules are compiled once and not by every command."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main(size: Size) -> list[Aim]:
    pythons = [*size.others, sys.executable]
    for python in pythons:
        subprocess.run([python, "-c", COMPILE], env=_writing_bytecode(), check=True, capture_output=True)
    with tempfile.TemporaryDirectory() as room:
        rounds = [[dict(seconds(python, size, Path(room))) for python in pythons] for _ in range(size.rounds)]
    print(f"{'medians of ' + str(size.rounds):30}" + "".join(f"{'s':>9}{'x torch':>9}" for _ in pythons))
    aims = []
    for name, command in ((name, one) for group in ("default", *size.groups) for name, one in GROUPS[group].items()):
        ratios = []
        print(f"{name:30}", end="")
        for place in range(len(pythons)):
            ratios.append(statistics.median(turn[place][name] / turn[place][TORCH] for turn in rounds))
            print(f"{statistics.median(turn[place][name] for turn in rounds):9.2f}{ratios[-1]:9.2f}", end="")
        print(flush=True)
        if command.at_most is not None:
            aims.append(Aim(name=f"{name}, x torch", measured=ratios[-1], at_most=command.at_most / IMPORT_TORCH))
    return aims


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(rounds=1, commands="toy"), about=__doc__)
