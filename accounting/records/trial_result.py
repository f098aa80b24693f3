"""The record that comes back from a trial: a file, since a coordinator trusts files and not return values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.ledger.private_store import PRIVATE, new_nonce
from dpsweep.accounting.numbers import whole
from dpsweep.accounting.validation import as_written, text

SCHEMA = 1
RESULT_FILE = "result.json"
MODEL_FILE = "model.safetensors"


class Status(StrEnum):
    """How an attempt ended; all of them stay charged."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """One attempt's outcome: its score with a 95 % interval, the event that really ran, and what it took.

    `score` is {"value", "low", "high"} in [0, 1], None where the attempt failed; of some metrics also {"also": {name:
    {"value", "low", "high"}}}, what the same counts tell besides. `event` is the realised training event
    in `events.to_json`'s form, None where the attempt failed before it could say. `curator` holds facts that no price
    covers: they never leave the curator's folder. They are `batch_sizes`, those drawn, `empty`, the parts of the
    private records in which there are none, "train" or "holdout", and `curve`, a list of what was measured by public
    records after so many steps, each {"step", "test_accuracy", "test_loss"}; of data declared public also
    "training_accuracy", "training_loss", "mean_factor" and "shortened". A value is None where it is not finite.
    `parameters` is how many numbers a step of the model's training released, None where an earlier version trained it,
    or began to: then its noise was no such as `dpsweep.accounting.floating_point` speaks of. `counts` is how many its
    score released.
    """

    trial: str
    attempt: int
    status: Status
    score: Mapping[str, Any] | None
    event: Mapping[str, Any] | None
    steps: int
    seconds: float
    device: str
    randomness: str
    started: str
    ended: str
    error: str | None = None
    model: str | None = None
    parameters: int | None = None
    counts: int = 2
    salt: str = field(default_factory=new_nonce)
    versions: Mapping[str, str] = field(default_factory=dict)
    curator: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("trial", "device", "randomness", "started", "ended"):
            text(name, getattr(self, name))
        whole("attempt", self.attempt)
        whole("steps", self.steps)
        if self.parameters is not None:
            whole("parameters", self.parameters)
        whole("counts", self.counts)
        text("salt", self.salt)
        for name in ("error", "model"):
            if getattr(self, name) is not None:
                text(name, getattr(self, name))
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, (int, float)) or not 0 <= self.seconds < 1e12:
            raise ValueError(f"Expected seconds={self.seconds!r} to be a number >= 0.")
        mappings = self.versions, self.curator, self.score or {}, self.event or {}
        if not all(isinstance(one, Mapping) for one in mappings):
            raise TypeError("Expected score, event, versions and curator to be objects.")

    def write(self, folder: Path) -> None:
        """Stores the result in a trial's folder for its owner alone, in one rename."""
        write_json(folder / RESULT_FILE, {"schema": SCHEMA} | asdict(self), mode=PRIVATE)

    @staticmethod
    def digest(folder: Path) -> str | None:
        """The SHA-256 of the result file in a trial's folder, which holds a salt; None where there is none."""
        try:
            return sha256((folder / RESULT_FILE).read_bytes()).hexdigest()
        except FileNotFoundError:
            return None

    @classmethod
    def read(cls, folder: Path) -> TrialResult | None:
        """The result in a trial's folder, None where there is none; a damaged one is refused, never guessed."""
        path = folder / RESULT_FILE
        try:
            form = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as cause:
            raise BadInput(
                f"Expected result={path} to be a readable result file: {cause}. Without it the attempt counts as "
                "killed."
            ) from cause
        with as_written(f"result={path}"):
            if form.pop("schema", None) != SCHEMA:
                raise BadInput(f"Expected result={path} to have schema {SCHEMA}.")
            known = {entry.name for entry in fields(cls)}
            kept = {name: value for name, value in form.items() if name in known}
            return cls(**{"salt": ""} | kept | {"status": Status(form["status"])})
