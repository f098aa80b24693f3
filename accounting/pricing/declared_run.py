"""A declared run before it is priced: its training event at any noise, and the values that a solver has to find.

Pricing does not depend on samplers, methods or data sets: the planner passes runs that declare their events.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.records.plan import Trial


class DeclaredRun(Protocol):
    """One declared and validated point of a search."""

    @property
    def noise_multiplier(self) -> float | None:
        """The given noise multiplier, None if it is to be solved for."""

    @property
    def is_score_noise_open(self) -> bool:
        """Whether the noise of its score is to be solved for."""

    @property
    def noisy_counts_of_score(self) -> int:
        """The number of noisy counts that its score releases."""

    @property
    def noisy_counts_of_card(self) -> int:
        """The number of noisy counts that a card on its model releases."""

    @property
    def training_event_key(self) -> Hashable:
        """All that determines the training event, except the noise: runs of equal kinds share one event."""

    @property
    def final(self) -> DeclaredRun | None:
        """The run that follows the search if this run wins it; None if the rule has no final run."""

    def training_event(self, noise_multiplier: float, steps: int | None = None) -> DpEvent:
        """The training event at this noise, after the run's number of steps or after this one."""

    def with_steps(self, steps: int) -> DeclaredRun:
        """The same run with this number of steps, declared anew; raises `BadInput` if it cannot have that many."""

    def trial_at_noise(self, noise_multiplier: float, score_noise: float | None) -> Trial:
        """The trial at this noise, without its final run; `score_noise` is the noise of its score if that was open."""


def given_noises(runs: Sequence[DeclaredRun]) -> list[float]:
    """Each run's given noise multiplier; raises `BadInput` if a run has none."""
    noises = [run.noise_multiplier for run in runs if run.noise_multiplier is not None]
    if len(noises) < len(runs):
        raise BadInput("Expected privacy.noise_multiplier to be given where no epsilon is asked for.")
    return noises


def given_or_default_noises(runs: Sequence[DeclaredRun], noise: float) -> list[float]:
    """Each run's given noise multiplier, or this one if it is open."""
    return [noise if run.noise_multiplier is None else run.noise_multiplier for run in runs]


def training_events(
    runs: Sequence[DeclaredRun],
    noises: Sequence[float],
    steps: Sequence[int | None] | None = None,
) -> list[PlanEvent]:
    """The runs' training events, without scores, after these numbers of steps if they are given.

    A final run has the noise of its run. Runs of equal kind, noise and steps share one event.
    """
    events_by_run: dict[tuple[Hashable, float, int | None], DpEvent] = {}

    def event_of_run(run: DeclaredRun, noise: float, count: int | None) -> PlanEvent:
        key = (run.training_event_key, noise, count)
        if key not in events_by_run:
            events_by_run[key] = run.training_event(noise, count)
        final = None if run.final is None else event_of_run(run.final, noise, count)
        return PlanEvent(training=events_by_run[key], final=final)

    return [event_of_run(*one) for one in zip(runs, noises, steps or [None] * len(runs), strict=True)]
