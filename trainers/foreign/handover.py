"""What a script is handed, as files in a folder that its owner alone can read, and what it hands back.

A script that imports dpsweep reads and writes them by `dpsweep.attempt`; a program in any other language may do it
itself. `attempt.json` has the settings, `train.npz` the training records, `score.npz` the inputs without labels whose
predictions are scored. The script writes `predictions.npy`, what it wants to keep below `files/`, and at last
`report.json`. `work/` is its current folder. The whole folder is removed at its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import NoReceipt
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.ledger.private_store import PRIVATE
from dpsweep.accounting.validation import DAMAGE

ATTEMPT_FILE, REPORT_FILE = "attempt.json", "report.json"
TRAIN_FILE, SCORE_FILE, PREDICTIONS_FILE = "train.npz", "score.npz", "predictions.npy"
STATE_FILE = "state"
"""The content of the checkpoint that the attempt goes on from."""

WORK, KEPT = "work", "files"
"""The current folder of a script, and the folder of the files that it hands back."""

VARIABLE = "DPSWEEP_ATTEMPT"
"""The environment variable with the path of `attempt.json`."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """The settings of one session of one attempt.

    `noise_multiplier` is the standard deviation of the noise on the sum of clipped gradients over `clip_norm`.
    `records` is the declared number of training units, never the number of records in the file. `batch_size` is the
    declared mean batch size: divide sums by it. `event` is the declared event of all steps, in JSON. `step` steps were
    taken by earlier sessions; `spent` steps count as taken, `marked` are marked, of `priced` ones. `every` is the
    number of steps between checkpoints, None for none before the end. `scaling` turns stored features into inputs.
    """

    plan: str
    trial: str
    attempt: int
    resume: int
    charge: str
    hyperparameters: Mapping[str, Any]
    noise_multiplier: float
    sampler: str
    sample_rate: float
    batch_size: int
    steps: int
    clip_norm: float
    delta: float
    adjacency: str
    unit: str
    records: int
    classes: int
    shape: tuple[int, ...]
    seed: int | None
    device: str
    threads: int
    event: Mapping[str, Any]
    scaling: Mapping[str, float]
    step: int
    spent: int
    marked: int
    priced: int
    every: int | None
    files: str
    record: str

    @property
    def name(self) -> str:
        """The session's name, which its report repeats."""
        return f"{self.plan}/{self.trial}/{self.attempt}/{self.resume}"

    def write(self, folder: Path) -> None:
        """Writes `attempt.json` for its owner alone."""
        write_json(folder / ATTEMPT_FILE, {"name": self.name} | asdict(self), mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> Handover:
        """Reads `attempt.json`; raises `NoReceipt` if there is none."""
        try:
            form = json.loads(path.read_text())
            del form["name"]
            return cls(**form | {"shape": tuple(form["shape"])})
        except (OSError, *DAMAGE) as cause:
            raise NoReceipt(f"Expected receipt={path} to be the attempt.json of a running attempt: {cause}.") from cause
