"""A search on a secret random part, then a final run: the rest costs no more than all, by brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent, are_same_events, compose, gaussian, poisson_sampled
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.plan import Use, part_of_records
from dpsweep.accounting.selection.rules import Composition, NoisyMax, PrivateSelection, Subsampled, TrainOn

CASES = 4000
EPSILONS = np.linspace(0.0, 3.0, 13)
POINTS = [
    PlanEvent(
        training=gaussian(noise_multiplier=9.0),
        validation=gaussian(noise_multiplier=30.0),
        final=PlanEvent(training=gaussian(noise_multiplier=3.0), validation=gaussian(noise_multiplier=10.0)),
    )
] * 3


def laws(rng: np.random.Generator, *shape: int) -> NDArray[np.float64]:
    """Laws over the last axis, some of them with outcomes of small probability."""
    raw = rng.random(shape) ** rng.choice([1.0, 6.0])
    return raw / raw.sum(axis=-1, keepdims=True)


def hockey_sticks(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(one - np.exp(EPSILONS)[:, None, None] * other, 0).sum(axis=(1, 2))


def test_a_final_run_on_the_rest_costs_no_more_than_one_on_all() -> None:
    """The outcome of the search and of the final run, whose law depends on that outcome, on neighbouring data sets."""
    rng, larger, beyond_each = np.random.default_rng(5), 0, 0
    for _ in range(CASES):
        rate, outcomes, ends = rng.uniform(0.02, 0.9), rng.integers(2, 5), rng.integers(2, 5)
        with_it, without = laws(rng, 2, outcomes)
        final_with, final_without = laws(rng, 2, outcomes, ends)
        sampled = rate * with_it + (1 - rate) * without
        neighbour = without[:, None] * final_without
        on_all = sampled[:, None] * final_with
        on_rest = rate * with_it[:, None] * final_without + (1 - rate) * without[:, None] * final_with
        for rest, whole in (
            (hockey_sticks(on_rest, neighbour), hockey_sticks(on_all, neighbour)),
            (hockey_sticks(neighbour, on_rest), hockey_sticks(neighbour, on_all)),
        ):
            assert (rest <= whole + 1e-12).all()
            larger += bool((whole > rest + 1e-3).any())
        alone = hockey_sticks(sampled[:, None], without[:, None])
        last = hockey_sticks((without[:, None] * final_with), neighbour)
        beyond_each += bool((hockey_sticks(on_rest, neighbour) > np.maximum(alone, last) + 1e-9).any())
    assert larger > CASES / 2, "the two differ"
    assert beyond_each > CASES / 10, "and the larger of the two parts alone would be too little"


@pytest.mark.parametrize("train_on", list(TrainOn))
def test_it_charges_the_sampled_search_and_the_declared_final_run(train_on: TrainOn) -> None:
    rule = Subsampled(rate=0.1, rule=PrivateSelection(), train_on=train_on)
    searched = [replace(point, final=None) for point in POINTS]
    event, inner = rule.event(POINTS), PrivateSelection().event(searched)
    final = POINTS[0].final
    assert final is not None
    assert are_same_events(event.training, compose([poisson_sampled(inner.training, sample_rate=0.1), final.training]))
    assert inner.validation is not None
    assert final.validation is not None
    assert event.validation is not None
    assert are_same_events(
        event.validation, compose([poisson_sampled(inner.validation, sample_rate=0.1), final.validation])
    )
    assert event.final is None, "the same records are in both"
    assert rule.runs(event, POINTS)
    assert not rule.runs(Subsampled(rate=0.05, rule=PrivateSelection()).event(POINTS), POINTS)
    for other in (PrivateSelection(), Composition()):
        assert not rule.runs(other.event(searched), POINTS)
    price = Pld().epsilon(event.training, 1e-5, Adjacency.ADD_OR_REMOVE_ONE)
    assert price > Pld().epsilon(final.training, 1e-5, Adjacency.ADD_OR_REMOVE_ONE)


def test_parts_are_those_of_the_final_runs_records() -> None:
    rest, whole = (Subsampled(rate=0.2, rule=PrivateSelection(), train_on=train_on) for train_on in ("rest", "all"))
    assert (
        part_of_records(rest.final_run, Use.SEARCH)
        == part_of_records(whole.final_run, Use.SEARCH)
        == {"share": 0.2, "use": "search", "secret": True}
    )
    assert part_of_records(rest.final_run, Use.FINAL) == {"share": 0.2, "use": "final", "secret": True}
    assert part_of_records(whole.final_run, Use.FINAL) is None


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="0 < rate=1 < 1"):
        Subsampled(rate=1, rule=PrivateSelection())
    with pytest.raises(ValueError, match="carry=-1"):
        Subsampled(rate=0.1, rule=PrivateSelection(), carry=-1)
    with pytest.raises(BadInput, match="has a final run already"):
        Subsampled(rate=0.1, rule=Subsampled(rate=0.1, rule=PrivateSelection()))
    with pytest.raises(BadInput, match="to hide its losers"):
        Subsampled(rate=0.1, rule=Composition())
    with pytest.raises(BadInput, match="pays for no score that is shown"):
        Subsampled(rate=0.1, rule=NoisyMax(noise_scale=1.0))
