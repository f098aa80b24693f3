"""Bound schedules and steps that are open: from the command line to the plan's event, and what is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import (
    are_same_events,
    compose,
    mechanisms_with_counts,
    poisson_gaussian,
    with_rounded_noise,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.trial.spec import declaration_from_config
from tests.randomized import TRAINS

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]

LINE = ["dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpsgd", "trainer.lr=1"]
GIVEN = [*LINE, "privacy.noise_multiplier=20", "score.noise_std=60"]
REST = ["score.noise_std=60", "steps=100", "clip_schedule=linear", "trainer.clip_norm=1"]
SPENT = [*GIVEN, "steps=when_budget_spent", "privacy.epsilon=2", "trainer.clip_norm=1"]


def test_a_constant_clip_norm_is_no_part_of_a_trials_identity(compose_priced: Compose) -> None:
    usual, named = compose_priced(GIVEN).plan, compose_priced([*GIVEN, "clip_schedule=constant"]).plan
    assert usual.id == named.id
    assert all(trial.config["clip_schedule"] == {"kind": "constant_clip_norm"} for trial in usual.trials)
    step = poisson_gaussian(sample_rate=usual_rate(usual), noise_multiplier=20.0)
    assert mechanisms_with_counts(usual.trials[0].event.training) == ((step, usual.trials[0].config["steps"]),)


@pytest.mark.parametrize("score", [[], ["score.noise_std=60"]])
def test_a_trials_event_is_that_of_its_own_declaration(compose_priced: Compose, score: list[str]) -> None:
    """Planning takes it from the point's; the noise of the score may have been open then."""
    plan = compose_priced([*LINE, *score, "privacy.epsilon=2", "steps=5", "clip_schedule=linear"]).plan
    for trial in plan.trials:
        assert trial.event == declaration_from_config(trial.config).training_and_scoring_dp_event(
            trial.config["privacy"]["noise_multiplier"]
        )


def usual_rate(plan: Plan) -> float:
    ((step, _),) = mechanisms_with_counts(plan.trials[0].event.training)
    return float(step.sampling_probability)


def test_absolute_noise_is_a_step_of_its_own_each(compose_priced: Compose) -> None:
    usual = compose_priced([*GIVEN, "steps=5"])
    falling = compose_priced([*GIVEN, "steps=5", "clip_schedule=linear"])
    relative = compose_priced([*GIVEN, "steps=5", "clip_schedule=linear", "clip_schedule.noise=multiplier"])
    rate = usual_rate(usual.plan)
    steps = [poisson_gaussian(sample_rate=rate, noise_multiplier=20 * (1 + t / 5)) for t in range(5)]
    for trial in falling.plan.trials:
        assert are_same_events(trial.event.training, with_rounded_noise(compose(steps), trial.config["weights"]))
    assert relative.plan.trials[0].event == usual.plan.trials[0].event
    assert relative.plan.id != usual.plan.id
    assert falling.quote.epsilon < usual.quote.epsilon == relative.quote.epsilon
    assert Plan.from_json(json.loads(json.dumps(falling.plan.to_json()))) == falling.plan


def test_the_noise_is_calibrated_to_the_whole_schedule(compose_priced: Compose) -> None:
    noises = {}
    for name in ("constant", "linear"):
        plan = compose_priced([*LINE, "privacy.epsilon=2", "steps=10", f"clip_schedule={name}"])
        assert plan.quote.epsilon <= 2
        noises[name] = plan.plan.trials[0].config["privacy"]["noise_multiplier"]
    assert noises["linear"] < noises["constant"] < 2 * noises["linear"]


def test_the_noise_of_many_kinds_of_step_is_the_least_of_its_digits(compose_priced: Compose) -> None:
    line = [*LINE, "privacy.epsilon=2", "steps=100", "clip_schedule=linear", "trainer.clip_norm=1"]
    plan = compose_priced(line).plan
    noise = plan.trials[0].config["privacy"]["noise_multiplier"]
    less = float(f"{noise * (1 - 5e-4):.4g}")
    prices = [compose_priced([*GIVEN[:-2], f"privacy.noise_multiplier={one}", *REST]).quote for one in (noise, less)]
    assert prices[0].epsilon <= 2 < prices[1].epsilon


