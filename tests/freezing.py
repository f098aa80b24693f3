"""Makes tests/frozen/format_1: small sweeps of every kind of search, rule and data, and their ledger, as on the disk.

python -m tests.freezing FOLDER

FOLDER is empty, and stands for the home of who made the sweeps: plans remember the path of a model's folder.
Every test that reads the frozen sweeps runs on them; they are made again only where the format itself changes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tests.own_files import write_own_files

FROZEN = Path(__file__).parent / "frozen" / "format_1"
CHECKOUT = Path(__file__).resolve().parent.parent
LEDGER, STORES, HOME, OWN = "ledger.sqlite", "*.private", "/home/researcher", "own"

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
_EPOCHS = ("steps=4", "privacy.noise_multiplier=20", "tuning=composition")
_SCORED = (*_NOISY, "score=private", "score.noise_std=30")

_OWN = (
    "--anyway",
    "data=own",
    "trainer=dpsgd",
    "trainer.clip_norm=1",
    "trainer.lr=1,2",
    "steps=3",
    "compute.threads=1",
)
_OWN = (*_OWN, "privacy.noise_multiplier=20", "sampler.batch_size=8", "privacy.delta=1e-3")
_OWN = (*_OWN, "budget.epsilon=100", "budget.delta=1e-2")
_THREE = ("dataset.records=120", "dataset.shape=[3]", "dataset.classes=2", "dataset.bounds=[0,1]")
_TABLE = ("dataset=table", "dataset.records=120", "dataset.bounds={age: [18, 90]}")
_TEXTS = ("dataset.records=120", "dataset.shape=[8]", "adapter.rank=2")

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
    "threshold_final": (*_SCORED, "tuning=threshold", "tuning.threshold=0.05", "tuning.gamma=0.5", "final=true"),
    "linear_scaling": (
        *(*_SMALL, "score=private", "score.noise_std=30", "tuning=composition", "search=linear_scaling"),
        *("search.trials=2", "search.noise_multipliers=[40]", "privacy.epsilon=4"),
    ),
    "gp": (*_SCORED, "tuning=composition", "search=gp", "search.trials=2"),
    "random_allocation": (*_NOISY[:-2], *_EPOCHS, "sampler=random_allocation"),
    "shuffle": (*_NOISY[:-2], *_EPOCHS, "sampler=shuffle"),
    "correlated_noise": (
        *_NOISY[:-2],
        *_EPOCHS,
        "sampler.batch_size=200",
        "sampler=cyclic_poisson",
        "noise=band_mf",
        "noise.bands=2",
    ),
    "automatic": (
        *_SMALL[:4],
        *("trainer.lr=auto,auto*2", "steps=auto", "sampler.batch_size=auto", "lr_schedule=auto", "ema=auto"),
        *("tuning=composition", "privacy.epsilon=2", "plan.limit=1e7"),
    ),
    "sealed": (*_SCORED[1:], "dataset=mnist_5k", "tuning=composition", "budget.sealed={share: 0.1, parts: 2}"),
}
"""A command for each kind of search: its rule, its proposals, its sampler, its noise, its final run."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "table_of_patients": (
        *(
            *_TABLE,
            "dataset.name=visits",
            "dataset.file=visits.csv",
            "dataset.shape=[3]",
            "dataset.categories={ward: [a, b]}",
            "dataset.label=fever",
        ),
        *("dataset.labels=[no, yes]", "dataset.classes=2", "dataset.unit=patient", "dataset.unit_column=patient"),
        *("dataset.units=60", "dataset.contribution_cap=2", *_OWN),
    ),
    "several_labels": (
        *(
            *_TABLE,
            "dataset.name=symptoms",
            "dataset.file=symptoms.csv",
            "dataset.shape=[1]",
            "dataset.label=[fever, cough]",
        ),
        *("dataset.labels=[no, yes]", "dataset.classes=2", "loss=binary_cross_entropy", *_OWN),
    ),
    "numbers": (
        *(
            *_TABLE,
            "dataset.name=stays",
            "dataset.file=stays.csv",
            "dataset.shape=[1]",
            "dataset.label=stay",
            "dataset.target=[0, 10]",
        ),
        *("dataset.target_unit=days", "dataset.classes=1", "loss=squared_error", *_OWN),
    ),
    "texts": (
        *("dataset=text_table", "dataset.name=reviews", "dataset.file=reviews.csv", "dataset.text=review", *_TEXTS),
        *("dataset.label=label", "dataset.labels=[up, down]", "dataset.classes=2", "model.path={root}/own/bert", *_OWN),
    ),
    "next_tokens": (
        *("dataset=text_sequences", "dataset.name=sentences", "dataset.file=sentences.csv", "dataset.text=text"),
        *(*_TEXTS, "model.path={root}/own/gpt2", *_OWN),
    ),
    "pictures": (
        *("dataset=image_folder", "dataset.name=pets", "dataset.path=pictures", "dataset.records=24"),
        *("dataset.shape=[1,4,4]", "dataset.labels=[cat, dog]", "dataset.classes=2", *_OWN),
    ),
    "arrays": ("dataset=arrays", "dataset.name=arrays", "dataset.path=arrays", *_THREE, *_OWN),
    "fixed_size": (
        *("dataset=npz", "dataset.name=replaced", "dataset.path=replaced.npz", *_THREE, *_OWN, "sampler=fixed_size"),
        "privacy.adjacency=replace_one",
    ),
    "npz": ("dataset=npz", "dataset.name=records", "dataset.path=records.npz", *_THREE, *_OWN),
    "hugging_face": (
        *("dataset=hugging_face", "dataset.name=saved", "dataset.path=saved.parquet", "dataset.features=inputs"),
        *("dataset.labels=[0, 1]", *_THREE, *_OWN),
    ),
    "torch_dataset": (
        *(
            "dataset=torch_dataset",
            "dataset.name=given",
            "dataset.source={_target_: visits_class.Visits}",
            *_THREE,
            *_OWN,
        ),
    ),
    "script": (
        *_NOISY[:2],
        "steps=3",
        "privacy.noise_multiplier=20",
        "trainer=script",
        "script=own/train.py",
        "trainer.lr=1,2",
    ),
}
"""A command for each family of data that users bring, over the files of tests/own_files.py."""


