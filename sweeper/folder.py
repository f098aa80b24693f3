"""The sweep's folder: one object owns every path below it. All of it is the curator's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SweepFolder:
    """Where a plan's files lie."""

    root: Path

    @property
    def plan(self) -> Path:
        """The plan that was charged."""
        return self.root / "plan.json"

    @property
    def draw(self) -> Path:
        """The rule's draw, made before the first run; for the curator only."""
        return self.root / "draw.json"

    @property
    def command(self) -> Path:
        """The configuration of the whole sweep, as Hydra's own sweepers write it."""
        return self.root / "multirun.yaml"

    @property
    def lock(self) -> Path:
        """Held by the one coordinator of this folder."""
        return self.root / ".lock"

    @property
    def study(self) -> Path:
        """The Optuna study, an SQLite file for optuna-dashboard."""
        return self.root / "study.db"

    @property
    def trials(self) -> Path:
        """What has been run, a folder each."""
        return self.root / "trials"

    def trial(self, trial_id: str) -> Path:
        """A trial's own folder: config.yaml, train.log, result.json, receipt.json."""
        return self.trials / trial_id
