"""Proposed runs: what they cost, what they are, and that what was proposed stays so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.records.plan import Block, Plan, Proposed, Trial, priced_events_of_runs
from dpsweep.accounting.searches.interface import search_class_for_plan
from dpsweep.accounting.searches.proposed_points import (
    ProposedPoints,
    read_proposed_point_indices,
    store_proposals_and_return_trials,
    trials_of_proposals,
)
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.selection.rules import Composition, rule_from_config

SAMPLER = {"_target_": "optuna.samplers.RandomSampler"}
RULE = {"kind": "composition"}


def points(noises: Sequence[float] = (2.0, 2.0, 3.0)) -> tuple[Trial, ...]:
    return tuple(
        Trial(
            method="dpsgd",
            axes={"trainer.lr": float(place)},
            config={"lr": float(place)},
            event=PlanEvent(
                training=events.repeat(events.poisson_gaussian(sample_rate=0.1, noise_multiplier=noise), 10),
                validation=events.gaussian(noise_multiplier=9.0),
            ),
        )
        for place, noise in enumerate(noises)
    )


def plan_of(trials: int, spares: int = 0) -> Plan:
    own = points()
    return Plan(
        account="digits",
        budget=Guarantee(epsilon=9.0, delta=1e-4),
        delta=1e-5,
        rule=RULE,
        blocks=tuple(Block(trials=(trial,)) for trial in own),
        event=Composition().event(
            priced_events_of_runs([trial.event for trial in own], spares=spares, turns=(range(len(own)),) * trials)
        ),
        proposed=Proposed(trials=trials, sampler=SAMPLER),
        spares=spares,
    )


def test_every_turn_costs_as_much_as_the_dearest_point() -> None:
    turns = plan_of(5)
    worst = events.worst_of_events(point.event.training for point in points())
    assert same(turns.event, PlanEvent(training=events.repeat(worst, 5), validation=scores(5)))
    assert same(plan_of(5, spares=2).event, plan_of(7).event)
    assert plan_of(5, spares=2).id != plan_of(7).id
    alike = points((2.0, 2.0))
    priced = Composition().event(priced_events_of_runs([trial.event for trial in alike], turns=(range(2),) * 3))
    assert same(priced, PlanEvent(training=events.repeat(alike[0].event.training, 3), validation=scores(3)))


def scores(runs: int) -> events.DpEvent:
    return events.repeat(events.gaussian(noise_multiplier=9.0), runs)


def same(left: PlanEvent, right: PlanEvent) -> bool:
    return all(
        events.are_same_events(part, right.events_by_population[name])
        for name, part in left.events_by_population.items()
    )


OUTPUTS = np.linspace(-12.0, 15.0, 2701)
EPSILONS = np.linspace(-30.0, 30.0, 1201)


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One number with noise: its event, and its densities with and without a record."""

    event: events.DpEvent
    present: np.ndarray
    absent: np.ndarray

    def turned(self) -> Mechanism:
        return replace(self, present=self.absent, absent=self.present)

    def profile(self) -> np.ndarray:
        """delta at each of EPSILONS, negative ones too, by the definition."""
        excess = self.present - np.exp(EPSILONS)[:, None] * self.absent
        return np.trapezoid(np.maximum(excess, 0.0), OUTPUTS, axis=1)

    def then(self, second: np.ndarray, epsilon: float) -> float:
        """delta of this one followed by what has that profile, which may depend on this one's output."""
        losses = np.log(self.present) - np.log(self.absent)
        return float(np.trapezoid(self.present * np.interp(epsilon - losses, EPSILONS, second), OUTPUTS))


GAUSSIAN = Mechanism(
    event=events.gaussian(noise_multiplier=1.5),
    present=norm.pdf(OUTPUTS, loc=1 / 1.5),
    absent=norm.pdf(OUTPUTS),
)
SAMPLED = Mechanism(
    event=events.poisson_gaussian(sample_rate=0.1, noise_multiplier=0.4),
    present=0.1 * norm.pdf(OUTPUTS, loc=1 / 0.4) + 0.9 * norm.pdf(OUTPUTS),
    absent=norm.pdf(OUTPUTS),
)


