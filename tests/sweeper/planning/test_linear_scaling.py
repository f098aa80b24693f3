"""The linear scaling rule: phases that are each charged at their own price, and a last run where their line points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest

from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import BadInput, BudgetRefused
from dpsweep.accounting.events import build as events
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import Phase, Plan, Proposed
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.proposed_points import (
    read_proposed_point_indices,
    trial_of_point_at_turn,
    trials_of_proposals,
)
from dpsweep.sweeper.job.locks import training_lock
from dpsweep.sweeper.planning.optuna_samplers import Seen, propose_next_point_index
from dpsweep.sweeper.searches.interface import RunQueue
from tests.sweeper.search_programs import Compose, Place, result_of

RATES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
GRID = (
    "dataset=digits",
    "accountant=rdp",
    "accountant.witnesses=[]",
    "trainer=dpsgd",
    "trainer.clip_norm=1",
    f"trainer.lr={','.join(map(str, RATES))}",
)
LINE = (*GRID, "search=linear_scaling", "search.trials=7", "search.noise_multipliers=[40,20]", "privacy.epsilon=4")


@pytest.fixture
def plan(compose_priced: Compose) -> Plan:
    return compose_priced(LINE).plan


def points_at(plan: Plan, noise: float) -> dict[float, int]:
    """The places of the points with this noise, by their learning rates."""
    return {
        float(trial.axes["trainer.lr"] or 0): place
        for place, trial in enumerate(plan.trials)
        if trial.config["privacy"]["noise_multiplier"] == noise
    }


def last_noise(plan: Plan) -> float:
    assert plan.proposed is not None
    noise = plan.proposed.phases[-1].noise_multiplier
    assert noise is not None
    return noise


def scored(plan: Plan, best: dict[float, float | None]) -> list[Seen]:
    """Three runs at each noise, the best of them at this learning rate; None: all of them failed."""
    seen = []
    for noise, rate in best.items():
        places = points_at(plan, noise)
        rates = [rate, *(other for other in RATES if other != rate)][:3] if rate else RATES[:3]
        scores = (0.9, 0.5, 0.6) if rate else (None, None, None)
        seen += [Seen(point=places[one], ended=True, score=score) for one, score in zip(rates, scores, strict=True)]
    return seen


def rate_after(plan: Plan, best: dict[float, float | None]) -> float:
    return float(plan.trials[propose_next_point_index(plan, scored(plan, best))].axes["trainer.lr"] or 0)


def test_every_phase_is_paid_for_at_its_own_price_and_all_of_them_meet_the_target(compose_priced: Compose) -> None:
    priced = compose_priced(LINE)
    plan = priced.plan
    assert plan.proposed is not None
    last = last_noise(plan)
    assert plan.proposed.phases == (
        Phase(trials=3, noise_multiplier=40.0),
        Phase(trials=3, noise_multiplier=20.0),
        Phase(trials=1, noise_multiplier=last),
    )
    first, second, final = (plan.trials[points_at(plan, noise)[0.1]].event for noise in (40.0, 20.0, last))
    spent = [events.repeat(first.training, 3), events.repeat(second.training, 3), final.training]
    assert events.are_same_events(plan.event.training, events.compose(spent))
    assert 0.99 * 4 < priced.quote.epsilon <= 4
    anywhere = replace(plan, proposed=replace(plan.proposed, phases=()))
    event = priced.rule.event(anywhere.priced_events)
    assert priced.panel.epsilon(event, plan.delta, plan.adjacency) > 1.5 * priced.quote.epsilon


def test_a_stored_plan_keeps_its_phases_and_they_are_part_of_what_it_is(plan: Plan) -> None:
    assert Plan.from_json(plan.to_json()).id == plan.id
    assert Plan.from_json(plan.to_json()).allowed_point_indices_per_turn == plan.allowed_point_indices_per_turn
    assert plan.proposed is not None
    assert replace(plan, proposed=replace(plan.proposed, phases=())).id != plan.id


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ({40.0: 0.2, 20.0: 0.4}, 0.8),  # about linear in epsilon, which is about inverse to the noise
        ({40.0: 0.4, 20.0: 0.4}, 0.4),
        ({40.0: 0.8, 20.0: 0.1}, 0.1),  # the line falls below 0
        ({40.0: None, 20.0: 0.8}, 1.6),  # through the origin
        ({40.0: 0.2, 20.0: None}, 0.8),
    ],
)
def test_the_last_run_is_at_the_rate_that_the_line_says(
    compose_priced: Compose, best: dict[float, float | None], expected: float
) -> None:
    plan = compose_priced([*LINE, "privacy.epsilon=4.5", "steps=200"]).plan
    assert 10 < last_noise(plan) < 12
    assert rate_after(plan, best) == expected


def test_without_any_score_the_last_run_is_at_some_rate_of_its_phase(plan: Plan) -> None:
    chosen = propose_next_point_index(plan, scored(plan, {40.0: None, 20.0: None}))
    assert chosen in points_at(plan, last_noise(plan)).values()


@pytest.mark.randomized(
    draws="8 choices of 3 of 7 rates, for two phases", bound="all are the same", false_alarm=(7 * 6 * 5) ** -14.0
)
def test_cheap_runs_try_different_rates_and_the_seed_says_which(compose_priced: Compose) -> None:
    def chosen(arguments: Sequence[str]) -> tuple[list[int], ...]:
        plan = compose_priced([*LINE, *arguments]).plan
        seen: list[Seen] = []
        for _ in range(6):
            seen.append(Seen(point=propose_next_point_index(plan, seen), ended=True, score=0.5))
        points = [run.point for run in seen]
        assert set(points[:3]) <= set(points_at(plan, 40.0).values())
        assert set(points[3:]) <= set(points_at(plan, 20.0).values())
        assert len(set(points)) == 6
        return points[:3], points[3:]

    assert chosen(["seed=3"]) == chosen(["seed=3"])
    assert len({str(chosen([])) for _ in range(8)}) > 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["search.trials=8"], r"search\.trials=8 to be 1 more than a multiple of the 2"),
        (["search.trials=1"], r"search\.trials=1 to be 1 more"),
        (["search.noise_multipliers=[2,3]"], "No noise brings this plan to epsilon=4"),
        (
            ["search.noise_multipliers=[8,6]", "search.trials=3"],
            r"noise_multipliers to be above \d+\.\d+, which the last run has",
        ),
        (["search.noise_multipliers=[40,40]"], "to be a list of different numbers"),
        (["search.noise_multipliers=[]"], "to be a list of different numbers"),
        (["search.noise_multipliers=4"], "to be a list of different numbers"),
        (["search.noise_multipliers=[-4,5]"], "to be numbers > 0"),
        (["search.noise_multipliers=[a]"], "to be numbers > 0"),
        (["trainer.clip_norm=1,2"], r"over trainer\.lr alone with LinearScaling, got trainer\.clip_norm, trainer\.lr"),
        (["trainer=dpsgd,dpadam", "trainer.lr=1,2"], r"of one method over trainer\.lr"),
        (["privacy.noise_multiplier=3"], r"privacy\.noise_multiplier to be left out"),
        (["tuning=private_selection"], "tuning=composition"),
        (["search.noise_multipliers=[40]", "solve=steps"], r"privacy\.noise_multiplier to be given: solve=steps"),
    ],
)
def test_what_cannot_be_scaled_is_one_sentence(compose_priced: Compose, arguments: list[str], reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refusal:
        compose_priced([*LINE, *arguments])
    assert "\n" not in str(refusal.value)


def test_a_point_of_another_phase_is_no_run(plan: Plan) -> None:
    dear = points_at(plan, last_noise(plan))[0.1]
    with pytest.raises(BadInput, match="turn 0 of plan"):
        trials_of_proposals(plan, [dear])
    with pytest.raises(BadInput, match=r"search\.trials=4 to be those of its phases"):
        Proposed(trials=4, sampler={}, phases=(Phase(trials=3, noise_multiplier=1.0),))


def start(here: Place) -> RunQueue:
    return here.begin()


def test_a_phase_begins_when_the_one_before_it_is_over_and_all_of_it_is_paid(place: Callable[..., Place]) -> None:
    here = place(LINE)
    work = start(here)
    lengths = []
    while runs := work.more(20):
        lengths.append(len(runs))
        receipts = work.log.start_and_issue_receipts(runs)
        for receipt, trial in zip(receipts, runs, strict=True):
            folder = here.folder.trial_folder(trial.id)
            receipt.write(folder)
            Receipt.claim(folder, here.folder.private_store, plan=here.plan.id, trial=trial.id)
        with ExitStack() as at_work:
            for trial in runs:
                at_work.enter_context(training_lock(here.folder.trial_folder(trial.id)))
            for receipt, trial in zip(receipts, runs, strict=True):
                assert work.more(20) == (), "not before the last one has ended"
                result_of(trial, 0.5, receipt.attempt).write(here.folder.trial_folder(trial.id))
        work.log.record_ended_attempts()
    assert lengths == [3, 3, 1]
    assert "7 of 7 runs were proposed; 7 of 7 results" in verify_sweep_folder_and_describe(
        here.folder.root, here.ledger
    )
    assert here.ledger.statement("digits").attempts_of_plan(here.plan.id).spares == 0
    stored = read_proposed_point_indices(here.plan, here.folder.proposals_path)
    assert all(point in choice for point, choice in zip(stored, here.plan.allowed_point_indices_per_turn, strict=True))


def test_a_dear_run_at_a_cheap_turn_is_found_out(place: Callable[..., Place]) -> None:
    here = place(LINE)
    start(here)
    dear = points_at(here.plan, last_noise(here.plan))[0.1]
    with pytest.raises(BadInput, match="to be among what plan"):
        here.search.block_with_id(trial_of_point_at_turn(here.plan, 0, dear).id)
    write_json(here.folder.proposals_path, {"plan": here.plan.id, "proposals": [dear]})
    with pytest.raises(BadInput, match="turn 0 of plan"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_a_refused_search_says_what_its_last_run_could_have(place: Callable[..., Place]) -> None:
    here = place([*LINE, "budget.epsilon=3"])
    with pytest.raises(
        BudgetRefused, match=r"the whole search with a noise multiplier of at least [\d.]+ for its last"
    ):
        start(here)
