"""Records that do not fit into memory are refused before the charge; arrays on disk are planned unread."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpsweep.accounting.ledger.data_fingerprint import known_data
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.sweeper.coordinator.preflight import available_bytes_of_memory_or_none

Program = Callable[..., subprocess.CompletedProcess[str]]

RECORDS = 400
COMMON = (
    *("dataset.name=own", "dataset.classes=2", "privacy.delta=1e-9", "budget.delta=1e-8", "privacy.epsilon=8"),
    *("accountant=rdp", "accountant.witnesses=[]"),  # small sample rates take long on a grid of losses
)
ARRAYS = (
    *("dataset=arrays", *COMMON, "dataset.path=own", "dataset.bounds=[0,255]", "budget.epsilon=24"),
    *("sampler.batch_size=50", "seed=3"),
)
AS_EVER = ("trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3")


def machine(folder: Path, available: int, group: str, **files: str) -> int | None:
    """What this machine says: its /proc and its control groups are folders of the test."""
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available} kB\n")
    (folder / "proc" / "self" / "cgroup").write_text(group)
    for name, content in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return available_bytes_of_memory_or_none(folder / "proc", folder / "groups")


def test_the_least_of_all_limits_counts_and_files_may_be_dropped(tmp_path: Path) -> None:
    second = {"jobs/memory.max": "5000", "jobs/memory.current": "4000", "jobs/memory.stat": "anon 1\ninactive_file 700"}
    inner = {"jobs/one/memory.max": "max", "jobs/one/memory.current": "9", "jobs/one/memory.stat": "inactive_file 0"}
    assert machine(tmp_path / "two", 90, "0::/jobs/one\n", **second, **inner) == 1700
    assert machine(tmp_path / "full", 1, "0::/jobs/one\n", **second, **inner) == 1024
    first = {"memory/memory.limit_in_bytes": "5000", "memory/memory.usage_in_bytes": "4000"}
    first["memory/memory.stat"] = "inactive_file 1\ntotal_inactive_file 0\n"
    assert machine(tmp_path / "one", 90, "9:cpu:/\n4:cpu,memory:/elsewhere\n", **first) == 1000
    assert machine(tmp_path / "odd", 90, "0::/nowhere\n", **{"memory.max": "x"}) == 90 * 1024
    assert available_bytes_of_memory_or_none(tmp_path / "nowhere", tmp_path / "nowhere") is None


def test_records_that_do_not_fit_are_refused_before_the_charge(
    program: Program, tmp_path: Path, ledger: Ledger
) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a" / "one.png")
    words = (
        f"dataset.path={tmp_path}/photos",
        "dataset.records=100000000",
        "dataset.shape=[3,64,64]",
        "dataset.labels=[a,b]",
    )
    done = program("dataset=image_folder", *COMMON, *words, "budget.epsilon=24", "trainer=dpsgd")
    assert done.returncode == 2, done.stdout
    needed = "Expected the records of dataset.name=own to fit into memory: they need about 1228.8 GB a job, "
    assert needed in done.stderr
    assert "GB are free; dataset=arrays reads arrays from disk." in done.stderr
    assert not known_data(ledger), "no account was opened"


@pytest.mark.parametrize(
    ("command", "words", "advice"),
    [
        ("sweep", ("trainer=output_perturbation", "trainer.l2=0.1"), "this method holds all of them."),
        ("rehearse", AS_EVER, "they are generated in memory, and a smaller dataset.records rehearses as well."),
    ],
)
def test_arrays_on_disk_are_refused_where_all_of_them_are_needed_at_once(
    program: Program, tmp_path: Path, ledger: Ledger, command: str, words: tuple[str, ...], advice: str
) -> None:
    written(tmp_path, np.zeros((4, 9), np.uint8))
    large = ("dataset.records=100000000", "dataset.shape=[12288]")
    done = program(command, *ARRAYS, *large, *words, module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 2, done.stdout
    assert f"GB are free; {advice}" in done.stderr
    assert not known_data(ledger)


def written(folder: Path, features: np.ndarray) -> None:
    (folder / "own").mkdir(exist_ok=True)
    np.save(folder / "own" / "features.npy", features)
    np.save(folder / "own" / "labels.npy", np.arange(len(features)) % 2)


def test_arrays_on_disk_are_trained_and_what_the_pass_found_is_kept_beside_the_stores(
    program: Program, tmp_path: Path, environment: dict[str, str], ledger: Ledger
) -> None:
    words = (*ARRAYS, *AS_EVER, f"dataset.records={RECORDS}", "dataset.shape=[12]")
    features = np.random.default_rng(0).integers(0, 256, (RECORDS, 12)).astype(np.float32)
    features[123, 4] = np.nan
    written(tmp_path, features)
    refused = program(*words)
    assert refused.returncode == 2
    assert "Expected features in own to be finite numbers, got another at index 123." in refused.stderr
    assert not known_data(ledger), "no account was opened"
    features[123, 4] = 5
    written(tmp_path, features)
    assert program(*words).returncode == 0
    assert len(ledger.statement("own").charges) == 1
    (kept,) = tmp_path.rglob("record-hashes/*.hashes")
    assert kept.stat().st_mode & 0o077 == 0
    changed = kept.stat().st_mtime_ns
    assert program(*words, "steps=4").returncode == 0
    assert kept.stat().st_mtime_ns == changed, "another sweep passes no record"
    renamed = program(*words, "dataset.name=other", "steps=4")
    assert renamed.returncode == 2
    assert "to be own: the same files are known as the data of the account own" in renamed.stderr


def test_a_plan_reads_no_record_of_arrays_on_disk(program: Program, tmp_path: Path, ledger: Ledger) -> None:
    """Features of 8 TB that have no bytes on the disk; the labels are no array."""
    written(tmp_path, np.random.default_rng(0).integers(0, 256, (RECORDS, 12), np.uint8))  # equal ones share a part
    assert program(*ARRAYS, *AS_EVER, f"dataset.records={RECORDS}", "dataset.shape=[12]").returncode == 0
    with (tmp_path / "own" / "features.npy").open("wb") as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": (2**33, 1024)}
        np.lib.format.write_array_header_1_0(stream, header)
        stream.truncate(stream.tell() + 2**43)
    (tmp_path / "own" / "labels.npy").write_bytes(b"none")
    words = (f"dataset.records={2**33}", "dataset.shape=[1024]", "privacy.delta=1e-10")
    planned = program("plan", *ARRAYS, *AS_EVER, *words, module="dpsweep.sweeper.commands.cli")
    assert planned.returncode == 0, planned.stderr
    assert "labels" not in planned.stdout
    assert len(ledger.statement("own").charges) == 1
