"""20 GB of records are planned in seconds and trained under 2 GB of memory, in real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dpsweep.accounting.ledger.ledger import Ledger

SIZE, LENGTH, BLOCK = 20 * 10**9, 3072, 8192
RECORDS = SIZE // LENGTH
LIMIT = 2 * 10**9
WORDS = (
    *("dataset=arrays", "dataset.name=counted", "dataset.path=counted", f"dataset.records={RECORDS}"),
    *("dataset.shape=[3,32,32]", "dataset.classes=10", "dataset.bounds=[0,255]", "privacy.delta=1e-8"),
    *("privacy.epsilon=8", "budget.epsilon=24", "budget.delta=1e-7", "model=cnn", "trainer=dpsgd"),
    *("trainer.lr=1", "trainer.clip_norm=0.5,1", "sampler.batch_size=1000", "steps=3", "seed=3", "page=false"),
    "score.fraction=0.001",
)
LIMITED = """
import resource, subprocess, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
done = subprocess.run([sys.executable, "-m", "dpsweep", *sys.argv[2:]])
print(f"peak {1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}")
sys.exit(done.returncode)
"""
"""Runs a command whose processes may not hold more private memory than the limit; prints the most that one held
in all, with mapped files and libraries."""


def write_counted_records(folder: Path) -> None:
    """Random bytes, to 96 places of which each record adds a multiple of its own number: no two records are equal."""
    folder.mkdir()
    base = np.random.default_rng(0).integers(0, 256, (1, LENGTH), dtype=np.uint8)
    with (folder / "features.npy").open("wb") as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": (RECORDS, 3, 32, 32)}
        np.lib.format.write_array_header_1_0(stream, header)
        for first in range(0, RECORDS, BLOCK):
            numbers = np.arange(first, min(first + BLOCK, RECORDS), dtype="<u8")
            rows = np.repeat(base, len(numbers), axis=0)
            rows.view("<u8")[:, ::4] += numbers[:, None] * np.uint64(2654435761)
            stream.write(rows.data)
    np.save(folder / "labels.npy", np.arange(RECORDS) % 10)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_records_of_20_gb_are_trained_under_2_gb_of_memory(tmp_path: Path, environment: dict[str, str]) -> None:
    features = tmp_path / "counted" / "features.npy"

    def run(*words: str) -> tuple[str, int, float]:
        started = time.perf_counter()
        command = [sys.executable, "-c", LIMITED, str(LIMIT), *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        *lines, last = done.stdout.splitlines()
        return "\n".join(lines), int(last.removeprefix("peak ")), time.perf_counter() - started

    try:
        write_counted_records(tmp_path / "counted")
        assert features.stat().st_size > SIZE - LENGTH
        for words in (("plan", *WORDS), ("sweep", *WORDS), ("plan", *WORDS, "steps=4"), ("sweep", *WORDS, "steps=4")):
            printed, peak, seconds = run(*words)
            print(f"{words[0]}: {seconds:.0f} s, at most {peak / 1e9:.2f} GB in a process\n{printed}")
            assert peak < LIMIT
            assert words[0] == "sweep" or seconds < 60
    finally:
        features.unlink(missing_ok=True)
    statement = Ledger(environment["DPSWEEP_LEDGER"]).statement("counted")
    assert len(statement.charges) == 2
    results = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    assert [one["status"] for one in results] == ["finished"] * 4
