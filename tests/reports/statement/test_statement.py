"""The statement stands on the records: each kind of trouble moves its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dpsweep.accounting.events.build import output_perturbation
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.statement import charge_facts
from dpsweep.accounting.notation import accountants_upper_bounds_text, epsilon_text_rounded_up
from dpsweep.accounting.selection.rules import PrivateSelection
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.facts import page_facts_by_name, read_bill
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.statement.statement import statement_lines_of_private_data
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line, contradicted_lines
from dpsweep.reports.statement.what_ran import floating_point_line

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (0.5, 1)}}
SweepOf = Callable[..., Any]


def lines_of(made: Any, audience: Audience = Audience.CURATOR) -> Mapping[str, Line]:
    sweep = read_sweep(made.folder, made.ledger)
    bill = read_bill(sweep)
    context = Context(sweep=sweep, bill=bill, facts=page_facts_by_name(sweep, bill), audience=audience)
    return {line.topic: line for line in statement_lines_of_private_data(context)}


def test_an_honest_sweep_violates_nothing(sweep_of: SweepOf) -> None:
    lines = lines_of(sweep_of(AXES))
    assert contradicted_lines(tuple(lines.values())) == ()
    for topic in ("Claim", "Charges", "Sampling and noise", "Accountants", "Scores", "Randomness"):
        assert lines[topic].level is EvidenceLevel.CHECKED


def test_the_claim_and_both_accountants_are_the_ledgers_numbers(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    lines = lines_of(made)
    (charge,) = made.ledger.statement(made.plan.account).charges
    assert f"({epsilon_text_rounded_up(charge.body['epsilon'])}, 1e-5)-differential privacy" in lines["Claim"].text
    by_part = charge.body["bounds_by_part"]
    assert by_part.keys() == {"training", "validation"}
    for part, name in (("training", "training"), ("validation", "scored")):
        assert (
            f"n the {name} records: {accountants_upper_bounds_text(by_part[part], charge.body['parts'][part])}."
            in lines["Accountants"].text
        )


def test_the_claim_has_the_delta_of_all_charges(sweep_of: SweepOf) -> None:
    assert ", 2e-5)-differential privacy" in lines_of(sweep_of(AXES, repeats=(1,)))["Claim"].text


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"lower": 1.25, "lower_by": "PLD", "attack": 0.5},
            "No accountant can claim less than 1.250: PLD proves this lower bound. An explicit attack on this search "
            "(an aligned canary among records that contribute nothing, the worst possible score) proves 0.500.",
        ),
        (
            {"lower": 0.5, "lower_by": "an attack", "attack": 0.5},
            "No accountant can claim less than 0.500: an explicit attack on this search (an aligned canary among "
            "records that contribute nothing, the worst possible score) proves this lower bound.",
        ),
        ({"lower": 0.0, "attack": 0.0}, None),
    ],
)
def test_the_largest_lower_bound_is_told_with_its_proof(
    sweep_of: SweepOf, facts: Mapping[str, Any], words: str | None
) -> None:
    made = sweep_of(AXES)
    sweep = read_sweep(made.folder, made.ledger)
    bill = read_bill(sweep)
    (charge,) = bill.charges
    bill = replace(bill, charges=(replace(charge, record={**charge.record, **facts}),))
    context = Context(sweep=sweep, bill=bill, facts=page_facts_by_name(sweep, bill), audience=Audience.CURATOR)
    (line,) = (line for line in statement_lines_of_private_data(context) if line.topic == "Accountants")
    told = [sentence for sentence in line.evidence if "can claim less than" in sentence]
    assert told == ([] if words is None else [words])


def test_a_population_with_one_accountant_alone_is_said_to_be_unchecked(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    sweep = read_sweep(made.folder, made.ledger)
    bill = read_bill(sweep)
    (charge,) = bill.charges
    scored = {"RDP": charge_facts(charge).bounds_by_part["validation"]["RDP"]}
    by_part = {**charge_facts(charge).bounds_by_part, "validation": scored}
    unlike = replace(charge, record={**charge.record, "bounds_by_part": by_part})
    bill = replace(bill, charges=(unlike,))
    context = Context(sweep=sweep, bill=bill, facts=page_facts_by_name(sweep, bill), audience=Audience.CURATOR)
    (line,) = (line for line in statement_lines_of_private_data(context) if line.topic == "Accountants")
    assert line.level is EvidenceLevel.ASSUMED
    assert f"On the scored records: {epsilon_text_rounded_up(scored['RDP'])} (RDP, " in line.text
    assert "No second accountant is compared with the price of the scored records." in line.text


def test_private_scores_name_their_noise_and_public_ones_their_declaration(sweep_of: SweepOf) -> None:
    assert "standard deviation 9," in lines_of(sweep_of(AXES))["Scores"].text


def test_the_noise_of_scores_is_that_of_the_priced_events(sweep_of: SweepOf) -> None:
    assert "standard deviation 7.5," in lines_of(sweep_of(AXES, counts_std=7.5))["Scores"].text


def test_public_scores_are_assumed_public(sweep_of: SweepOf) -> None:
    line = lines_of(sweep_of(AXES, private=False))["Scores"]
    assert "declared public" in line.text
    assert line.level is EvidenceLevel.ASSUMED


def test_reproducible_noise_is_no_private_release(sweep_of: SweepOf) -> None:
    line = lines_of(sweep_of(AXES, randomness="reproducible"))["Randomness"]
    assert line.level is EvidenceLevel.VIOLATED
    assert line.text.startswith("Declared reproducible: NOT a private release")


def test_output_perturbation_is_told_as_what_it_is(sweep_of: SweepOf) -> None:
    event = output_perturbation(noise_std=3.0, sensitivity=0.75, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    line = lines_of(sweep_of(AXES, training=event))["Sampling and noise"]
    assert "minimises a strongly convex loss over all training records" in line.text
    assert "is 4 times the largest distance that one record can move" in line.text


@pytest.mark.parametrize("noise", ["absolute", "multiplier"])
def test_a_clip_norm_that_falls_is_told_by_its_schedule(sweep_of: SweepOf, noise: str) -> None:
    """Four to 4 (1 + 79 / 80), and not eighty numbers."""
    linear = {
        "_target_": "dpsweep.trainers.declarations.clip_schedules.Linear",
        "least": 0.5,
        "over": None,
        "noise": noise,
    }
    line = lines_of(sweep_of(AXES, bounds=linear))["Sampling and noise"]
    assert line.level is EvidenceLevel.CHECKED
    risen = "4 rising to 7.95" if noise == "absolute" else "4"
    assert (
        f"multiplier {risen}, relative to a clip norm by schedule (linear: least 0.5, noise {noise}); 80" in line.text
    )


def test_a_run_of_more_steps_than_charged_is_a_violation(sweep_of: SweepOf) -> None:
    line = lines_of(sweep_of(AXES, realised_steps=lambda place: 81 if place == 2 else 80))["Sampling and noise"]
    assert line.level is EvidenceLevel.VIOLATED


def test_a_finished_run_of_fewer_steps_than_charged_is_a_violation_too(sweep_of: SweepOf) -> None:
    line = lines_of(sweep_of(AXES, realised_steps=lambda place: 79 if place == 2 else 80))["Sampling and noise"]
    assert line.level is EvidenceLevel.VIOLATED


def test_a_contract_broken_in_the_job_is_a_violation(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates={1: "failed"}, error="ContractBroken: The run differs from its charge.")
    assert lines_of(made)["Sampling and noise"].level is EvidenceLevel.VIOLATED


def test_a_failed_run_that_cannot_say_what_it_did_is_an_assumption(sweep_of: SweepOf) -> None:
    assert lines_of(sweep_of(AXES, fates={1: "failed"}))["Sampling and noise"].level is EvidenceLevel.ASSUMED


def test_a_result_that_nobody_started_is_a_violation(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates={3: "not run"})
    finished, never = (made.folder / "trials" / made.plan.trials[place].id for place in (0, 3))
    never.mkdir(parents=True)
    (never / "result.json").write_text((finished / "result.json").read_text())
    line = lines_of(made)["Charges"]
    assert line.level is EvidenceLevel.VIOLATED
    assert "1 point ran without a charge" in line.text


@pytest.mark.parametrize("word", ["architecture", "preprocessing", "other uses", "timing"])
def test_what_is_not_covered_is_said(sweep_of: SweepOf, word: str) -> None:
    assert word in lines_of(sweep_of(AXES))["Not covered"].text


def test_outsiders_learn_no_counts_of_what_went_wrong(sweep_of: SweepOf) -> None:
    quiet = lines_of(sweep_of(AXES, fates={1: "failed", 2: "killed"}), Audience.PUBLIC)
    assert quiet["Sampling and noise"].evidence == ()
    assert quiet["Charges"].evidence == ()
    assert quiet["Sampling and noise"].level is EvidenceLevel.CHECKED


def test_the_claim_includes_the_rounding_of_noise(sweep_of: SweepOf) -> None:
    """The numbers are those that each run declares and is charged for."""
    made = sweep_of(AXES)
    sweep = read_sweep(made.folder, made.ledger)
    blocks = [
        replace(block, trials=tuple(replace(one, config={**one.config, "weights": 7850}) for one in block.trials))
        for block in sweep.plan.blocks
    ]
    sweep = replace(sweep, plan=replace(sweep.plan, blocks=tuple(blocks)))
    line = floating_point_line(_context(sweep, Audience.CURATOR))
    assert line.text.startswith("The claim includes the rounding of noise")
    steps = sweep.plan.trials[0].config["steps"]
    assert f"7850 numbers in each of at most {steps} steps" in line.text.replace(",", "")


def test_where_the_noise_stands_is_told_of_the_unit_that_is_protected(sweep_of: SweepOf) -> None:
    """A patient may be several records, and the place of one other patient changes."""
    made = sweep_of(AXES)
    _with_parameters(made, 7850)
    sweep = read_sweep(made.folder, made.ledger)
    budget = replace(sweep.plan.budget, unit="patient")
    sweep = replace(sweep, plan=replace(sweep.plan, budget=budget))
    line = floating_point_line(_context(sweep, Audience.CURATOR))
    assert "When a patient is added, as many held-out records as it has change their place" in line.evidence[-1]
    assert "changes its place in the batch" not in line.evidence[-1], "a new record fills an empty slot of the batch"


@pytest.mark.parametrize(("delta", "told"), [(1e-5, False), (1e-16, True)])
def test_what_large_sums_and_tiny_deltas_assume_is_on_the_page(sweep_of: SweepOf, delta: float, told: bool) -> None:
    made = sweep_of(AXES)
    _with_parameters(made, 7850)
    context = _context(read_sweep(made.folder, made.ledger), Audience.CURATOR)
    context = replace(context, bill=replace(context.bill, delta=delta))
    assumed = floating_point_line(context).evidence[-1]
    assert "Sums of more than 46,340 records a step may round by more than the margin" in assumed
    assert ("a claim at a delta below that takes them, and the secret number of tries, as exact" in assumed) is told


def test_outsiders_learn_the_size_of_no_try_but_the_winner(sweep_of: SweepOf) -> None:
    """The largest model among secret tries would tell which points were drawn."""
    made = sweep_of(AXES)
    _with_parameters(made, 7850)
    sweep = read_sweep(made.folder, made.ledger)
    rows = tuple(
        replace(run, result=replace(run.result, parameters=9000)) if run.trial.id != sweep.winner_id else run
        for run in sweep.runs.rows
    )
    tries = replace(sweep, runs=replace(sweep.runs, rows=rows), rule=PrivateSelection())
    for audience in (Audience.CURATOR, Audience.PUBLIC):
        line = floating_point_line(_context(tries, audience))
        assert "9000" not in " ".join([line.text, *line.evidence]), "the numbers are those of the plan"
        assert "for each run" in line.text


def _with_parameters(made: Any, numbers: int) -> None:
    for path in made.folder.glob("trials/*/result.json"):
        path.write_text(path.read_text().replace('"parameters": 650', f'"parameters": {numbers}'))


def _context(sweep: Any, audience: Audience) -> Context:
    bill = read_bill(sweep)
    return Context(sweep=sweep, bill=bill, facts={}, audience=audience)
