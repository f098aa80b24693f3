"""Loggers of one sweep, and what they are given: the runs whose scores its price covers, as plain values.

Invariants:

* The values of `LoggedSweep` are all that a logger sees. They have no loss, gradient norm, drawn batch size, time,
  message of an error, or path, since each of those is a query that no price covers, and a logger may send what it is
  given to another machine.
* Loggers are checked before the charge, and given results that are on disk already, so their failure loses none of them
  and changes no exit code.
* A logger has no part in a plan's identity. A run is given to each logger once; what was given is in `logged.json`.

A logger is a class that a distribution registers by its name (`accounting/stored_names/tags.py`,
docs/plugins.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from dpsweep.accounting.durable_files import short_digest_of_json, write_json
from dpsweep.accounting.errors import BadInput, DpsweepError
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.stored_names.tags import is_path_in_our_packages

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

    @property
    def package(self) -> str:
        """The name by which Python imports the library."""

    def write(self, run: LoggedRun, sweep: LoggedSweep, folder: Path) -> None:
        """Writes one run; `folder` is the sweep's. May raise anything."""


Loggers = Mapping[str, ResultLogger]
"""Loggers by their names in the configuration."""


def check_loggers_allowed_and_installed(loggers: Loggers, rule: SelectionRule) -> None:
    """Raises `BadInput` if the rule hides scores that a logger would show, or if a library is not installed."""
    for name, logger in loggers.items():
        home = type(logger).__module__
        if missing := [member for member in ("title", "package", "write") if not hasattr(logger, member)]:
            raise BadInput(f"Expected logger={name}, of {home}, to have {', '.join(missing)}, as a logger has.")
        if rule.hides_losers:
            raise BadInput(
                f"Expected logger={name} to be none under {rule.name}: it would show every run with its score, and the "
                "price covers less. tuning=composition and tuning=disjoint cover all scores."
            )
        if find_spec(logger.package) is None:
            way = (
                "pip install 'dpsweep[loggers]'"
                if is_path_in_our_packages(home)
                else f"it needs the package {logger.package}"
            )
            raise BadInput(f"Expected {logger.title} for logger={name}: {way}.")


def log_results_and_collect_failures(loggers: Loggers, folder: SweepFolder, ledger: Ledger) -> list[str]:
    """Gives each logger the runs that it does not have yet; returns a sentence for each logger that failed."""
    if not loggers:
        return []
    from dpsweep.reports.content import sweep_table
    from dpsweep.sweeper.loggers.covered_results import logged_sweep_of_ended_runs

    try:
        sweep = logged_sweep_of_ended_runs(sweep_table.read_sweep(folder.root, ledger))
    except DpsweepError as cause:
        return [f"The runs were not logged: {cause}"]
    return [
        warning for name, logger in loggers.items() if (warning := _log_new_runs_to_logger(name, logger, sweep, folder))
    ]


def _log_new_runs_to_logger(name: str, logger: ResultLogger, sweep: LoggedSweep, folder: SweepFolder) -> str | None:
    """Writes the runs that are new to a logger; returns a sentence if that failed."""
    place = f"{name} {short_digest_of_json(asdict(logger) if is_dataclass(logger) else {})}"
    try:
        known = json.loads(folder.logged_runs_path.read_text()) if folder.logged_runs_path.exists() else {}
        given = known.setdefault(place, [])
        new = [run for run in sweep.runs if run.key not in given]
        try:
            for run in new:
                logger.write(run, sweep, folder.root)
                given.append(run.key)
        finally:
            if new:
                write_json(folder.logged_runs_path, known)
    except Exception as cause:  # noqa: BLE001 - a foreign library may raise anything, and the results are stored
        reason = next(iter(str(cause).splitlines()), "") or type(cause).__name__
        return (
            f"The runs were not all logged to {logger.title}: {reason} The results are in {folder.root}; the same "
            "command logs what is missing."
        )
    return None
