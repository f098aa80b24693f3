"""Disjoint parts: the price is the larger of search and final run, by brute force and by the accountants."""

from __future__ import annotations

import numpy as np
import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import (
    PlanEvent,
    are_same_events,
    compose,
    gaussian,
    poisson_gaussian,
    repeat,
    worst_of_events,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.records.plan import Use, part_of_records
from dpsweep.accounting.selection.rules import Composition, DisjointParts, Final, NoisyMax, PrivateSelection
from tests.accounting.finite import Pairs, cases

ADD = Adjacency.ADD_OR_REMOVE_ONE
DELTA = 1e-5
PANEL = Panel(claimants=(Pld(), Rdp()))


def point(noise: float, final: float) -> PlanEvent:
    return PlanEvent(
        training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=noise), 200),
        validation=gaussian(noise_multiplier=10 * noise),
        final=PlanEvent(
            training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=final), 200),
            validation=gaussian(noise_multiplier=10 * final),
        ),
    )


POINTS = [point(3.0, 1.2), point(3.0, 1.2), point(4.0, 1.5)]
BARE = [PlanEvent(training=one.training, validation=one.validation) for one in POINTS]


def test_the_search_pays_for_all_points_and_the_final_run_for_the_worst_one() -> None:
    event = DisjointParts().event(POINTS)
    assert list(event.events_by_population) == ["training", "validation", "final training", "final validation"]
    assert are_same_events(event.training, compose(one.training for one in POINTS))
    finals = [one.final for one in POINTS if one.final is not None]
    assert are_same_events(
        event.events_by_population["final training"], worst_of_events(one.training for one in finals)
    )
    assert are_same_events(
        event.events_by_population["final validation"],
        worst_of_events(one.validation for one in finals if one.validation is not None),
    )
    assert PlanEvent.from_events_by_population(event.events_by_population) == event


def test_the_price_is_the_larger_of_the_two_and_less_than_their_sum() -> None:
    event = DisjointParts().event(POINTS)
    assert event.final is not None
    whole = PANEL.epsilon(event, DELTA, ADD)
    search = PANEL.epsilon(PlanEvent(training=event.training, validation=event.validation), DELTA, ADD)
    final = PANEL.epsilon(event.final, DELTA, ADD)
    assert whole == pytest.approx(max(search, final))
    added = PANEL.epsilon(Final(rule=Composition()).event(POINTS), DELTA, ADD)
    assert added > whole * 1.1


@pytest.mark.parametrize("seed", range(20))
def test_a_final_run_on_other_records_costs_the_larger_of_both_on_finite_mechanisms(seed: int) -> None:
    """The joint outcome of a search and of the final run that it selects, by a sum over all outcomes."""
    mechanisms = cases(6, seed)
    search, finals = Pairs(mechanisms.p[:1], mechanisms.q[:1]), Pairs(mechanisms.p[1:6], mechanisms.q[1:6])
    epsilons = np.linspace(0, 4, 17)

    def joint(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return (first[0][:, None] * second).reshape(1, -1)

    changed_in_search = Pairs(joint(search.p, finals.p), joint(search.q, finals.p)).delta(epsilons)[0]
    changed_in_final = Pairs(joint(search.p, finals.p), joint(search.p, finals.q)).delta(epsilons)[0]
    larger = np.maximum(search.delta(epsilons)[0], finals.delta(epsilons).max(axis=0))
    assert (changed_in_search <= larger + 1e-12).all()
    assert (changed_in_final <= larger + 1e-12).all()
    assert changed_in_search == pytest.approx(search.delta(epsilons)[0], abs=1e-12)


def test_it_pays_for_its_own_execution_and_for_no_other() -> None:
    rule = DisjointParts()
    assert rule.runs(rule.event(POINTS), POINTS)
    assert not rule.runs(Composition().event(BARE), POINTS)
    assert not rule.runs(rule.event(POINTS[:2]), POINTS)
    assert not Composition().runs(rule.event(POINTS), BARE)
    assert not rule.runs(rule.event(BARE), BARE)


def test_a_final_run_on_the_same_records_follows_a_search_that_runs() -> None:
    final = Final(rule=Composition())
    assert final.runs(final.event(POINTS), POINTS)
    assert not final.runs(Composition().event(BARE), POINTS)
    hidden = Final(rule=PrivateSelection())
    assert hidden.runs(hidden.event(POINTS), POINTS)
    assert not hidden.runs(PrivateSelection().event(BARE), POINTS)
    for other in (final, Final(rule=PrivateSelection(eta=0.0))):
        assert not hidden.runs(other.event(POINTS), POINTS)
    with pytest.raises(BadInput, match="pays for no score that is shown"):
        Final(rule=NoisyMax(noise_scale=2.0))


def test_shares_and_exponents_are_checked() -> None:
    for share in (0, 1, 1.5, "half"):
        with pytest.raises((ValueError, TypeError), match="share"):
            DisjointParts(share=share)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="carry=-1"):
        DisjointParts(carry=-1)
    assert part_of_records(DisjointParts(share=0.4).final_run, Use.FINAL) == {"share": 0.4, "use": "final"}
