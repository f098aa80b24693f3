"""Loggers of one sweep: checked before the charge, given the results after they are stored.

Invariants: a logger is given results that are on disk already, so its failure loses none of them and changes no exit
code. A logger has no part in a plan's identity. A run is given to each logger once; what was given is in `logged.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec

from dpsweep.accounting.errors import BadInput, DpsweepError
from dpsweep.accounting.json_files import digest, write_json
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.sweeper.loggers.interface import LoggedSweep, ResultLogger

Loggers = Mapping[str, ResultLogger]
"""Loggers by their names in the configuration."""


def check_loggers(loggers: Loggers, rule: SelectionRule) -> None:
    """Raises `BadInput` if the rule hides scores that a logger would show, or if a library is not installed."""
    for name, logger in loggers.items():
        if rule.hides_losers:
            raise BadInput(
                f"Expected logger={name} to be none under {rule.name}: it would show every run with its score, and the "
                "price covers less. tuning=composition and tuning=disjoint cover all scores."
            )
        if find_spec(logger.package) is None:
            raise BadInput(f"Expected {logger.title} for logger={name}: pip install 'dpsweep[loggers]'.")


def log_results(loggers: Loggers, folder: SweepFolder, ledger: Ledger) -> list[str]:
    """Gives each logger the runs that it does not have yet; returns a sentence for each logger that failed."""
    if not loggers:
        return []
    from dpsweep.reports.content import sweep_table
    from dpsweep.sweeper.loggers.covered_results import covered_results

    try:
        sweep = covered_results(sweep_table.read(folder.root, ledger))
    except DpsweepError as cause:
        return [f"The runs were not logged: {cause}"]
    return [warning for name, logger in loggers.items() if (warning := _copy(name, logger, sweep, folder))]


def _copy(name: str, logger: ResultLogger, sweep: LoggedSweep, folder: SweepFolder) -> str | None:
    """Writes the runs that are new to a logger; returns a sentence if that failed."""
    place = f"{name} {digest(asdict(logger) if is_dataclass(logger) else {})}"
    try:
        known = _known(folder)
        given = known.setdefault(place, [])
        new = [run for run in sweep.runs if run.key not in given]
        try:
            for run in new:
                logger.write(run, sweep, folder.root)
                given.append(run.key)
        finally:
            if new:
                write_json(folder.logged, known)
    except Exception as cause:  # noqa: BLE001 - a foreign library may raise anything, and the results are stored
        reason = next(iter(str(cause).splitlines()), "") or type(cause).__name__
        return (
            f"The runs were not all logged to {logger.title}: {reason} The results are in {folder.root}; the same "
            "command logs what is missing."
        )
    return None


def _known(folder: SweepFolder) -> dict[str, list[str]]:
    """The attempts that each logger was given, by the logger's name and settings."""
    try:
        known: dict[str, list[str]] = json.loads(folder.logged.read_text())
    except FileNotFoundError:
        return {}
    return known
