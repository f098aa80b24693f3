"""What a rule is priced over: one event for every run that is paid for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent


def paid_for(
    points: Sequence[PlanEvent],
    *,
    spares: int = 0,
    turns: Sequence[Sequence[int]] | None = None,
    shared: bool = False,
) -> tuple[PlanEvent, ...]:
    """What a rule is priced over: every point's run, or one run for each of the `turns`, and the spare attempts.

    A turn is given by the places of the points that it may take. Points that are trained on the same subsamples are
    `shared`, and one run together.

    *Guarantee*: a turn is as costly as any of its points, and a spare attempt as any point of all, so it may be used
    for whichever one, also where earlier scores decide which. *Source*: adaptive composition of a number of mechanisms
    fixed beforehand, each within one Renyi curve (Mironov 2017, Proposition 1) or one privacy profile (Zhu, Dong, Wang
    2022, Theorem 10), whatever came out before it.
    """
    scored = [point.validation for point in points if point.validation is not None]
    if shared and points:
        if spares or turns is not None:
            raise BadInput("Expected shared subsamples without spare attempts and proposals: all points run at once.")
        try:
            training = events.share(point.training for point in points)
        except ValueError as cause:
            raise BadInput(
                "Expected shared subsamples to be sampler=poisson's, with one noise multiplier throughout a run: no "
                "others have a price."
            ) from cause
        return (PlanEvent(training=training, validation=events.compose(scored) if scored else None),)
    if not spares and turns is None:
        return tuple(points)
    runs = points if turns is None else _by_turns(points, turns)
    return (*runs, *[_costliest(points)] * spares) if spares else tuple(runs)


def _by_turns(points: Sequence[PlanEvent], turns: Sequence[Sequence[int]]) -> Iterator[PlanEvent]:
    """What each turn costs; turns in a row with the same choice share one event."""
    for choice, alike in itertools.groupby(turns):
        costliest = _costliest([points[place] for place in choice])
        yield from (costliest for _ in alike)


def _costliest(points: Sequence[PlanEvent]) -> PlanEvent:
    """At least as costly as any of these."""
    scored = [point.validation for point in points if point.validation is not None]
    return PlanEvent(
        training=events.worst(point.training for point in points), validation=events.worst(scored) if scored else None
    )
