"""A notice that a command now means another plan than before: its defaults, their prices or its script have changed.

The sweep folders decide nothing; they only remember which command made them.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from itertools import takewhile
from pathlib import Path

import yaml

from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.trainers.methods.script import is_script

_TASK = "    task:\n"
"""The line of Hydra's record after which the words of the command stand; parsing the whole file takes a tenth."""

_ITEM = "    - "


def former_plan(plan: Plan, folder: SweepFolder, words: Collection[str]) -> str:
    """A message that names the newest sweep of the same words with another plan; empty if there is none.

    It is also empty if this plan has been swept.
    """
    if folder.command.exists():
        return ""
    others = [path for path in folder.root.parent.glob(f"*/{folder.command.name}") if path.parent != folder.root]
    same = [path for path in others if sorted(_words(path)) == sorted(words)]
    if not same:
        return ""
    former = max(same, key=lambda path: path.stat().st_mtime).parent
    changed = (
        "The script or defaults have" if any(is_script(trial.config) for trial in plan.trials) else "Defaults have"
    )
    on = "" if plan.foreign_names else f" The former plan goes on with: dpsweep resume {shlex.quote(str(former))}"
    return (
        f"{changed} changed: this command was plan {former.name} before ({former}); now it is plan {plan.id}, with "
        f"a charge of its own.{on}"
    )


def _words(path: Path) -> list[str]:
    """The overrides of the command that made a sweep folder, from Hydra's record; none if it cannot be read."""
    try:
        _, _, rest = path.read_text(encoding="utf-8").partition(_TASK)
        lines = takewhile(lambda line: line.startswith(_ITEM), rest.splitlines())
        return [str(yaml.safe_load(line.removeprefix(_ITEM))) for line in lines]
    except (OSError, ValueError, yaml.YAMLError):
        return []
