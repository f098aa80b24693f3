"""Makes tests/frozen/format_1: small sweeps of every kind of search, and their ledger, as they lie on the disk.

python -m tests.freezing

Every test that reads the frozen sweeps runs on them; they are made again only where the format itself changes.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

FROZEN = Path(__file__).parent / "frozen" / "format_1"
CHECKOUT = Path(__file__).resolve().parent.parent
LEDGER, STORES, HOME = "ledger.sqlite", "*.private", "/home/researcher"

ACCOUNTS = (
    ("dataset=digits", "budget.epsilon=1000", "budget.delta=1e-3"),
    (
        *("dataset=mnist_5k", "budget.epsilon=9", "budget.delta=1e-4"),
        *("policy=renyi", "policy.order=4", "policy.epsilon=8", "policy.delta=1e-5"),
    ),
)
"""The accounts that are opened by hand, by both policies."""

_SMALL = ("dataset=digits", "compute.threads=1", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=3")
_NOISY = (*_SMALL, "privacy.noise_multiplier=20")
_SCORED = (*_NOISY, "score=private", "score.noise_std=30")

SEARCHES: Mapping[str, tuple[str, ...]] = {
    "composition": (*_SMALL, "tuning=composition", "privacy.epsilon=2"),
    "private_selection": (*_SCORED, "tuning=private_selection", "tuning.mean=3"),
    "composition_final": (*_SCORED, "tuning=composition", "final=true"),
    "shared_subsample": (*_NOISY, "tuning=composition", "subsample=shared"),
    "spare_attempt": (*_NOISY, "tuning=composition", "plan.spare_attempts=1"),
    "proposed": (*_NOISY, "tuning=composition", "search=tpe", "search.trials=3"),
    "proposed_final": (*_SCORED, "tuning=composition", "search=random", "search.trials=2", "final=true"),
    "repeats": (*_NOISY, "tuning=composition", "repeats=2"),
    "median_of_repeats_final": (*_SCORED, "tuning=median_of_repeats", "final=true"),
    "best_of_grid": (*_SCORED, "tuning=best_of_grid"),
    "noisy_max": (*_NOISY, "score=private", "tuning=noisy_max"),
    "private_selection_final": (*_SCORED, "tuning=private_selection", "tuning.mean=2", "final=true"),
    "poisson_selection": (*_SCORED, "tuning=poisson_selection", "tuning.mean=3"),
    "random_stopping": (*_SCORED, "tuning=random_stopping", "tuning.gamma=0.5"),
    "threshold": (*_SCORED, "tuning=threshold", "tuning.threshold=0.05", "tuning.gamma=0.5"),
    "disjoint": (*_SCORED, "tuning=disjoint"),
    "subsampled": (*_SCORED, "tuning=subsampled", "tuning.rule.mean=2"),
    "public": (
        *("dataset=regression", "dataset.public=true", "score=training"),
        *("trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=0.1,0.2", "steps=3", "privacy.noise_multiplier=0"),
        "compute.threads=1",
    ),
}
"""A command for each kind of search: its rule, its proposals, its final run."""


def freeze(root: Path, target: Path) -> None:
    """Runs all commands in the empty folder `root`, and keeps what a later version has to read in `target`."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for words in ACCOUNTS:
        _run(root, "budget", "open", *words)
    known: set[Path] = set()
    for name, words in SEARCHES.items():
        _run(root, "sweep", *words, "page=false")
        (folder,) = {path.parent for path in root.glob("sweeps/*/*/plan.json")} - known
        known.add(folder)
        _keep(folder, target / name)
    for folder in root.glob(STORES):
        _keep(folder, target / folder.name)
    shutil.copy(root / "fingerprint.key", target)
    with closing(sqlite3.connect(root / LEDGER)) as ledger:
        (target / "ledger.sql").write_text("\n".join(ledger.iterdump()) + "\n")
    for path in target.rglob("multirun.yaml"):
        path.write_text(path.read_text().replace(str(root), HOME).replace(str(CHECKOUT), f"{HOME}/dpsweep"))


def restored(name: str, root: Path) -> Path:
    """The frozen sweep of this name, with the whole ledger and its stores, in the empty folder `root`; its folder."""
    with closing(sqlite3.connect(root / LEDGER)) as made:
        made.executescript((FROZEN / "ledger.sql").read_text())
    for store in FROZEN.glob(STORES):
        shutil.copytree(store, root / store.name)
        for path in (root / store.name, *(root / store.name).rglob("*")):  # modes that no repository keeps
            path.chmod(0o700 if path.is_dir() else 0o600)
    Path(shutil.copy(FROZEN / "fingerprint.key", root)).chmod(0o600)
    plan = json.loads((FROZEN / name / "plan.json").read_text())
    return Path(shutil.copytree(FROZEN / name, root / "sweeps" / plan["account"] / plan["id"]))


def shorter_ledger(*names: str) -> str:
    """The statements that make the frozen ledger up to the last line of these sweeps: a ledger of few lines."""
    plans = [json.loads((FROZEN / name / "plan.json").read_text())["id"] for name in names]
    lines = (FROZEN / "ledger.sql").read_text().splitlines(keepends=True)
    entries = [place for place, line in enumerate(lines) if line.startswith('INSERT INTO "entries"')]
    last = max(place for place in entries if any(f"'{plan}'" in lines[place] for plan in plans))
    return "".join(line for place, line in enumerate(lines) if place <= last or place not in entries)


def _keep(folder: Path, target: Path) -> None:
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.log", ".lock", ".turn"))


def _run(root: Path, *words: str) -> None:
    own = {"DPSWEEP_LEDGER": str(root / LEDGER), "DPSWEEP_KEY": str(root / "fingerprint.key")}
    own |= {"XDG_STATE_HOME": str(root / "state"), "LOGNAME": "researcher", "COLUMNS": "200"}
    command = [sys.executable, "-m", "dpsweep", *words]
    done = subprocess.run(command, cwd=root, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        freeze(Path(folder), FROZEN)
