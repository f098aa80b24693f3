"""What a script is handed, as files in a folder that its owner alone can read, and what it hands back.

A script that imports dpsweep reads and writes them by `dpsweep.attempt`; a program in any other language may do it
itself. `attempt.json` has the settings, `train.npz` the training records, `score.npz` the inputs without labels whose
predictions are scored. The script writes `predictions.npy`, what it wants to keep below `files/`, and at last
`report.json`. `work/` is its current folder. The whole folder is removed at its end.

A script's step marks and checkpoints are the files of `accounting/ledger/permit.py`, written by the script itself.
The first stretch of a session is marked by its job, before the script starts. Each later one is marked here before its
first step. A checkpoint holds the bytes that the script gives, which dpsweep never reads. Of predictions the form is
checked, and nothing else about them is believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsweep.accounting.durable_files import PRIVATE, write_json
from dpsweep.accounting.errors import DAMAGE, NoReceipt
from dpsweep.accounting.ledger.permit import Header, StepLog, read_checkpoint_file
from dpsweep.accounting.records.sweep_folder import TrialPlace

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
    `target` is the range from which labels that are numbers were scaled to [0, 1], None if they were not scaled, and
    `label_names` are the names of several labels per record, empty if each has one.
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
    target: tuple[float, float] | None = None
    label_names: tuple[str, ...] = ()

    @property
    def session_name(self) -> str:
        """The session's name, which its report repeats."""
        return f"{self.plan}/{self.trial}/{self.attempt}/{self.resume}"

    def write(self, folder: Path) -> None:
        """Writes `attempt.json` for its owner alone."""
        write_json(folder / ATTEMPT_FILE, {"name": self.session_name} | asdict(self), mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> Handover:
        """Reads `attempt.json`; raises `NoReceipt` if there is none."""
        try:
            form = json.loads(path.read_text())
            del form["name"]
            target = form.get("target")
            listed = {"shape": tuple(form["shape"]), "label_names": tuple(form.get("label_names", ()))}
            return cls(**form | listed | {"target": None if target is None else tuple(target)})
        except (OSError, *DAMAGE) as cause:
            raise NoReceipt(f"Expected receipt={path} to be the attempt.json of a running attempt: {cause}.") from cause


@dataclass(kw_only=True)
class StepJournal:
    """The steps of one session: `done` of the run's steps are taken, those up to `allowed` are marked."""

    handover: Handover
    log: StepLog
    done: int
    allowed: int

    @classmethod
    def from_handover(cls, handover: Handover) -> StepJournal:
        """The journal of a session that begins, with its first stretch marked."""
        place = TrialPlace(files=Path(handover.files), record=Path(handover.record))
        stored = read_checkpoint_file(place.files, handover.attempt)
        log = StepLog(
            place=place,
            attempt=handover.attempt,
            priced=handover.priced,
            marked=handover.marked,
            header=None if stored is None else stored[0],
        )
        return cls(
            handover=handover, log=log, done=handover.step, allowed=handover.step + steps_in_first_stretch(handover)
        )

    def mark_next_stretch_if_needed(self) -> None:
        """Marks the next stretch if the marked one is over; raises `ContractBroken` if no further step may run."""
        if self.done < self.allowed:
            return
        stretch = _steps_in_stretch(self.handover.every, self.handover.steps - self.done)
        self.log = self.log.take(stretch)
        self.allowed += stretch

    def count_step_and_say_if_stretch_over(self) -> bool:
        """Counts a step; whether it was the last of its stretch and not of the run."""
        self.done += 1
        return self.done == self.allowed < self.handover.steps

    def write_checkpoint(self, state: bytes) -> None:
        """Writes a checkpoint after the steps that are done; the one before it is replaced by one rename."""
        given = self.handover
        header = Header(
            plan=given.plan,
            trial=given.trial,
            attempt=given.attempt,
            charge=given.charge,
            step=self.done,
            steps=given.steps,
            spent=given.spent + self.done - given.step,
            marked=self.log.marked,
        )
        header.write_checkpoint(self.log.place.files, state)
        self.log = replace(self.log, header=header)


def steps_in_first_stretch(handover: Handover) -> int:
    """The number of steps that the job of a session marks before it starts the script."""
    return _steps_in_stretch(handover.every, handover.steps - handover.step)


def _steps_in_stretch(every: int | None, missing: int) -> int:
    return missing if every is None else min(every, missing)


TOLERANCE = 1e-3
"""How far a row of probabilities may be from adding up to 1: float16 and large tables round by less."""


def require_valid_predictions(
    predictions: NDArray[Any], records: int, classes: int, *, several_labels: bool = False
) -> NDArray[Any]:
    """The predictions, if they are classes [records], probabilities [records, classes], or numbers [records].

    Numbers are for `classes` 1, where a label is a number. Of records with `several_labels` they are 0 and 1, or the
    probability of 1, of each label [records, classes]. Raises ValueError, in one sentence, for anything else.
    """
    shape, kind = predictions.shape, predictions.dtype.kind
    if several_labels:
        table = predictions.astype(np.float64) if kind in "biuf" and shape == (records, classes) else None
        if table is None or not ((table >= 0) & (table <= 1)).all():
            what = f"numbers from 0 to 1 [{records}, {classes}], a column for each label"
            raise ValueError(_expected_predictions_message(predictions, what))
        return table
    if classes == 1:
        if shape != (records,) or kind != "f" or not np.isfinite(predictions).all():
            raise ValueError(_expected_predictions_message(predictions, f"finite floating-point numbers [{records}]"))
        return predictions.astype(np.float32)
    if kind in "iu" and shape == (records,):
        if records and not (predictions.min() >= 0 and predictions.max() < classes):
            raise ValueError(_expected_predictions_message(predictions, f"classes from 0 to {classes - 1}"))
        return predictions.astype(np.int64)
    if kind == "f" and shape == (records, classes):
        table = predictions.astype(np.float64)
        if not np.isfinite(table).all() or (table < 0).any() or (abs(table.sum(axis=1) - 1) > TOLERANCE).any():
            raise ValueError(_expected_predictions_message(predictions, "probabilities that add up to 1 in each row"))
        return table
    raise ValueError(
        _expected_predictions_message(predictions, f"classes [{records}] or probabilities [{records}, {classes}]")
    )


def _expected_predictions_message(predictions: NDArray[Any], what: str) -> str:
    return f"Expected predictions={predictions.dtype} {list(predictions.shape)} to be {what}."
