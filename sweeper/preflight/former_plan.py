"""A notice that a command now means another plan than before: its defaults, or their prices, have changed.

The sweep folders decide nothing; they only remember which command made them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import yaml

from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder

_TASK = "    task:\n"
"""The line of Hydra's record after which the words of the command stand; parsing the whole file takes a tenth."""


def former_plan(plan: Plan, folder: SweepFolder, words: Collection[str]) -> str:
    """A message that names the newest sweep of the same words with another plan; empty if there is none.

    It is also empty if this plan has been swept.
    """
    if folder.command.exists():
        return ""
    others = [path for path in folder.root.parent.glob(f"*/{folder.command.name}") if path.parent != folder.root]
    for path in sorted(others, key=lambda one: one.stat().st_mtime, reverse=True):
        if sorted(_words(path)) == sorted(words):
            return (
                f"Defaults have changed: this command was plan {path.parent.name} before ({path.parent}); now it is "
                f"plan {plan.id}, with a charge of its own."
            )
    return ""


def _words(path: Path) -> Iterator[str]:
    """The overrides of the command that made a sweep folder, from Hydra's record of it."""
    _, found, rest = path.read_text(encoding="utf-8", errors="replace").partition(_TASK)
    for line in rest.splitlines() if found else ():
        if not line.startswith("    - "):
            return
        yield str(yaml.safe_load(line.removeprefix("    - ")))
