"""What a charge pays for: an attempt starts only with the events that its charge was priced over.

A plan's name proves nothing: where two plans had one name, the second would train on the charge of the first. So who
starts an attempt declares the events of its runs, and the ledger compares them with the points of the charge.

*Guarantee*: for each population of records, the runs that a charge names have together no more of an event than its
points have, or they are the runs on shared batches that its one point is for. Each further attempt has a point of its
own, whose events it has, or some that the point is the worst of. What a name declares does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dpsweep.accounting.durable_files import short_digest_of_json
from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import (
    FINAL,
    DpEvent,
    PlanEvent,
    are_same_events,
    canonical_event,
    compose,
    leaves_with_counts,
    no_access,
)
from dpsweep.accounting.events.rounded_noise import runs_on_shared_batches
from dpsweep.accounting.events.types import WorstDpEvent, canonical_text
from dpsweep.accounting.ledger.bodies import Charged, Started

Declared = Mapping[str, Sequence[PlanEvent]]
"""By the name of an attempt, the events of its run, or those of all points of a search that is one attempt.

A final run declares its events as those of a final run (`PlanEvent.final`), without other accesses.
"""


def digest_of_declared_events(events: Iterable[PlanEvent]) -> str:
    """The same for the same events in the same order, in every process."""
    return short_digest_of_json([event.to_json() for event in events])


def require_paid_events(charge: Charged, starts: Sequence[Started], declared: Declared) -> None:
    """Raises `ContractBroken` unless the charge was priced over the events of all attempts that started on it.

    `declared` has the events of all names on the charge, and of those that started, as they were at each start.
    """
    points = [(PlanEvent.from_json(point.event), point.runs) for point in charge.points] if starts else []
    digests: dict[tuple[int, ...], str] = {}  # many runs have the same events
    for start in starts:
        runs = declared.get(start.trial, ())
        key = tuple(map(id, runs))
        if key not in digests:
            digests[key] = digest_of_declared_events(runs)
        if not runs or start.accesses != digests[key]:
            raise _not_paid([start.trial])
    named, further = [declared.get(trial, ()) for trial in charge.trials], [start.trial for start in starts]
    if first := [trial for trial in charge.trials if trial in further]:
        if not _are_named_runs_paid(named, points):
            raise _not_paid(first)
        for trial in first:
            further.remove(trial)
    events = [run for trial in further for run in declared[trial]]
    if points and _are_named_together(named, points):
        points = [(points[0][0], 0)]
    else:
        events = [run for one in named for run in one] + events
    if further and not _has_point_for_each(events, points):
        raise _not_paid(further)


def _not_paid(names: Iterable[str]) -> ContractBroken:
    return ContractBroken(
        f"The charge for {', '.join(sorted(names))} pays for other accesses than those that are declared: nothing "
        "trains on it."
    )


def _are_named_runs_paid(runs: Sequence[Sequence[PlanEvent]], points: Sequence[tuple[PlanEvent, int]]) -> bool:
    named = [event for one in runs for event in one]
    priced = _number_of_accesses(point for point, count in points for _ in range(count))
    return all(runs) and (_number_of_accesses(named) <= priced or _are_named_together(runs, points))


def _are_named_together(runs: Sequence[Sequence[PlanEvent]], points: Sequence[tuple[PlanEvent, int]]) -> bool:
    """Whether several runs are together the one point of runs on shared batches."""
    named = [event for one in runs for event in one]
    return len(points) == 1 and len(runs) > 1 and all(runs) and _are_on_shared_batches(named, points[0][0])


def _has_point_for_each(runs: Sequence[PlanEvent], points: Sequence[tuple[PlanEvent, int]]) -> bool:
    """Whether the runs have a point each, and one more for a final run, that stands for them.

    A run takes a point that stands for few: what a point stands for is a part of what another one does, or has nothing
    in common with it.
    """
    narrow_first = sorted(points, key=lambda point: _breadth(point[0]))
    free, finals = [count for _, count in narrow_first], 1
    for run in runs:
        places = [place for place, (point, _) in enumerate(narrow_first) if _is_part_of(run, point)]
        if finals and places and all(name.startswith(FINAL) for name, _ in _accesses(run)) and run.final is not None:
            finals = 0
        elif place := next((place + 1 for place in places if free[place]), None):
            free[place - 1] -= 1
        else:
            return False
    return True


def _breadth(point: PlanEvent) -> int:
    return max(len(_those_that_it_stands_for(part)) for part in point.events_by_population.values())


def require_point_for_each_spare(trials: Sequence[str], spares: int, points: Sequence[PlanEvent]) -> None:
    """Raises `ValueError` where attempts without a name would be more than the points beyond those of `trials`.

    One more is for the final run.
    """
    if spares > max(0, len(points) - len(trials)) + any(point.final is not None for point in points):
        raise ValueError(f"Expected spares={spares} with a point for each, got {len(points)} for {len(trials)} trials.")


def _number_of_accesses(events: Iterable[PlanEvent]) -> Counter[tuple[str, str]]:
    """How often each mechanism on each population occurs; a population that is not read counts for nothing."""
    return Counter((name, canonical_text(canonical_event(part))) for event in events for name, part in _accesses(event))


def _accesses(event: PlanEvent) -> list[tuple[str, DpEvent]]:
    return [(name, part) for name, part in event.events_by_population.items() if leaves_with_counts(part)]


def _are_on_shared_batches(runs: Sequence[PlanEvent], point: PlanEvent) -> bool:
    """Whether the point is that of these runs with the same batches in every step."""
    try:
        training = runs_on_shared_batches(run.training for run in runs)
    except ValueError:
        return False
    scores = compose(run.validation for run in runs if run.validation is not None)
    return PlanEvent(training=training, validation=scores).is_same_as(
        replace(point, validation=point.validation or no_access(), final=None)
    )


def _is_part_of(event: PlanEvent, point: PlanEvent) -> bool:
    """Whether each access of the event is that of the point, or one that the point's is the worst of."""
    paid = point.events_by_population
    return all(
        any(are_same_events(part, one) for one in _those_that_it_stands_for(paid[name])) if name in paid else False
        for name, part in _accesses(event)
    )


def _those_that_it_stands_for(event: DpEvent) -> tuple[DpEvent, ...]:
    leaves = leaves_with_counts(event)
    worst = leaves[0][0] if len(leaves) == 1 and leaves[0][1] == 1 else event
    return worst.events if isinstance(worst, WorstDpEvent) else (event,)