@pytest.mark.parametrize("rule", ["private_selection", "random_stopping"])
def test_rules_that_hide_losers_price_the_schedule(compose_priced: Compose, rule: str) -> None:
    line = [*GIVEN, "steps=5", f"tuning={rule}"]
    assert compose_priced([*line, "clip_schedule=linear"]).quote.epsilon < compose_priced(line).quote.epsilon


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (["trainer=dpnsgd", "clip_schedule=linear"], "Expected clip_schedule=constant with normalized gradients"),
        (
            ["trainer=auto_s", "clip_schedule=geometric", "clip_schedule.noise=multiplier"],
            "Expected clip_schedule=constant with normalized",
        ),
        (
            ["clip_schedule=linear", "checkpoint.every=2"],
            "Expected checkpoint.every=2 to be null with clip_schedule.noise=absolute",
        ),
        (["clip_schedule=linear", "clip_schedule.least=0"], "clip_schedule: Expected 1e-06 <= least=0 <= 1"),
        (
            ["clip_schedule=linear", "clip_schedule.noise=loud"],
            "clip_schedule: Expected noise=loud to be one of absolute, multiplier",
        ),
        (["clip_schedule=linear", "+clip_schedule.rate=1"], "Expected clip_schedule.rate to be one of"),
        (["steps=when_budget_spent"], "Expected privacy.noise_multiplier to be given"),
        (["steps=when_budget_spent,10"], "Expected steps=when_budget_spent to be the only value of steps"),
        (["steps=when_broke"], "Expected steps='when_broke' to be an integer"),
        (["steps=when_budget_spent", "solve=points"], "Expected solve=points to be left out"),
        (["steps=when_budget_spent", "privacy.noise_multiplier=9", "tuning=auto"], "Expected tuning=auto to be a rule"),
        (
            ["steps=when_budget_spent", "privacy.noise_multiplier=20", "privacy.epsilon=1", "score.noise_std=5"],
            "Expected privacy.epsilon=1 to pay for the scores as well as for the steps",
        ),
        (
            ["steps=when_budget_spent", "privacy.noise_multiplier=0.02", "privacy.epsilon=0.1"],
            "Not one step fits privacy.epsilon=0.1 at this noise; it costs",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_one_sentence(compose_priced: Compose, line: list[str], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        compose_priced([*LINE, "trainer.regularizer=1" if "regular" in line else "trainer.lr=1", *line])


def test_checkpoints_go_with_noise_that_shrinks_along(compose_priced: Compose) -> None:
    line = [*GIVEN, "steps=6", "clip_schedule=linear", "clip_schedule.noise=multiplier", "checkpoint.every=2"]
    assert compose_priced(line).quote.epsilon == compose_priced([*GIVEN, "steps=6", "checkpoint.every=2"]).quote.epsilon


@pytest.mark.parametrize(
    ("clip_schedule", "rule"),
    [
        ("constant", "private_selection"),
        ("linear", "composition"),
        pytest.param("linear", "private_selection", marks=pytest.mark.long),
    ],
)
def test_runs_go_on_until_the_budget_is_spent(compose_priced: Compose, clip_schedule: str, rule: str) -> None:
    """The schedule itself depends on the steps, so one more step is another schedule."""
    line = [*SPENT, f"clip_schedule={clip_schedule}", f"tuning={rule}"]
    spent = compose_priced(line)
    (steps,) = {trial.config["steps"] for trial in spent.plan.trials}
    typed = [word for word in line if not word.startswith(("steps=", "privacy.epsilon="))]
    assert compose_priced([*typed, f"steps={steps}"]).plan.id == spent.plan.id
    assert spent.quote.epsilon <= 2 < compose_priced([*typed, f"steps={steps + 1}"]).quote.epsilon


@pytest.mark.long
def test_every_run_spends_alike(compose_priced: Compose) -> None:
    """Steps with a falling bound are cheaper, and so there are more of them; and fewer where there is less noise."""
    spent = compose_priced(
        [*SPENT, "clip_schedule=constant,linear", "privacy.noise_multiplier=20,40", "score.noise_std=90"]
    )
    assert spent.quote.epsilon <= 2
    steps, alone = {}, {}
    for trial in spent.plan.trials:
        key = (trial.config["clip_schedule"]["kind"], trial.config["privacy"]["noise_multiplier"])
        steps[key] = trial.config["steps"]
        alone[key] = Rdp().epsilon(trial.event.training, 1e-5, Adjacency.ADD_OR_REMOVE_ONE)
    constant, falling = "constant_clip_norm", "linear_clip_norm"
    assert steps[constant, 20] < steps[falling, 20] < steps[falling, 40]
    assert steps[constant, 20] < steps[constant, 40]
    assert min(alone.values()) > 0.85 * max(alone.values()), "of few steps, one is much"


def test_fixed_size_batches_are_spent_too(compose_priced: Compose) -> None:
    line = [word for word in SPENT if word != "accountant=rdp"]
    fixed = compose_priced([*line, "accountant=pld", "sampler=fixed_size", "privacy.adjacency=replace_one"])
    assert 0 < fixed.quote.epsilon <= 2


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_a_sweep_with_a_falling_bound_runs_and_its_page_says_so(program: Program, tmp_path: Path) -> None:
    line = [
        "dataset=digits",
        "trainer=dpsgd",
        "trainer.lr=1",
        "trainer.clip_norm=0.5,1",
        "clip_schedule=linear",
        "steps=120",
    ]
    done = program(*line, "privacy.noise_multiplier=60", "score.noise_std=60")
    assert done.returncode == 0, done.stderr
    folder = next((tmp_path / "sweeps" / "digits").iterdir())
    results = [json.loads(path.read_text()) for path in folder.glob("trials/*/result.json")]
    assert [result["status"] for result in results] == ["finished"] * 2
    page = (folder / "curator" / "report.html").read_text()
    assert "noise of multiplier 60 rising to 119.5" in page
    assert "by schedule (linear: least 0.5, noise absolute)" in page
    assert "The runs match their charge." in page
