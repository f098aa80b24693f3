"""Small files of every family of data that users bring, for the frozen sweeps: made once, then kept beside them."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from tests.trainers.pretrained_folders import WORDS, causal_folder, pretrained_folder

ROWS = 120
SIDE = 4
DATASET_CLASS = """\
import numpy as np


class Visits:
    def __len__(self):
        return 120

    def __getitem__(self, index):
        return np.full(3, index % 7 / 7, dtype=np.float32), index % 2
"""
SCRIPT = """\
import numpy as np
from opacus.accountants import RDPAccountant

import dpsweep

with dpsweep.attempt() as a:
    drawn = np.random.default_rng()
    records, mean = a.train.features.reshape(len(a.train.labels), -1), 0.0
    accountant = RDPAccountant()
    for _ in a.each_step():
        batch = records[drawn.random(len(records)) < a.sample_rate]
        norms = np.maximum(np.linalg.norm(batch, axis=1, keepdims=True) / a.clip_norm, 1.0)
        mean = mean + (batch / norms).sum(axis=0)
        mean = mean + drawn.normal(size=records.shape[1]) * a.noise_multiplier * a.clip_norm
        accountant.step(noise_multiplier=a.noise_multiplier, sample_rate=a.sample_rate)
    predictions = np.full((len(a.score_features), a.classes), 1 / a.classes)
    a.report(event=accountant, predictions=predictions)
"""


def write_own_files(folder: Path) -> None:
    """Writes a table, texts with a folder of a model, pictures, arrays, a saved set, a class and a script."""
    folder.mkdir(parents=True)
    drawn, rng = random.Random(5), np.random.default_rng(5)
    ages = [drawn.randint(20, 80) for _ in range(ROWS)]
    _write_csv(
        folder / "visits.csv",
        ("patient", "age", "ward", "fever"),
        [(f"P{row % 60}", age, drawn.choice(["a", "b"]), ("no", "yes")[age > 50]) for row, age in enumerate(ages)],
    )
    _write_csv(
        folder / "symptoms.csv",
        ("age", "fever", "cough"),
        [(age + 1, ("no", "yes")[age > 50], ("no", "yes")[row % 2]) for row, age in enumerate(ages)],
    )
    _write_csv(folder / "stays.csv", ("age", "stay"), [(age + 2, age / 10) for age in ages])
    _write_csv(folder / "sentences.csv", ("text",), [(" ".join(drawn.choices(WORDS, k=4)),) for _ in range(ROWS)])
    _write_csv(
        folder / "reviews.csv",
        ("review", "label"),
        [(" ".join((WORDS[row % 2], *drawn.choices(WORDS[2:8], k=4))), ("up", "down")[row % 2]) for row in range(ROWS)],
    )
    pretrained_folder(folder / "bert")
    causal_folder(folder / "gpt2")
    features, labels = rng.random((ROWS, 3)).astype(np.float32), np.arange(ROWS) % 2
    (folder / "arrays").mkdir()
    np.save(folder / "arrays" / "features.npy", features)
    np.save(folder / "arrays" / "labels.npy", labels)
    np.savez(folder / "records.npz", features=1 - features, labels=labels)
    np.savez(folder / "replaced.npz", features=features / 3, labels=labels)
    saved = pyarrow.table({"inputs": [list(map(float, row)) for row in features / 2], "label": labels})
    pyarrow.parquet.write_table(saved, folder / "saved.parquet")
    for number in range(24):
        place = folder / "pictures" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)).save(place / f"{number}.png")
    (folder / "visits_class.py").write_text(DATASET_CLASS)
    (folder / "train.py").write_text(SCRIPT)


def _write_csv(path: Path, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows(rows)
