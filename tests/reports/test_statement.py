"""The statement stands on the records: each kind of trouble moves its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from accounting.events import output_perturbation
from accounting.guarantee import Adjacency
from accounting.quantities import epsilon_up
from reports.audience import Audience
from reports.bill import read_bill
from reports.facts import read_facts
from reports.lines import Context, Line, Standing, violations
from reports.statement import write_statement
from reports.table import read

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (0.5, 1)}}
SweepOf = Callable[..., Any]


def lines_of(made: Any, audience: Audience = Audience.CURATOR) -> Mapping[str, Line]:
    sweep = read(made.folder, made.ledger)
    bill = read_bill(sweep)
    context = Context(sweep=sweep, bill=bill, facts=read_facts(sweep, bill), audience=audience)
    return {line.topic: line for line in write_statement(context)}


def test_an_honest_sweep_violates_nothing(sweep_of: SweepOf) -> None:
    lines = lines_of(sweep_of(AXES))
    assert violations(tuple(lines.values())) == ()
    for topic in ("Claim", "Charges", "Sampling and noise", "Accountants", "Scores", "Randomness"):
        assert lines[topic].standing is Standing.CHECKED


def test_the_claim_and_both_accountants_are_the_ledgers_numbers(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    lines = lines_of(made)
    (charge,) = made.ledger.statement(made.plan.account).charges
    assert f"({epsilon_up(charge.body['epsilon'])}, 1e-5)-differential privacy" in lines["Claim"].text
    for name, bound in charge.body["bounds"].items():
        assert f"{name} {epsilon_up(bound)}" in lines["Accountants"].text


def test_private_scores_name_their_noise_and_public_ones_their_declaration(sweep_of: SweepOf) -> None:
    assert "standard deviation 9," in lines_of(sweep_of(AXES))["Scores"].text


def test_public_scores_are_assumed_public(sweep_of: SweepOf) -> None:
    line = lines_of(sweep_of(AXES, private=False))["Scores"]
    assert "declared public" in line.text
    assert line.standing is Standing.ASSUMED


def test_reproducible_noise_is_no_private_release(sweep_of: SweepOf) -> None:
    line = lines_of(sweep_of(AXES, randomness="reproducible"))["Randomness"]
    assert line.standing is Standing.VIOLATED
    assert line.text.startswith("Declared reproducible: NOT a private release")


def test_output_perturbation_is_told_as_what_it_is(sweep_of: SweepOf) -> None:
    event = output_perturbation(noise_std=3.0, sensitivity=0.75, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    line = lines_of(sweep_of(AXES, training=event))["Sampling and noise"]
    assert "minimises a strongly convex loss over all training records" in line.text
    assert "of 4 times what one record can move it" in line.text


@pytest.mark.parametrize("noise", ["absolute", "multiplier"])
def test_a_clip_norm_that_falls_is_told_by_its_schedule(sweep_of: SweepOf, noise: str) -> None:
    """Four to 4 (1 + 79 / 80), and not eighty numbers."""
    linear = {"_target_": "trainers.bound_schedules.Linear", "least": 0.5, "over": None, "noise": noise}
    line = lines_of(sweep_of(AXES, bounds=linear))["Sampling and noise"]
    assert line.standing is Standing.CHECKED
    risen = "4 rising to 7.95" if noise == "absolute" else "4"
    assert (
        f"multiplier {risen}, relative to a clip norm by schedule (linear: least 0.5, noise {noise}); 80" in line.text
    )


def test_a_run_of_more_steps_than_charged_is_a_violation(sweep_of: SweepOf) -> None:
    line = lines_of(sweep_of(AXES, realised_steps=lambda place: 81 if place == 2 else 80))["Sampling and noise"]
    assert line.standing is Standing.VIOLATED


def test_a_finished_run_of_fewer_steps_than_charged_is_a_violation_too(sweep_of: SweepOf) -> None:
    line = lines_of(sweep_of(AXES, realised_steps=lambda place: 79 if place == 2 else 80))["Sampling and noise"]
    assert line.standing is Standing.VIOLATED


def test_a_contract_broken_in_the_job_is_a_violation(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates={1: "failed"}, error="ContractBroken: Something else ran than was charged.")
    assert lines_of(made)["Sampling and noise"].standing is Standing.VIOLATED


def test_a_failed_run_that_cannot_say_what_it_did_is_an_assumption(sweep_of: SweepOf) -> None:
    assert lines_of(sweep_of(AXES, fates={1: "failed"}))["Sampling and noise"].standing is Standing.ASSUMED


def test_a_result_that_nobody_started_is_a_violation(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates={3: "not run"})
    finished, never = (made.folder / "trials" / made.plan.trials[place].id for place in (0, 3))
    never.mkdir(parents=True)
    (never / "result.json").write_text((finished / "result.json").read_text())
    line = lines_of(made)["Charges"]
    assert line.standing is Standing.VIOLATED
    assert "1 point ran without a charge" in line.text


@pytest.mark.parametrize("word", ["architecture", "preprocessing", "other looks", "floating-point", "timing"])
def test_what_is_not_covered_is_said(sweep_of: SweepOf, word: str) -> None:
    assert word in lines_of(sweep_of(AXES))["Not covered"].text


def test_outsiders_learn_no_counts_of_what_went_wrong(sweep_of: SweepOf) -> None:
    quiet = lines_of(sweep_of(AXES, fates={1: "failed", 2: "killed"}), Audience.PUBLIC)
    assert quiet["Sampling and noise"].evidence == ()
    assert quiet["Charges"].evidence == ()
    assert quiet["Sampling and noise"].standing is Standing.CHECKED
