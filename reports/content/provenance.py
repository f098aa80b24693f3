"""The provenance of a sweep: the command that repeats it, software versions, devices and times."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

import yaml

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.searches.folder_audit import verify_folder
from dpsweep.reports.content.sweep_table import Sweep

COMMAND_FILE = "multirun.yaml"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The data needed to repeat a sweep and to find its charge, for the curator's page."""

    command: str
    folder: str
    plan: str
    ledger_head: str
    verified: str
    versions: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]
    began: str
    ended: str


def read_origin(sweep: Sweep, ledger: Ledger) -> Origin:
    """Collects the provenance from Hydra's record, the plan, the ledger and the results."""
    results = sweep.results.values()
    versions: dict[str, dict[str, None]] = {}
    for result in results:
        for name, version in result.versions.items():
            versions.setdefault(name, {})[version] = None
    return Origin(
        command=read_command(sweep),
        folder=shlex.quote(str(sweep.folder.absolute())),
        plan=sweep.plan_id,
        ledger_head=sweep.account.entries[-1].digest,
        verified=verified(sweep, ledger),
        versions=tuple((name, ", ".join(numbers)) for name, numbers in versions.items()),
        devices=tuple(dict.fromkeys(result.device for result in results)),
        began=min((result.started for result in results), default=""),
        ended=max((result.ended for result in results), default=""),
    )


def program_version() -> str:
    """The version of dpsweep that writes a page."""
    return metadata.version("dpsweep")


def verified(sweep: Sweep, ledger: Ledger) -> str:
    """The result of `dpsweep verify` on the folder, or its error."""
    try:
        return verify_folder(sweep.folder, ledger).removeprefix(f"{sweep.folder}: ")
    except DpsweepError as error:
        return str(error)


def read_command(sweep: Sweep) -> str:
    """The command line, empty if Hydra left no record of it."""
    try:
        record = yaml.safe_load((sweep.folder / COMMAND_FILE).read_text())
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return ""
    node: object = record
    for key in ("hydra", "overrides", "task"):
        node = node.get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, list) or not all(isinstance(override, str) for override in node):
        return ""
    return shlex.join(["dpsweep", "sweep", *node])
