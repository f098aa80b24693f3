"""A file with a line of JSON for each run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dpsweep.sweeper.loggers.interface import LoggedRun, LoggedSweep


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines in `file`, or in `runs.jsonl` in the sweep's folder."""

    title: ClassVar[str] = "Lines of JSON"
    package: ClassVar[str] = "json"
    """The library that must be installed."""
    file: str | None = None

    def write(self, run: LoggedRun, sweep: LoggedSweep, folder: Path) -> None:
        """Adds a line."""
        path = folder / "runs.jsonl" if self.file is None else Path(self.file).expanduser()
        with path.open("a") as stream:
            print(json.dumps({"run": run.name, **run.hyperparameters, **run.scores, **sweep.facts}), file=stream)
