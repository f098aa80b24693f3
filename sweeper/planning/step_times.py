"""Step times of past plans and sweeps on this machine, so that no plan times a step again. For the curator only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dpsweep.accounting.json_files import digest, write_json
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.sweeper.planning import time_estimate as estimate
from dpsweep.sweeper.planning.time_estimate import kind_of


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Seconds per step by kind of step, for one device and number of threads; in a small file beside the ledger.

    `threads` is the number that the user gave, None if it follows from the work of a step; then it is at most `most`.
    """

    path: Path
    device: str
    threads: int | None
    most: int

    def known(self, plan: Plan) -> dict[str, float] | None:
        """Seconds per step of each kind of step that ran before; None unless all kinds of the search did."""
        stored = self._read()
        search, finals = ({kind_of(trial.config) for trial in trials} for trials in (plan.trials, plan.finals))
        times = {kind: stored.get(self._key(kind)) for kind in search | finals}
        known = {kind: seconds for kind, seconds in times.items() if seconds is not None}
        return known if search <= known.keys() else None

    @contextmanager
    def asked(self, plan: Plan) -> Iterator[Callable[[], Mapping[str, float] | None]]:
        """Seconds per step of each kind: known ones, or else timed in a separate process in the background.

        Yields a function that waits for the times, stores and returns them, or None if there are none.
        """
        known = self.known(plan)
        if known is not None:
            yield lambda: known
            return
        shapes = estimate.shapes_of(plan)
        with estimate.asked(list(shapes.values()), self.device, self.threads, self.most) as answer:
            yield (
                lambda: None if (seconds := answer()) is None else self._timed(dict(zip(shapes, seconds, strict=True)))
            )

    def record(self, trials: Sequence[Trial], results: Sequence[TrialResult]) -> None:
        """Stores the median seconds per step of these trials' results, by kind of step."""
        kinds = {trial.id: kind_of(trial.config) for trial in trials}
        times: dict[str, list[float]] = {}
        for result in results:
            if result.steps:
                times.setdefault(self._key(kinds[result.trial]), []).append(result.seconds / result.steps)
        self._store({key: median(seconds) for key, seconds in times.items()})

    def _timed(self, seconds: Mapping[str, float]) -> Mapping[str, float]:
        """Stores measured times where a ledger's folder exists already: a plan makes no folder there."""
        if self.path.parent.is_dir():
            self._store({self._key(kind): value for kind, value in seconds.items()})
        return seconds

    def _store(self, times: Mapping[str, float]) -> None:
        with suppress(OSError):  # a full disk must not cost a sweep its report
            write_json(self.path, {**self._read(), **times})

    def _read(self) -> Mapping[str, float]:
        try:
            times: dict[str, float] = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return times

    def _key(self, kind: str) -> str:
        return digest({"kind": kind, "device": self.device, "threads": self.threads or self.most})
