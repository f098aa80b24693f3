"""What a logger is given: the runs of a sweep whose scores its price covers, as plain values.

Invariant: these values are all that a logger sees. They have no loss, gradient norm, drawn batch size, time, message
of an error, or path, since each of those is a query that no price covers, and a logger may send what it is given to
another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

Value = str | int | float | bool


class Promise(StrEnum):
    """What the results promise, in one word."""

    PRIVATE = "private"
    SEEDED = "seeded"
    CONTRADICTED = "contradicted"
    PUBLIC = "public"


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """One run that ended: `key` identifies the attempt, `name` is for readers.

    `scores` has the charged score and the ends of its 95 % interval by name.
    """

    key: str
    name: str
    hyperparameters: Mapping[str, Value]
    scores: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class LoggedSweep:
    """A sweep whose rule discloses all scores: `data_set` is its account's name, `facts` what is said of every run."""

    data_set: str
    plan: str
    mark: Promise
    facts: Mapping[str, str]
    runs: tuple[LoggedRun, ...]


class ResultLogger(Protocol):
    """A place for results, reached through one foreign library."""

    @property
    def title(self) -> str:
        """The library's name for readers."""
        ...

    @property
    def package(self) -> str:
        """The name by which Python imports the library."""
        ...

    def write(self, run: LoggedRun, sweep: LoggedSweep, folder: Path) -> None:
        """Writes one run; `folder` is the sweep's. May raise anything."""
        ...
