"""Step times of past plans and sweeps on this machine, so that no plan times a step again. For the curator only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from dpsweep.accounting.json_files import digest, write_json
from dpsweep.accounting.numbers import non_negative
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.validation import DAMAGE
from dpsweep.sweeper.timing import time_estimate as estimate
from dpsweep.sweeper.timing.time_estimate import Config, Cost, Shape, kind_of

_LENGTHS = (2, 3)
"""The lengths of a stored cost: with the time of an extracted record, or without it."""


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Seconds per step by kind of step, for one device and number of threads; in a small file beside the ledger.

    A file's values are seconds of a step, seconds beside the steps of a run, and, where records have frozen features,
    seconds to extract those of a record. `threads` is the number that
    the user gave, None if it follows from the work of a step; then it is at most `most`. So many `workers` share the
    points, and a job trains at most `together` of them, if it is given, in so many `processes`. With `extracts`, some
    features are still to be computed, and a kind of step whose extraction was not timed is unknown.
    """

    path: Path
    device: str
    threads: int | None
    most: int
    workers: int = 1
    together: int | None = None
    processes: int = 1
    extracts: bool = False

    def known(self, configs: Iterable[Config]) -> dict[str, Cost] | None:
        """The cost of each kind of step among these; None unless all of them were timed or ran before."""
        costs = self._known(self._shapes(configs))
        return None if None in costs.values() else {kind: cost for kind, cost in costs.items() if cost is not None}

    def of_shapes(self, shapes: Mapping[str, Shape]) -> list[Cost | None]:
        """The cost of each of these shapes, by kind, where it was timed or ran before."""
        return list(self._known(shapes).values())

    @contextmanager
    def asked(self, configs: Iterable[Config]) -> Iterator[Callable[[], Mapping[str, Cost] | None]]:
        """The cost of each kind of step: known ones, and the others timed in a separate process in the background.

        Yields a function that waits for the times, stores and returns them, or None if there are none.
        """
        shapes = self._shapes(configs)
        costs = self._known(shapes)
        known = {kind: cost for kind, cost in costs.items() if cost is not None}
        unknown = {kind: shape for kind, shape in shapes.items() if kind not in known and shape.timeable}
        if not unknown:
            yield lambda: known
            return
        with estimate.asked(list(unknown.values()), self.device, self.threads, self.most) as answer:

            def timed() -> Mapping[str, Cost] | None:
                new = answer()
                return None if new is None else {**known, **self._timed(unknown, new)}

            yield timed

    def record(self, trials: Sequence[Trial], results: Sequence[TrialResult]) -> None:
        """Stores the median seconds per step of these trials' results, by kind of step."""
        configs = [trial.config for trial in trials]
        shapes = self._shapes(configs)
        kinds = {trial.id: kind_of(trial.config) for trial in trials}
        times: dict[str, list[float]] = {}
        for result in results:
            if result.steps and (kind := kinds.get(result.trial, "")) in shapes:
                times.setdefault(kind, []).append(result.seconds / result.steps)
        costs = self._known({kind: shapes[kind] for kind in times})
        self._store(
            {
                self._key(kind, shapes[kind]): replace(cost or Cost(step=0.0), step=median(seconds))
                for (kind, seconds), cost in zip(times.items(), costs.values(), strict=True)
            }
        )

    def _shapes(self, configs: Iterable[Config]) -> Mapping[str, Shape]:
        return estimate.shapes_of(
            configs, self.workers, self.together, processes=self.processes, extracts=self.extracts
        )

    def _known(self, shapes: Mapping[str, Shape]) -> dict[str, Cost | None]:
        stored = self._read()
        costs = {kind: stored.get(self._key(kind, shape)) for kind, shape in shapes.items()}
        return {
            kind: None if cost is None or (shapes[kind].extracts and cost.record is None) else cost
            for kind, cost in costs.items()
        }

    def _timed(self, shapes: Mapping[str, Shape], costs: Sequence[Cost]) -> Mapping[str, Cost]:
        """Stores measured times where a ledger's folder exists already: a plan makes no folder there."""
        if self.path.parent.is_dir():
            keys = (self._key(kind, shape) for kind, shape in shapes.items())
            self._store(dict(zip(keys, costs, strict=True)))
        return dict(zip(shapes, costs, strict=True))

    def _store(self, costs: Mapping[str, Cost]) -> None:
        stored = {**self._read(), **costs}
        with suppress(OSError):  # a full disk must not cost a sweep its report
            write_json(self.path, {key: _as_list(cost) for key, cost in stored.items()})

    def _read(self) -> Mapping[str, Cost]:
        try:
            times: dict[str, Any] = json.loads(self.path.read_text())
            return {key: Cost(*parts) for key, parts in times.items() if _is_cost(parts)}
        except (OSError, *DAMAGE):
            return {}

    def _key(self, kind: str, shape: Shape) -> str:
        threads = self.threads or self.most
        several = {} if shape.processes == 1 else {"processes": shape.processes}
        return digest({"kind": kind, "points": shape.points, "device": self.device, "threads": threads} | several)


def _as_list(cost: Cost) -> list[float]:
    return [cost.step, cost.beside, *([] if cost.record is None else [cost.record])]


def _is_cost(stored: object) -> bool:
    """Whether a stored value is a list of times."""
    if not isinstance(stored, list) or len(stored) not in _LENGTHS:
        return False
    try:
        for seconds in stored:
            non_negative("seconds", seconds)
    except (ValueError, TypeError):
        return False
    return True
