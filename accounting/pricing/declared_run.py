"""A run before it is priced: what it does at any noise, and what of it a solver has still to find.

Pricing knows nothing of samplers, methods and data sets: whoever plans hands over runs that say what they would do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.records.plan import Trial


class DeclaredRun(Protocol):
    """One point of a search, declared and validated."""

    @property
    def noise_multiplier(self) -> float | None:
        """Its own noise multiplier, None where it is to be found."""
        ...

    @property
    def score_is_open(self) -> bool:
        """Whether the noise of its score is to be found."""
        ...

    @property
    def kind(self) -> Hashable:
        """What the event of its training follows from, the noise apart: runs of equal kinds share one event."""
        ...

    def training(self, noise_multiplier: float, steps: int | None = None) -> DpEvent:
        """What training does to its records at this noise, after its own number of steps or after this one."""
        ...

    def after(self, steps: int) -> DeclaredRun:
        """The same run with this number of steps, declared anew; raises `BadInput` where it cannot have so many."""
        ...

    def trial(self, noise_multiplier: float, score_noise: float | None) -> Trial:
        """The trial at this noise, with this noise of its score where that was open."""
        ...


def given_noises(runs: Sequence[DeclaredRun]) -> list[float]:
    """Each run's own noise multiplier; raises `BadInput` where one has none."""
    noises = [run.noise_multiplier for run in runs if run.noise_multiplier is not None]
    if len(noises) < len(runs):
        raise BadInput("Expected privacy.noise_multiplier to be given where no epsilon is asked for.")
    return noises


def noises_at(runs: Sequence[DeclaredRun], noise: float) -> list[float]:
    """Each run's own noise multiplier, and this one where it is open."""
    return [noise if run.noise_multiplier is None else run.noise_multiplier for run in runs]


def training_events(
    runs: Sequence[DeclaredRun], noises: Sequence[float], steps: Sequence[int | None] | None = None
) -> list[PlanEvent]:
    """What the runs' training does, scores apart, after these numbers of steps where they are given.

    Runs of equal kind, noise and steps share one event.
    """
    made: dict[tuple[Hashable, float, int | None], DpEvent] = {}
    trials = []
    for run, noise, count in zip(runs, noises, steps or [None] * len(runs), strict=True):
        key = (run.kind, noise, count)
        if key not in made:
            made[key] = run.training(noise, count)
        trials.append(PlanEvent(training=made[key]))
    return trials
