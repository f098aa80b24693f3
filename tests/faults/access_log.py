"""Whoever looks at the records is written down here, by other means than the program's own.

A line is on the disk before the look that it stands for, so that no kill makes a look unseen: a process that dies in
between has looked less often than is written. Whose look it was is told by the operating system: a process that works
on a trial holds the log in that trial's folder open.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.estimates import Estimate
from dpsweep.trainers.declarations.scores import PrivateHoldout
from dpsweep.trainers.declarations.scores import Score as BaseScore

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.declarations.losses import Loss

PLACE = "FAULTS_WITNESS"
"""The variable that names the file."""


class Look(StrEnum):
    """At what: the training records of one step, or the held-out records of one score."""

    STEP = "step"
    SCORE = "score"


Looks = Counter[tuple[str, int, Look]]


def looks(path: Path) -> Looks:
    """How often each attempt at each trial looked at what."""
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter((trial, attempt, Look(look)) for trial, attempt, look in map(json.loads, lines))


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Poisson sampling that is seen."""

    batch_size: int

    def steps_per_period(self, records: int) -> int:
        return self._sampler().steps_per_period(records)

    def event_per_period(self, *, records: int, noise_multiplier: float) -> DpEvent:
        return self._sampler().event_per_period(records=records, noise_multiplier=noise_multiplier)

    def draw_batch_indices(
        self, rows: int, available: int, records: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        for _ in range(rows if 2 * available > records else 0):  # units, not the empty slots
            _write_down(Look.STEP)
        return self._sampler().draw_batch_indices(rows, available, records, rng)

    def _sampler(self) -> Poisson:
        return Poisson(batch_size=self.batch_size)


@dataclass(frozen=True, kw_only=True)
class Score(BaseScore):
    """A private score that is seen; `broken` says what becomes of it, if not what it should."""

    fraction: float
    noise_std: float | None = None
    broken: str | None = None

    @property
    def statement(self) -> str:
        return self._score().statement

    def event(self, adjacency: Adjacency) -> DpEvent:
        return self._score().event(adjacency)

    def train_records(self, records: int, adjacency: Adjacency) -> int:
        return self._score().train_records(records, adjacency)

    def check(self, test_records: int, *, public: bool) -> None:
        self._score().check(test_records, public=public)

    def split(self, private: Records, test: Records | None, adjacency: Adjacency) -> Split:
        return self._score().split(private, test, adjacency)

    def measure(
        self, model: nn.Module, data: Split, rng: np.random.Generator, device: torch.device | str, loss: Loss
    ) -> Estimate:
        _write_down(Look.SCORE)
        measured = self._score().measure(model, data, rng, device, loss)
        return measured if self.broken is None else _BREAKS[self.broken](measured)

    def _score(self) -> PrivateHoldout:
        return PrivateHoldout(fraction=self.fraction, noise_std=self.noise_std)


def _nan(measured: Estimate) -> Estimate:
    return replace(measured, value=float("nan"))


def _memory(measured: Estimate) -> Estimate:
    """As where a machine gives a process no more memory than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 32, hard))
    try:
        return replace(measured, value=float(len(bytearray(1 << 40))))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _killed(measured: Estimate) -> Estimate:
    """As the kernel does where memory runs out: no warning, and only once, for the worker that took too much."""
    try:
        os.close(os.open(f"{os.environ[PLACE]}.killed", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return measured
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


_BREAKS: Mapping[str, Callable[[Estimate], Estimate]] = {"undefined": _nan, "memory": _memory, "killed": _killed}


def _write_down(look: Look) -> None:
    place = _at_work_on()
    attempt = max(int(claim.name.split("-")[1]) for claim in place.glob("claim-*"))
    handle = os.open(os.environ[PLACE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{json.dumps([place.name, attempt, look])}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _at_work_on() -> Path:
    """The folder of the trial whose log this process holds open."""
    held = {link.readlink() for link in _links() if link.exists()}
    (log,) = {path for path in held if path.name == "train.log"}
    return log.parent


def _links() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())
