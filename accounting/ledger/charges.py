"""What a charge pays for: attempts start only with the events that it was priced over, and it takes their price.

*Guarantee*: for each population of records, the runs that a charge names have together no more of an event than its
points have, or they are the runs on shared batches that its one point is for. Each further attempt has a point of its
own, whose events it has, or some that the point is the worst of. What a name declares does not change. A plan's name
proves nothing, so who starts an attempt declares the events of its runs.

Where the bounds of this version are above what a charge of an earlier one took, the account is under-charged by the
difference; a charge of the same version that lacks any was not written by dpsweep. A cost from outside, and one that a
restoration charged, has no event, so it is taken as it was recorded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dpsweep.accounting.durable_files import short_digest_of_json
from dpsweep.accounting.errors import ContractBroken, LedgerDamaged, UnderCharged, turn_read_errors_into_refusal
from dpsweep.accounting.events import types
from dpsweep.accounting.events.types import FINAL, DpEvent, PlanEvent, leaves_with_counts
from dpsweep.accounting.ledger.book import DELTA, EPSILON, Charged, SpentOutside, Started, Statement, read_body
from dpsweep.accounting.selection.rules import rule_from_config

MOST_RUNS = 10**7  # more than any plan has: a line with more is damaged
Declared = Mapping[str, Sequence[PlanEvent]]
"""By the name of an attempt, the events of its run (in `PlanEvent.final` for a final run), or of all its points."""


def digest_of_declared_events(events: Iterable[PlanEvent]) -> str:
    """The digest of these events in this order, the same in every process."""
    return short_digest_of_json([event.to_json() for event in events])


def require_paid_events(charge: Charged, starts: Sequence[Started], declared: Declared) -> None:
    """Raises `ContractBroken` unless the charge was priced over the events `declared` for its names and its starts."""
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
        who = f"The charge for {', '.join(sorted(names))}"
        raise ContractBroken(f"{who} pays for other accesses than those that are declared: nothing trains on it.")


def _has_point_for_each(runs: Sequence[PlanEvent], points: Sequence[tuple[PlanEvent, int]]) -> bool:
    """Whether the runs have a point each, and one more for a final run, that stands for them.

    A run takes the narrowest: what points stand for is nested or disjoint.
    """
    points = sorted(points, key=lambda one: max(map(len, map(_alternatives, one[0].events_by_population.values()))))
    free, finals = [count for _, count in points], 1
    for run in runs:
        places = [place for place, (point, _) in enumerate(points) if _is_part_of(run, point)]
        if finals and places and run.final is not None and all(name.startswith(FINAL) for name, _ in _accesses(run)):
            finals = 0
        elif (place := next((place for place in places if free[place]), None)) is not None:
            free[place] -= 1
        else:
            return False
    return True


def _number_of_accesses(events: Iterable[PlanEvent]) -> Counter[tuple[str, str]]:
    pairs = (pair for event in events for pair in _accesses(event))
    return Counter((name, types.canonical_text(types.canonical_event(part))) for name, part in pairs)


def _accesses(event: PlanEvent) -> list[tuple[str, DpEvent]]:
    return [(name, part) for name, part in event.events_by_population.items() if leaves_with_counts(part)]


def _are_on_shared_batches(runs: Sequence[PlanEvent], point: PlanEvent) -> bool:
    try:
        training = types.runs_on_shared_batches(run.training for run in runs)
    except ValueError:
        return False
    scores = types.compose(run.validation for run in runs if run.validation is not None)
    one = replace(point, validation=point.validation or types.NoOpDpEvent(), final=None)
    return PlanEvent(training=training, validation=scores).is_same_as(one)


def _is_part_of(event: PlanEvent, point: PlanEvent) -> bool:
    paid = {name: _alternatives(part) for name, part in point.events_by_population.items()}
    return all(any(types.are_same_events(part, one) for one in paid.get(name, ())) for name, part in _accesses(event))


def _alternatives(event: DpEvent) -> tuple[DpEvent, ...]:
    leaves = leaves_with_counts(event)
    worst = leaves[0][0] if len(leaves) == 1 and leaves[0][1] == 1 else event
    return worst.events if isinstance(worst, types.WorstDpEvent) else (event,)


def require_paid_charges(statement: Statement, plan: str | None = None) -> int:
    """Prices the charges of an account, or of one of its plans, again and returns their number.

    Raises `LedgerDamaged` for one of this version below its price; then `UnderCharged` for those of earlier versions,
    less the costs from outside whose note says that they take the difference. Nothing can be paid into a filter later,
    so a charge that lacks divergence lacks the whole price.
    """
    from dpsweep.accounting.upper_bounds import CLOSE, PRICES, upper_bound  # scipy: .2 s that nothing else here needs

    def missing(needed: Mapping[str, float], taken: Sequence[Mapping[str, float]]) -> dict[str, float]:
        pairs = {name: (need, math.fsum(one.get(name, 0.0) for one in taken)) for name, need in needed.items()}
        return {name: need - total for name, (need, total) in pairs.items() if need > total * (1 + CLOSE)}

    number, late, budget = 0, [], statement.budget
    outside = [body for body in map(read_body, statement.entries) if isinstance(body, SpentOutside)]
    for entry in statement.entries:
        body = read_body(entry)
        if not isinstance(body, Charged) or body.event is None or plan not in (None, entry.plan):
            continue
        number += 1
        with turn_read_errors_into_refusal(f"entry {entry.seq} of the ledger", LedgerDamaged):
            event = _event_by_this_version(body, body.prices < PRICES)
        cost = replace(budget, epsilon=upper_bound(event, body.delta, budget.adjacency), delta=body.delta)
        claim, note = {EPSILON: cost.epsilon, DELTA: cost.delta}, f"under-charged, entry {entry.seq}"
        paid = [one.takes for one in outside if one.note == note]
        lacks = missing(claim, [{EPSILON: body.epsilon, DELTA: body.delta}, *paid])
        if missing(statement.balance.policy.amounts_of_charge(cost, event), [body.takes, *paid]):
            lacks = missing(claim, [body.takes, *paid]) or lacks
        if not lacks:
            continue
        epsilon, delta = (lacks.get(name, 0.0) for name in (EPSILON, DELTA))
        sentence = (
            f"Entry {entry.seq}, which charges plan {entry.plan} on {statement.account}, is under-charged by epsilon "
            f"{epsilon} and delta {delta}"
        )
        if body.prices >= PRICES:
            raise LedgerDamaged(f"{sentence}: it does not take the price that it was written with.")
        late.append(
            f"{sentence} by the bounds of this version. To take it: dpsweep budget charge dataset={statement.account} "
            f'--epsilon {epsilon} --delta {delta} --note "{note}".'
        )
    if late:
        raise UnderCharged(" ".join(late))
    return number


def _event_by_this_version(body: Charged, is_earlier: bool) -> PlanEvent:
    charged = PlanEvent.from_json(body.event or {})
    if is_earlier and not body.points:
        return charged
    if sum(one.runs for one in body.points) > MOST_RUNS:
        raise ValueError(f"Expected a charge of {MOST_RUNS} runs or fewer.")
    points = [point for one in body.points for point in [PlanEvent.from_json(one.event)] * one.runs]
    rule = rule_from_config({key: value for key, value in body.record["rule"].items() if key != "name"})
    if not is_earlier and not rule.prices(replace(charged, sealed=None), points):
        raise ValueError(f"Expected the event of a charge to be that of {rule.name} over its points.")
    return replace(rule.event(points), sealed=charged.sealed)
