"""The events that a selection rule is priced over: one for every run that is charged."""

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
    """The priced events: one per point, or one per proposed run in `turns`, and one per spare attempt.

    A turn is the list of points (by index) that the proposed run may have. With `shared`, all points are trained on the
    same subsamples and are one mechanism.

    *Guarantee*: a turn costs at least as much as each of its points, and a spare attempt at least as much as each point
    of the plan, so it may be used for any of them, even if earlier scores decide. *Source*: adaptive composition of a
    number of mechanisms fixed beforehand, each within one Renyi curve (Mironov 2017, Proposition 1) or one privacy
    profile (Zhu, Dong, Wang 2022, Theorem 10) for all earlier outputs.
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
        final = events.costliest(points).final
        return (PlanEvent(training=training, validation=events.compose(scored) if scored else None, final=final),)
    if not spares and turns is None:
        return tuple(points)
    runs = points if turns is None else _by_turns(points, turns)
    return (*runs, *[events.costliest(points)] * spares) if spares else tuple(runs)


def _by_turns(points: Sequence[PlanEvent], turns: Sequence[Sequence[int]]) -> Iterator[PlanEvent]:
    """The event of each turn; consecutive turns with the same choice of points share one event."""
    for choice, alike in itertools.groupby(turns):
        costliest = events.costliest([points[place] for place in choice])
        yield from (costliest for _ in alike)
