"""What a charge pays for: an attempt starts only with the events that its charge was priced over.

A plan's name proves nothing: a second plan of that name would train on the charge of the first. So who starts an
attempt declares the events of its runs, and the ledger compares them with the points of the charge.

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
from dpsweep.accounting.events.types import (
    FINAL,
    DpEvent,
    NoOpDpEvent,
    PlanEvent,
    WorstDpEvent,
    are_same_events,
    canonical_event,
    canonical_text,
    compose,
    leaves_with_counts,
    runs_on_shared_batches,
)
from dpsweep.accounting.ledger.bodies import Charged, Started

Declared = Mapping[str, Sequence[PlanEvent]]
"""By the name of an attempt, the events of its run (in `PlanEvent.final` for a final run), or of all its points."""


def digest_of_declared_events(events: Iterable[PlanEvent]) -> str:
    """The digest of these events in this order, the same in every process."""
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
        _require(bool(runs) and start.accesses == digests[key], [start.trial])
    named, further = [declared.get(trial, ()) for trial in charge.trials], [start.trial for start in starts]
    events = [event for one in named for event in one]
    together = len(points) == 1 and len(named) > 1 and all(named) and _are_on_shared_batches(events, points[0][0])
    if first := [trial for trial in charge.trials if trial in further]:
        priced = _number_of_accesses(point for point, count in points for _ in range(count))
        _require(all(named) and (together or _number_of_accesses(events) <= priced), first)
        for trial in first:
            further.remove(trial)
    events = [*(() if together else events), *(run for trial in further for run in declared[trial])]
    if together:
        points = [(points[0][0], 0)]
    _require(not further or _has_point_for_each(events, points), further)


def _require(paid: bool, names: Iterable[str]) -> None:
    if not paid:
        raise ContractBroken(
            f"The charge for {', '.join(sorted(names))} pays for other accesses than those that are declared: nothing "
            "trains on it."
        )


def _has_point_for_each(runs: Sequence[PlanEvent], points: Sequence[tuple[PlanEvent, int]]) -> bool:
    """Whether the runs have a point each, and one more for a final run, that stands for them.

    A run takes the narrowest: what points stand for is nested or disjoint.
    """
    narrow_first = sorted(
        points, key=lambda one: max(map(len, map(_alternatives, one[0].events_by_population.values())))
    )
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


def _number_of_accesses(events: Iterable[PlanEvent]) -> Counter[tuple[str, str]]:
    return Counter((name, canonical_text(canonical_event(part))) for event in events for name, part in _accesses(event))


def _accesses(event: PlanEvent) -> list[tuple[str, DpEvent]]:
    return [(name, part) for name, part in event.events_by_population.items() if leaves_with_counts(part)]


def _are_on_shared_batches(runs: Sequence[PlanEvent], point: PlanEvent) -> bool:
    try:
        training = runs_on_shared_batches(run.training for run in runs)
    except ValueError:
        return False
    scores = compose(run.validation for run in runs if run.validation is not None)
    return PlanEvent(training=training, validation=scores).is_same_as(
        replace(point, validation=point.validation or NoOpDpEvent(), final=None)
    )


def _is_part_of(event: PlanEvent, point: PlanEvent) -> bool:
    paid = point.events_by_population
    return all(
        name in paid and any(are_same_events(part, one) for one in _alternatives(paid[name]))
        for name, part in _accesses(event)
    )


def _alternatives(event: DpEvent) -> tuple[DpEvent, ...]:
    leaves = leaves_with_counts(event)
    worst = leaves[0][0] if len(leaves) == 1 and leaves[0][1] == 1 else event
    return worst.events if isinstance(worst, WorstDpEvent) else (event,)
