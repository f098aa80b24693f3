"""ADADP: two iterations by hand, what they cost, runs side by side, and runs that it is not made for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import adadp, are_same_events
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant, Cosine
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named_methods import Adadp
from dpsweep.trainers.methods.updates import Directions, HalfSteps
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.gradient_sums import StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run
from tests.trainers.single_run import train

NOISE = torch.ones(1, dtype=torch.float64)
GRADIENTS = ([1.0, -4.0], [3.0, 2.0], [0.5, 1.0], [0.25, 1.5])
RUN = Run(
    trainer=Adadp(lr=0.5, clip_norm=0.3, tolerance=0.01),
    sampler=Poisson(batch_size=20),
    schedule=Constant(),
    noise_multiplier=0.7,
    steps=8,
    train_records=60,
)


def path_of(rule: HalfSteps, weights: Tensor, gradients: Sequence[Sequence[float]]) -> tuple[list[Tensor], list[float]]:
    """Where each half step ends, and the learning rate after it."""
    state, places, rates = rule.start(weights), [], []
    for gradient in gradients:
        state, direction = rule.direction(state, weights.new_tensor(gradient), NOISE)
        weights = weights - rule.lr * direction
        places.append(weights)
        rates.append(rule.lr * float(state.factor))
    return places, rates


def test_two_iterations_by_hand() -> None:
    """From (0, 3) at a learning rate of 1/2.

    The first full step is to (-1/2, 5), the two halves to (-1, 7/2): an error of |(1/2, 3/2 / 5)|, about 0.58, for
    which the learning rate falls by the most, to 0.45. From there the full step is to (-1.225, 3.05) and the halves to
    (-1.16875, 2.9375): an error of |(0.05625 / 1.225, 0.1125 / 3.05)|, about 0.059, for which it rises by the root of
    0.06 over that.
    """
    rule = HalfSteps(lr=0.5, tolerance=0.06)
    places, rates = path_of(rule, torch.tensor([0.0, 3.0], dtype=torch.float64), GRADIENTS)
    assert [place.tolist() for place in places] == [
        pytest.approx(expected, rel=1e-12)
        for expected in ([-0.25, 4.0], [-1.0, 3.5], [-1.1125, 3.275], [-1.16875, 2.9375])
    ]
    error = math.hypot(0.05625 / 1.225, 0.1125 / 3.05)
    assert rates == pytest.approx([0.5, 0.45, 0.45, 0.45 * math.sqrt(0.06 / error)], rel=1e-12)
    assert 0.45 < rates[-1] < 0.45 * 1.1


@pytest.mark.parametrize(("second", "change"), [([1.0, 1.0], 1.1), ([1e30, 0.0], 0.9), ([1.0, 1.01], 1.1)])
def test_one_iteration_changes_the_learning_rate_by_a_tenth_at_most(second: list[float], change: float) -> None:
    _, rates = path_of(HalfSteps(lr=0.5), torch.zeros(2, dtype=torch.float64), ([1.0, 1.0], second))
    assert rates == pytest.approx([0.5, 0.5 * change], rel=1e-12)


def test_every_row_adapts_by_itself() -> None:
    """Two rows of one rule and one of another, each as if alone; the weights are moved in place, as the loop does."""
    rules = [HalfSteps(lr=0.5, tolerance=0.06), HalfSteps(lr=0.25), HalfSteps(lr=0.5, tolerance=0.06)]
    weights = torch.tensor([[0.0, 3.0], [1.0, 1.0], [2.0, -9.0]], dtype=torch.float64)
    alone = [path_of(rule, row.clone(), GRADIENTS)[0][-1] for rule, row in zip(rules, weights, strict=True)]
    directions = Directions(rules, [rule.start(row) for rule, row in zip(rules, weights, strict=True)])
    rates = weights.new_tensor([rule.lr for rule in rules])[:, None]
    for gradient in GRADIENTS:
        weights -= rates * directions(weights.new_tensor([gradient] * 3), NOISE.expand(3, 1))
    assert torch.allclose(weights, torch.stack(alone), rtol=1e-12, atol=0)
    assert len({float(state.factor) for state in directions.states()}) == 3


def test_it_costs_two_gradients_an_iteration() -> None:
    records = some_records()
    outcome = train(RUN, model(0), Opacus(), records, reproducible_streams(1, "a"), device="cpu")
    declared = adadp(sample_rate=20 / 60, noise_multiplier=0.7, iterations=4)
    assert are_same_events(outcome.event, declared)
    assert are_same_events(RUN.event, declared)


def test_stacked_is_one_after_the_other() -> None:
    records = some_records()
    runs = [replace(RUN, trainer=Adadp(lr=lr, clip_norm=0.3, tolerance=0.01)) for lr in (0.1, 0.5, 2.0)]
    stacked, alone = [model(seed) for seed in range(3)], [model(seed) for seed in range(3)]
    streams = [[reproducible_streams(1, str(seed)) for seed in range(3)] for _ in range(2)]
    sums = StackedSums(stack=Stack.from_model(stacked[0]), records=records, device="cpu")
    train_together(runs, stacked, sums, records, streams[0], device="cpu")
    for run, one, own in zip(runs, alone, streams[1], strict=True):
        train(run, one, Opacus(), records, own, device="cpu")
    for one, other in zip(stacked, alone, strict=True):
        assert torch.allclose(flat(one), flat(other), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["steps=9"], "Expected steps=9 to be even: an iteration of ADADP is two steps."),
        (["lr_schedule=cosine"], "to be Constant(): ADADP adapts its learning rate itself."),
        (["trainer.tolerance=0"], "Expected tolerance=0 > 0."),
    ],
)
def test_what_it_cannot_do_is_refused_before_any_charge(
    compose_priced: Callable[[Sequence[str]], PricedPlan], overrides: list[str], sentence: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        compose_priced(["dataset=digits", "trainer=adadp", "accountant=rdp", "accountant.witnesses=[]", *overrides])
    assert sentence in str(refusal.value)


def test_a_run_of_half_an_iteration_is_none() -> None:
    with pytest.raises(ValueError, match="steps=7 to be even"):
        replace(RUN, steps=7)
    with pytest.raises(ValueError, match="to be Constant"):
        replace(RUN, schedule=Cosine(final=0.1))


def some_records() -> Records:
    generator = torch.Generator().manual_seed(5)
    return Records(
        features=torch.randn(60, 6, generator=generator), labels=torch.randint(3, (60,), generator=generator)
    )


def model(seed: int) -> torch.nn.Module:
    return build_model_with_seeded_weights(lambda: logistic((6,), 3), seed)


def flat(one: torch.nn.Module) -> Tensor:
    return torch.nn.utils.parameters_to_vector(one.parameters()).detach()