INTERRUPTED = {
    "interrupted": (
        *(*_NOISY[:-2], "privacy.noise_multiplier=20", "tuning=composition", "steps=5000"),
        "compute.together=1",
    )
}
"""A sweep that a Ctrl-C ended while its second run trained."""

RELEASED = ("composition", "private_selection_final", "table_of_patients")
"""Sweeps of which a release lies in the folder."""

COMMANDS = {**SEARCHES, **FAMILIES, **INTERRUPTED}


def words_of(name: str, root: Path) -> tuple[str, ...]:
    """The words of the sweep of this name in the folder `root`: a model's folder is an absolute path."""
    return tuple(word.replace("{root}", str(root)) for word in COMMANDS[name])


def freeze(root: Path, target: Path) -> None:
    """Runs all commands in the empty folder `root`, and keeps what a later version has to read in `target`."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    write_own_files(root / OWN)
    shutil.copytree(root / OWN, target / OWN)
    for words in ACCOUNTS:
        _run(root, "budget", "open", *words)
    known: set[Path] = set()
    for name in COMMANDS:
        run = _run_and_interrupt if name in INTERRUPTED else _run
        run(root, "sweep", *words_of(name, root), "page=false")
        (folder,) = {path.parent for path in root.glob("sweeps/*/*/plan.json")} - known
        known.add(folder)
        if name in RELEASED:
            _run(root, "release", str(folder))
        _keep(folder, target / name)
    for folder in root.glob(STORES):
        _keep(folder, target / folder.name)
    shutil.copy(root / "fingerprint.key", target)
    with closing(sqlite3.connect(root / LEDGER)) as ledger:
        (target / "ledger.sql").write_text("\n".join(ledger.iterdump()) + "\n")
    for path in (*target.rglob("multirun.yaml"), *target.rglob("folder.json")):
        path.write_text(path.read_text().replace(str(root), HOME).replace(str(CHECKOUT), f"{HOME}/dpsweep"))


def restored(name: str, root: Path) -> Path:
    """The frozen sweep of this name, with ledger, stores and users' files, in the folder `root`; its folder."""
    shutil.copytree(FROZEN / OWN, root / OWN)
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
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.log", ".lock*", ".turn", "live.html"))


def _run(root: Path, *words: str) -> None:
    done = _start(root, *words)
    printed, errors = done.communicate()
    assert done.returncode == 0, f"{' '.join(words)}: {printed}{errors}"


def _run_and_interrupt(root: Path, *words: str) -> None:
    known = set(root.glob("sweeps/*/*/trials/*/result.json"))
    done = _start(root, *words)
    while set(root.glob("sweeps/*/*/trials/*/result.json")) == known:
        assert done.poll() is None, done.communicate()
        time.sleep(0.05)
    time.sleep(1)
    done.send_signal(signal.SIGINT)
    printed, errors = done.communicate()
    assert done.returncode == 130, f"{' '.join(words)}: {printed}{errors}"


def _start(root: Path, *words: str) -> subprocess.Popen[str]:
    own = {"DPSWEEP_LEDGER": str(root / LEDGER), "DPSWEEP_KEY": str(root / "fingerprint.key")}
    own |= {"PYTHONPATH": str(root / OWN), "XDG_STATE_HOME": str(root / "state"), "LOGNAME": "researcher"}
    command = [sys.executable, "-m", "dpsweep", *words]
    environment = os.environ | own | {"COLUMNS": "200"}
    return subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


if __name__ == "__main__":
    freeze(Path(sys.argv[1]), FROZEN)