@pytest.mark.parametrize("epsilon", [0.2, 0.8, 1.6, 2.4])
def test_what_an_adversary_chooses_second_by_what_came_first_stays_within_the_price(epsilon: float) -> None:
    """The exact delta of adaptive choice among mechanisms neither of which is the worse one, both ways round."""
    price = Composition().event(
        priced_events_of_runs([PlanEvent(training=one.event) for one in (GAUSSIAN, SAMPLED)], turns=(range(2),) * 2)
    )
    for turned in (False, True):
        both = [one.turned() if turned else one for one in (GAUSSIAN, SAMPLED)]
        worst = np.max([one.profile() for one in both], axis=0)
        exact = max(one.then(worst, epsilon) for one in both)
        fixed = max(one.then(other.profile(), epsilon) for one in both for other in both)
        assert exact >= fixed
        assert turned or exact > 1.001 * fixed, "adaptive choice gains something"
        for accountant in (Pld(), Rdp()):
            assert accountant.epsilon(price.training, exact, Adjacency.ADD_OR_REMOVE_ONE) >= epsilon - 1e-3


def test_a_point_that_is_proposed_twice_is_two_runs_and_neither_is_the_point() -> None:
    plan = plan_of(4)
    runs = trials_of_proposals(plan, [2, 2, 0])
    assert [run.axes["trainer.lr"] for run in runs] == [2.0, 2.0, 0.0]
    assert [run.event for run in runs] == [plan.trials[point].event for point in (2, 2, 0)]
    assert len({run.id for run in (*runs, *plan.trials)}) == 6
    assert trials_of_proposals(plan, [2, 2]) == runs[:2]


@pytest.mark.parametrize(
    ("proposals", "reason"), [([0, 1, 2, 0, 1], "at most 4"), ([3], "one of its points"), ([0, -1], "turn 1 of plan")]
)
def test_what_the_plan_does_not_pay_for_is_no_run(tmp_path: Path, proposals: list[int], reason: str) -> None:
    path = tmp_path / "proposals.json"
    with pytest.raises(BadInput, match=reason):
        trials_of_proposals(plan_of(4), proposals)
    with pytest.raises(BadInput, match=reason):
        store_proposals_and_return_trials(plan_of(4), path, proposals)
    assert not path.exists()


def test_what_was_proposed_stays_so(tmp_path: Path) -> None:
    plan, path = plan_of(4), tmp_path / "proposals.json"
    assert read_proposed_point_indices(plan, path) == ()
    first = store_proposals_and_return_trials(plan, path, [1, 0])
    assert store_proposals_and_return_trials(plan, path, [1, 0, 0])[:2] == first
    for other in ([1], [0, 0, 0], []):
        with pytest.raises(BadInput, match="what was proposed stays so"):
            store_proposals_and_return_trials(plan, path, other)
    assert read_proposed_point_indices(plan, path) == (1, 0, 0)
    with pytest.raises(BadInput, match="it is one of plan"):
        read_proposed_point_indices(plan_of(3), path)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"plan": "a", "proposals": 3}', '{"plan": "a", "proposals": ["b"]}']
)
def test_damaged_proposals_are_refused_and_never_guessed(tmp_path: Path, content: str) -> None:
    path = tmp_path / "proposals.json"
    path.write_text(content)
    with pytest.raises(BadInput, match="whole and readable"):
        read_proposed_point_indices(plan_of(3), path)


def test_a_plan_whose_points_are_proposed_survives_the_disk_and_is_another_one(tmp_path: Path) -> None:
    plan = plan_of(3)
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan
    form = json.loads((tmp_path / "plan.json").read_text())
    form["proposed"]["trials"] = 4
    (tmp_path / "plan.json").write_text(json.dumps(form))
    with pytest.raises(BadInput, match="edited"):
        Plan.read(tmp_path / "plan.json")
    other = replace(plan, proposed=Proposed(trials=3, sampler={**SAMPLER, "n_startup_trials": 1}))
    assert len({plan.id, other.id, replace(plan, proposed=None).id}) == 3


@pytest.mark.parametrize("trials", [0, -1, 2.0, True, None, "3"])
def test_the_number_of_runs_is_a_number(trials: object) -> None:
    with pytest.raises(BadInput, match=r"search\.trials="):
        Proposed(trials=trials, sampler=SAMPLER)  # type: ignore[arg-type]


def test_proposals_run_only_where_every_turn_is_paid_for_and_scores_may_be_read() -> None:
    plan = plan_of(4)
    assert search_class_for_plan(plan) is ProposedPoints
    for cheaper in (plan_of(3).event, replace(plan, proposed=None, blocks=plan.blocks[:1]).trials[0].event):
        with pytest.raises(BadInput, match="but not run"):
            search_class_for_plan(replace(plan, event=cheaper))
    hidden = {"kind": "private_selection", "mean": 3.0}
    searched = rule_from_config(hidden).event([trial.event for trial in plan.trials])
    assert search_class_for_plan(replace(plan, rule=hidden, event=searched, proposed=None)) is SecretDraw
    with pytest.raises(BadInput, match="proposals=adaptive to be fixed under private_selection"):
        search_class_for_plan(replace(plan, rule=hidden, event=searched))
