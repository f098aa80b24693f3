"""Rules price the populations that they name, and refuse points with any other, in the library and in a stored plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dpsweep.accounting import price
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent, are_same_events, compose, gaussian, no_access, to_json
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.records.plan import Block, Plan, Trial, priced_events_of_runs
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    DisjointParts,
    Final,
    MedianOfRepeats,
    NoisyMax,
    PoissonSelection,
    PrivateSelection,
    Public,
    RandomStopping,
    Subsampled,
    Threshold,
)

RULES: list[SelectionRule] = [
    Composition(),
    MedianOfRepeats(),
    Public(sweep="abc"),
    NoisyMax(noise_scale=2.0),
    BestOfGrid(),
    PrivateSelection(),
    PoissonSelection(),
    RandomStopping(delta=1e-5),
    Threshold(threshold=0.9, delta=1e-5),
    DisjointParts(),
    Final(rule=Composition()),
    Final(rule=PrivateSelection()),
    Subsampled(rule=PrivateSelection(), rate=0.1),
]
SMALL, BIG = gaussian(noise_multiplier=20.0), gaussian(noise_multiplier=0.05)
BARE = PlanEvent(training=SMALL)
POPULATIONS: dict[str, Callable[[PlanEvent], PlanEvent]] = {
    "validation": lambda one: replace(one, validation=BIG),
    "final training": lambda one: replace(one, final=PlanEvent(training=BIG)),
    "final validation": lambda one: replace(one, final=PlanEvent(training=SMALL, validation=BIG)),
    "sealed": lambda one: replace(one, sealed=BIG),
    "sealed without weight": lambda one: replace(one, sealed=no_access()),
    "final without weight": lambda one: replace(one, final=PlanEvent(training=no_access())),
    "final sealed": lambda one: replace(one, final=PlanEvent(training=SMALL, sealed=BIG)),
    "final of a final run": lambda one: replace(one, final=PlanEvent(training=SMALL, final=PlanEvent(training=BIG))),
}


def _priced(rule: SelectionRule) -> set[str]:
    return {"training", "validation"} | ({"final training", "final validation"} if rule.final_run else set())


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_population_is_priced_or_refused(rule: SelectionRule, name: str) -> None:
    """What is accepted costs at least as much as its dearest part; a noisy maximum alone stands for the counts."""
    point = POPULATIONS[name](BARE)
    if not point.events_by_population.keys() <= _priced(rule):
        with pytest.raises(UnsupportedEvent, match="which it does not price"):
            rule.event([BARE, point])
        return
    if "without weight" in name or (isinstance(rule, NoisyMax) and name == "validation"):
        rule.event([point, point])
        return
    assert price(rule.search(point, points=2), 1e-5).epsilon >= price(BIG, 1e-5).epsilon


def _plan_of_points(points: list[PlanEvent]) -> Plan:
    trials = [
        Trial(method="dpsgd", axes={"lr": lr}, config={"trainer": {"lr": lr}}, event=event)
        for lr, event in enumerate(points)
    ]
    return Plan(
        account="digits",
        budget=Guarantee(epsilon=10.0, delta=1e-4),
        delta=1e-5,
        rule={"_target_": "dpsweep.accounting.selection.rules.Composition"},
        blocks=tuple(Block(trials=(one,)) for one in trials),
        event=Composition().event([BARE] * len(points)),
    )


@pytest.mark.parametrize("name", ["sealed", "sealed without weight", "final training", "final of a final run"])
def test_a_stored_plan_with_a_population_that_its_rule_does_not_price_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.json"
    _plan_of_points([BARE, POPULATIONS[name](BARE)]).write(path)
    with pytest.raises(UnsupportedEvent, match="which it does not price"):
        Plan.read(path)
    plan = _plan_of_points([BARE, BARE])
    plan.write(path)
    assert Plan.read(path) == plan


@pytest.mark.parametrize("scored", [None, gaussian(noise_multiplier=5.0)])
def test_a_record_that_the_search_and_the_final_run_read_pays_for_both(scored: object) -> None:
    """The final run's score too, where no run of the search was scored on private records."""
    own = None if scored is None else gaussian(noise_multiplier=5.0)
    final = PlanEvent(training=gaussian(noise_multiplier=2.0), validation=gaussian(noise_multiplier=1.0))
    point = PlanEvent(training=SMALL, validation=own, final=final)
    event = Final(rule=Composition()).search(point, points=3)
    assert are_same_events(event.training, compose([SMALL] * 3 + [final.training]))
    assert event.validation is not None
    assert final.validation is not None
    assert are_same_events(event.validation, compose([*([own] * 3 if own else []), final.validation]))
    sampled = Subsampled(rule=PrivateSelection(), rate=0.1).search(point, points=3)
    assert sampled.validation is not None
    least = price(final.validation, 1e-5).epsilon
    assert price(sampled.validation, 1e-5).epsilon >= least * (1 - 1e-9)


def test_spare_attempts_and_turns_keep_every_population() -> None:
    points = [PlanEvent(training=SMALL), PlanEvent(training=SMALL, sealed=BIG)]
    for ways in ({"spares": 1}, {"turns": [(0, 1)]}):
        every = priced_events_of_runs(points, **ways)  # type: ignore[arg-type]
        with pytest.raises(UnsupportedEvent, match="sealed"):
            Composition().event(every)


def test_the_form_of_a_refused_point_is_a_form_that_can_be_read() -> None:
    """So the refusal is the rule's, not that of a reader of forms."""
    for change in POPULATIONS.values():
        parts = change(BARE).events_by_population
        assert PlanEvent.from_events_by_population(parts).is_same_as(change(BARE))
        assert json.dumps({name: to_json(part) for name, part in parts.items()})
