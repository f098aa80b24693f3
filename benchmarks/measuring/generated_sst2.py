"""Files in SST-2's official format with a few random phrases, for toy runs: nothing is downloaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

RECORDS, TEST_RECORDS = 40, 10
WORDS = ("a", "film", "of", "wit", "without", "plot", "dull", "charming")


def write_sst2(folder: Path) -> tuple[str, ...]:
    """Writes FOLDER/sst2/train.tsv and dev.tsv; returns what a command is given beside data=FOLDER."""
    rng = np.random.default_rng(0)
    place = folder / "sst2"
    place.mkdir(parents=True)
    sums = []
    for name, count in (("train.tsv", RECORDS), ("dev.tsv", TEST_RECORDS)):
        rows = (f"{' '.join(rng.choice(WORDS, 5))}\t{rng.integers(2)}\n" for _ in range(count))
        content = ("sentence\tlabel\n" + "".join(rows)).encode()
        (place / name).write_bytes(content)
        sums.append(f"{name}:{hashlib.md5(content, usedforsecurity=False).hexdigest()}")
    contents = f"dataset.files.contents={{{','.join(sums)}}}"
    return (f"data={folder}", f"dataset.records={RECORDS}", f"dataset.test_records={TEST_RECORDS}", contents)
