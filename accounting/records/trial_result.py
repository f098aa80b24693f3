"""The result of a trial's attempt, stored as a file: the coordinator trusts files, not return values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from dpsweep.accounting.chain.hash_chain import new_nonce
from dpsweep.accounting.codec import OMITTED, Count, Stored, require_finite_number, require_json_object, require_real
from dpsweep.accounting.durable_files import PRIVATE, write_json
from dpsweep.accounting.errors import BadInput, turn_read_errors_into_refusal
from dpsweep.accounting.files import FORMAT, require_and_remove_format_number

RESULT_FILE = "result.json"
MODEL_FILE = "model.safetensors"
KEPT = 4096
"""Results that a process keeps as it read them, by the content of their files."""

SCRIPT_FILES = "files.zip"
"""The files that a script of the user's has handed over, its model among them."""

OUTPUTS = (MODEL_FILE, SCRIPT_FILES)
"""What a run may leave as its model; a run leaves one of them at most, with its SHA-256 in the result."""


class Status(StrEnum):
    """The outcome of an attempt; every attempt stays charged."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"


def _check_score(field: str, score: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError unless the score and its further metrics are finite numbers with intervals."""
    for name in ("value", "low", "high", *({"records_error"} & score.keys())):
        require_finite_number(f"{field}.{name}", score.get(name))
    for name in ("low", "high") if "told" in score else ():
        require_finite_number(f"{field}.told.{name}", require_json_object(f"{field}.told", score["told"]).get(name))
    for metric in score.get("also", {}).values():
        _check_score(field, metric)


def _check_duration(name: str, seconds: float) -> None:
    if not 0 <= require_real(name, seconds) < 1e12:
        raise ValueError(f"Expected {name}={seconds!r} to be a number >= 0.")


@dataclass(frozen=True, kw_only=True)
class TrialResult(Stored):
    """The result of one attempt: its score with a 95 % interval, its realised event, its steps and its time.

    `score` is {"value", "low", "high"}, finite numbers, in [0, 1] for the scores of this package; None if the attempt
    failed. "told" is {"low", "high"}, an interval that holds for every run of the search that may win, all together at
    95 %, and "records_error" the standard error that the finite number of records makes, which all runs share. Some
    metrics add {"also": {name: {"value", "low", "high", "told"}}}, further metrics from the same counts. `event`
    is the realised training event in the form of `events.to_json`, None if the attempt failed before it reported the
    event. `curator` holds facts that no price covers: they never leave the curator's folder. These are `batch_sizes`
    (as drawn), `empty` (those of the parts "train" and "holdout" of the private records that are empty), and `curve`, a
    list of measurements on public records, each {"step", "test_accuracy", "test_loss"}; for data declared public also
    "training_accuracy", "training_loss", "mean_factor", "shortened" and quantiles of the norms of per-example
    gradients, "gradient_norm_q10", "gradient_norm_q50" and "gradient_norm_q90". A value that is not finite is None.
    `parameters` is the number of noisy numbers in a step of training, None if no training of ours ran.
    `counts` is the number of noisy counts that the score released, `released_counts` are the counts that the score is
    made of, exact ones of public records.
    """

    trial: str
    attempt: Count
    status: Status
    score: Annotated[Mapping[str, Any] | None, _check_score]
    event: Mapping[str, Any] | None
    steps: Count
    seconds: Annotated[float, _check_duration]
    device: str
    randomness: str
    started: str
    ended: str
    error: str | None = None
    model: str | None = None
    parameters: Count | None = None
    counts: Count = 2
    released_counts: Annotated[tuple[float, ...], OMITTED] = ()
    salt: str = field(default_factory=new_nonce)
    versions: Mapping[str, str] = field(default_factory=dict)
    curator: Mapping[str, Any] = field(default_factory=dict)

    @property
    def score_value(self) -> float | None:
        """The score without its interval; None if the attempt has no score."""
        return None if self.score is None else float(self.score["value"])

    @property
    def noisy_right_predictions(self) -> float | None:
        """The noisy number of right predictions; None if the score is not made of right and wrong ones."""
        return self.released_counts[0] if len(self.released_counts) == 2 else None

    def write(self, folder: Path) -> None:
        """Stores the result in a trial's folder for its owner alone, atomically."""
        write_json(folder / RESULT_FILE, {"format": FORMAT} | self.to_json(), mode=PRIVATE, indent=None)

    @staticmethod
    def digest_of_result_file(folder: Path) -> str | None:
        """The SHA-256 of the result file (it contains a salt) in a trial's folder; None if there is no file."""
        try:
            return sha256((folder / RESULT_FILE).read_bytes()).hexdigest()
        except FileNotFoundError:
            return None

    @classmethod
    def read(cls, folder: Path) -> TrialResult | None:
        """The result in a trial's folder, None if there is none; raises `BadInput` for a damaged file."""
        path = folder / RESULT_FILE
        try:
            return _parse_result(path.read_bytes(), path)
        except FileNotFoundError:
            return None


@lru_cache(maxsize=KEPT)
def _parse_result(content: bytes, path: Path) -> TrialResult:
    """The result in a file with this content: a sweep asks for it ten times, from the run's end to the page."""
    try:
        form = json.loads(content)
    except (ValueError, RecursionError) as cause:
        hint = "Without it the attempt counts as killed"
        raise BadInput(f"Expected result={path} to be a readable result file: {cause}. {hint}.") from cause
    with turn_read_errors_into_refusal(f"result={path}"):
        return TrialResult.from_json(require_and_remove_format_number(str(path), form))
