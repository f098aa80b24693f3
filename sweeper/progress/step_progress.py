"""How far the runs of a sweep are, in steps, as their jobs write it into the sweep's folder while they train.

Jobs in this process, in others and on other machines write the same small files, which serve the display alone: what
they say is bounded by the plan's own numbers, and nothing that is charged, resumed or reported reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import RESULT_FILE, Status, TrialResult
from dpsweep.sweeper.trial.session import PROGRESS

AHEAD = 512
"""Number of waiting trials to check each time: trials begin in order, so the running ones are among the first."""

_STEP, _FEATURES = re.compile(r"step (\d{1,15})/\d{1,15}"), re.compile(r"features (\d{1,15})/(\d{1,15})")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The runs of a sweep at one moment.

    `ended` are the results since the last snapshot, `done` the trials that are over, `failed` those of them that
    failed meanwhile; `share` is the share of all steps that is done. `running` has the steps of each running trial,
    done and in all; `features` the records whose features are computed, and all.
    """

    ended: tuple[TrialResult, ...]
    done: int
    failed: int
    total: int
    share: float
    running: tuple[tuple[int, int], ...]
    features: tuple[int, int] | None


@dataclass(kw_only=True)
class _WatchedTrial:
    """A trial that may run: the times of the files that were there before, and the steps that are done."""

    steps: int
    result: int | None
    progress: int | None
    done: int = 0


@dataclass(kw_only=True)
class StepProgress:
    """The runs of a sweep, read from its folder; of the `total` trials of the plan, `done` were over beforehand."""

    folder: SweepFolder
    total: int
    done: int
    _waiting: dict[str, _WatchedTrial] = field(default_factory=dict)
    _steps_ended: int = 0
    _ended: int = 0
    _failed: int = 0

    def expect(self, trials: Sequence[Trial]) -> None:
        """Also watches these trials, which are about to be run."""
        for trial in trials:
            place = self.folder.trial(trial.id)
            self._waiting[trial.id] = _WatchedTrial(
                steps=max(1, int(trial.config["steps"])),
                result=_written(place / RESULT_FILE),
                progress=_written(place / PROGRESS),
            )

    @property
    def waiting(self) -> int:
        """The number of watched trials that are not over."""
        return len(self._waiting)

    def look(self, ahead: int = AHEAD) -> Snapshot:
        """The runs now; at most so many of the waiting ones are looked at."""
        first = list(islice(self._waiting.items(), ahead))
        ended = tuple(self._ends(first))
        lines = [line for trial, watched in first if trial in self._waiting for line in self._line(trial, watched)]
        features = next((parts for line in lines if (parts := _FEATURES.match(line))), None)
        return Snapshot(
            ended=ended,
            done=self.done,
            failed=self._failed,
            total=self.total,
            share=self._share(),
            running=tuple((watched.done, watched.steps) for watched in self._waiting.values() if watched.done),
            features=None if features is None else (int(features[1]), int(features[2])),
        )

    def _ends(self, first: Iterable[tuple[str, _WatchedTrial]]) -> Iterator[TrialResult]:
        """The trials that ended since the last look, each once."""
        for trial, watched in first:
            place = self.folder.trial(trial)
            if _written(place / RESULT_FILE) in (None, watched.result):
                continue
            if (result := TrialResult.read(place)) is not None:
                del self._waiting[trial]
                self._steps_ended += watched.steps
                self.done, self._ended = self.done + 1, self._ended + 1
                self._failed += result.status is Status.FAILED
                yield result

    def _line(self, trial: str, watched: _WatchedTrial) -> Iterator[str]:
        """What a running trial's job wrote, if it wrote since it was expected; its steps are kept."""
        path = self.folder.trial(trial) / PROGRESS
        if _written(path) in (None, watched.progress):
            return
        try:
            line = path.read_text()
        except (OSError, ValueError):
            return
        if parts := _STEP.match(line):
            watched.done = min(int(parts[1]), watched.steps)
        yield line

    def _share(self) -> float:
        """The steps that are done, over all; trials that are not known yet have the mean number of steps."""
        known = self._steps_ended + sum(watched.steps for watched in self._waiting.values())
        trials, before = self._ended + len(self._waiting), self.done - self._ended
        mean = known / trials if trials else 1.0
        here = self._steps_ended + sum(watched.done for watched in self._waiting.values())
        whole = known + mean * max(0, self.total - trials)
        return min(1.0, (here + mean * before) / whole) if whole else 0.0


def _written(path: Path) -> int | None:
    """When a file was written last, in nanoseconds; None if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
