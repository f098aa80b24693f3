"""Inside a job: what ran is held against what was charged, and every end is a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from accounting.errors import BadInput, ContractBroken
from accounting.events import DpEvent, PlanEvent, compose, flatten, from_json, poisson_gaussian, repeat, same
from accounting.plan import Trial
from accounting.receipt import Receipt
from accounting.result import Status, TrialResult
from sweeper.compose import PricedPlan
from sweeper.trial import Machine, check_realised, make_model, run_trial

STEP = poisson_gaussian(sample_rate=0.1, noise_multiplier=1.0)
MACHINE = Machine(device="cpu", threads=1, chunk=None, data=None)


@pytest.mark.parametrize(
    "realised",
    [
        repeat(STEP, 9),
        repeat(STEP, 11),
        repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=0.99), 10),
        repeat(poisson_gaussian(sample_rate=0.11, noise_multiplier=1.0), 10),
        compose([repeat(STEP, 9), poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0)]),
    ],
    ids=repr,
)
def test_anything_else_than_what_was_charged_is_refused(realised: DpEvent) -> None:
    with pytest.raises(ContractBroken, match="Something else ran"):
        check_realised(realised, repeat(STEP, 10), prefix=False)


def test_what_was_charged_is_accepted_and_a_diverged_run_may_stop_early() -> None:
    check_realised(compose([STEP] * 10), repeat(STEP, 10), prefix=False)
    check_realised(repeat(STEP, 3), repeat(STEP, 10), prefix=True)
    with pytest.raises(ContractBroken):
        check_realised(repeat(STEP, 11), repeat(STEP, 10), prefix=True)


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"threads": "all"}, {"chunk": -1}, {"chunk": 2.5}], ids=str)
def test_a_machine_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="to be null or an integer"):
        replace(MACHINE, **wrong)  # type: ignore[arg-type]


@pytest.fixture
def trial(compose_priced: Callable[[Sequence[str]], PricedPlan]) -> Trial:
    line = ["dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpnsgd", "steps=3"]
    return compose_priced([*line, "trainer.lr=2", "trainer.regularizer=1"]).plan.trials[0]


def run(trial: Trial, place: Path) -> TrialResult:
    place.mkdir(parents=True)
    run_trial(trial, Receipt(account="digits", plan="p", trial=trial.id, attempt=1, charge="c"), place, MACHINE)
    result = TrialResult.read(place)
    assert result is not None
    return result


def test_a_trial_that_runs_more_than_its_charge_fails_and_keeps_its_record(trial: Trial, tmp_path: Path) -> None:
    """A charge for one step less than the configuration runs: the result says what ran and shows no score."""
    ((step, steps),) = flatten(trial.event.training)
    undercharged = replace(trial, event=PlanEvent(training=repeat(step, steps - 1), validation=trial.event.validation))
    result = run(undercharged, tmp_path / "trial")
    assert result.status is Status.FAILED
    assert result.score is None
    assert result.error is not None
    assert "ContractBroken" in result.error
    assert result.event is not None
    assert same(from_json(dict(result.event)), trial.event.training), "what really ran stands in the record"


def test_a_trial_uses_nobody_elses_generator_and_leaves_them_alone(trial: Trial, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    first = run(trial, tmp_path / "a")
    torch.manual_seed(12345)
    state = torch.get_rng_state()
    second = run(trial, tmp_path / "b")
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(before, state)
    assert first.status is second.status is Status.FINISHED
    assert first.score != second.score, "the noise is drawn afresh, whatever the global seed"


def test_initial_weights_depend_on_the_trial_alone(trial: Trial) -> None:
    def weights(identity: str) -> torch.Tensor:
        return torch.cat([parameter.flatten() for parameter in make_model(trial.config, identity).parameters()])

    assert torch.equal(weights(trial.id), weights(trial.id))
    assert not torch.equal(weights(trial.id), weights("another"))
