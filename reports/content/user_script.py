"""The scripts of a curator's own that trained the models of a sweep, by name and checksum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from dpsweep.accounting.names.stored_classes import SCRIPT, name_of
from dpsweep.accounting.records.plan import Plan


@dataclass(frozen=True, kw_only=True)
class UserScript:
    """The file name of a script, without its folder, and the SHA-256 of its content."""

    name: str
    sha256: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> UserScript | None:
        """The script of a trial's configuration; None if dpsweep trained it."""
        trainer = config.get("trainer", {})
        if name_of(trainer) != SCRIPT:
            return None
        return cls(name=PurePath(str(trainer.get(SCRIPT, ""))).name, sha256=str(trainer.get("sha256", "")))

    @property
    def label(self) -> str:
        """The script as a page names it."""
        return f"{self.name} (sha256 {self.sha256})"


def scripts_of(plan: Plan) -> tuple[UserScript, ...]:
    """The scripts of a plan's points; empty if dpsweep trains all of them."""
    found = (UserScript.of(trial.config) for trial in plan.trials)
    return tuple(dict.fromkeys(script for script in found if script is not None))


def released_trainer(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """A trainer's settings as they are released: of a script only the file name, and no path."""
    script = UserScript.of({"trainer": trainer})
    return dict(trainer) if script is None else {**trainer, SCRIPT: script.name}
