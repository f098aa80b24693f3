"""Updates against hand-written recurrences and torch's own; schedules at every step of a run."""

from __future__ import annotations

import doctest

import pytest
import torch

from dpsweep.trainers.declarations import lr_schedules as schedules
from dpsweep.trainers.declarations.lr_schedules import Constant, Cosine, Cyclic, PowerDecay, StepDecay, WarmUp
from dpsweep.trainers.methods.updates import (
    Adam,
    AdamWithoutNoiseBias,
    AdamWithoutSecondMoments,
    Directions,
    Momentum,
    Sgd,
)

NOISE = torch.ones(1, dtype=torch.float64)


def test_sgd_steps_along_the_gradient() -> None:
    gradient = torch.tensor([1.0, -2.0])
    state, direction = Sgd().direction(Sgd().start(gradient), gradient, NOISE)
    assert state is None
    assert torch.equal(direction, gradient)


def test_adam_is_adam() -> None:
    weights = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    oracle = torch.optim.Adam([weights], lr=1.0, betas=(0.8, 0.95), eps=1e-3)
    adam = Adam(beta1=0.8, beta2=0.95, eps=1e-3)
    ours = torch.zeros(5, dtype=torch.float64)
    state = adam.start(ours)
    generator = torch.Generator().manual_seed(1)
    for _ in range(7):
        gradient = torch.randn(5, dtype=torch.float64, generator=generator)
        weights.grad = gradient.clone()
        oracle.step()
        state, direction = adam.direction(state, gradient, NOISE)
        ours = ours - direction
        assert torch.allclose(ours, weights.detach(), rtol=1e-12, atol=0)


def test_adam_takes_its_first_step_by_the_sign_of_the_gradient() -> None:
    gradient = torch.tensor([3.0, -0.2], dtype=torch.float64)
    adam = Adam(beta1=0.9, beta2=0.999, eps=1e-12)
    _, direction = adam.direction(adam.start(gradient), gradient, NOISE)
    assert direction.tolist() == pytest.approx([1.0, -1.0], rel=1e-9)


def test_a_velocity_by_hand() -> None:
    """0.5 * (0.5 * (1, -2) + (0, 4)) + (1, 1), by hand."""
    momentum, directions = Momentum(momentum=0.5), []
    state = momentum.start(torch.zeros(2, dtype=torch.float64))
    for gradient in ([1.0, -2.0], [0.0, 4.0], [1.0, 1.0]):
        state, direction = momentum.direction(state, torch.tensor(gradient, dtype=torch.float64), NOISE)
        directions.append(direction.tolist())
    assert directions == [[1.0, -2.0], [0.5, 3.0], [1.25, 2.5]]


def test_a_velocitys_noise_has_the_variance_of_the_paper() -> None:
    """Yu et al. 2019: (1 - c^2t) / (1 - c^2) times a gradient's after t steps."""
    momentum, noise = Momentum(momentum=0.6), torch.Generator().manual_seed(2)
    state = momentum.start(torch.zeros(200_000, dtype=torch.float64))
    for steps in range(1, 6):
        gradient = torch.randn(200_000, dtype=torch.float64, generator=noise)
        state, direction = momentum.direction(state, gradient, NOISE)
        assert float(direction.var()) == pytest.approx((1 - 0.6 ** (2 * steps)) / (1 - 0.36), rel=0.02)


def test_adam_without_second_moments_by_hand() -> None:
    """beta1 = 1/2 and noise of 3/4 + 1/4: the corrected means are 1, then (1/4 + 3/2) / (3/4), then 3/2 / (7/8)."""
    wosm, directions = AdamWithoutSecondMoments(beta1=0.5, eps=0.25), []
    state = wosm.start(torch.zeros(1, dtype=torch.float64))
    for gradient in (1.0, 3.0, 1.25):
        state, direction = wosm.direction(state, torch.tensor([gradient], dtype=torch.float64), 0.75 * NOISE)
        directions.append(float(direction))
    assert directions == pytest.approx([1.0, 7 / 3, 12 / 7], rel=1e-12)


def test_adam_on_noise_alone_converges_to_the_step_without_second_moments() -> None:
    """Theorem 7.1 in Adam's own numbers: each step over the corrected mean comes to 1 / (sigma C / L + eps)."""
    sigma, clip_norm, lot, eps, beta = 2.0, 0.5, 250, 1e-3, 0.9
    adam, wosm = Adam(beta1=beta, beta2=0.999, eps=eps), AdamWithoutSecondMoments(beta1=beta, eps=eps)
    noise, std = torch.Generator().manual_seed(3), sigma * clip_norm / lot
    one = two = torch.zeros(400, dtype=torch.float64)
    moments, moment, early, late = adam.start(one), wosm.start(two), 0.0, 0.0
    for step in range(3000):
        gradient = std * torch.randn(400, dtype=torch.float64, generator=noise)
        moments, one = adam.direction(moments, gradient, std * NOISE)
        moment, two = wosm.direction(moment, gradient, std * NOISE)
        mean = moments.first / (1 - beta ** (step + 1))
        late = float((one / mean).mean())
        early = early or late
    assert late == pytest.approx(1 / (2.0 * 0.5 / 250 + 1e-3), rel=0.01)
    assert float((one - two).norm() / two.norm()) < 0.03, "some 2000 squares are averaged"
    assert early > 1.2 * late, "it has to get there: its first step is one by signs"


def test_adam_without_the_noises_bias_takes_steps_by_the_signal_alone() -> None:
    """A constant signal of .3 and noise of std 1: the mean square less the noise's is near .09, and not 1.09."""
    update, noise = AdamWithoutNoiseBias(beta1=0.9, beta2=0.9999, least=1e-6), torch.Generator().manual_seed(3)
    state = update.start(torch.zeros(400, dtype=torch.float64))
    for _ in range(20_000):
        gradient = 0.3 + torch.randn(400, dtype=torch.float64, generator=noise)
        state, direction = update.direction(state, gradient, NOISE)
    assert float(direction.mean()) == pytest.approx(1.0, rel=0.05)


def test_runs_side_by_side_have_each_its_own_noise() -> None:
    """Four runs of two rules, whose noise differs between all."""
    rules = [AdamWithoutSecondMoments(beta1=0.0, eps=1.0), Sgd()] * 2
    directions = Directions(rules, [rule.start(torch.zeros(2)) for rule in rules])
    found = directions(torch.full((4, 2), 12.0), torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    assert found[:, 0].tolist() == found[:, 1].tolist() == [6.0, 12.0, 3.0, 12.0]


def test_a_direction_never_changes_its_arguments() -> None:
    for update in (Sgd(), Adam(), AdamWithoutNoiseBias(), Momentum(), AdamWithoutSecondMoments()):
        gradient = torch.ones(3)
        state = update.start(gradient)
        first = update.direction(state, gradient, NOISE.float())[1].clone()
        assert torch.equal(gradient, torch.ones(3))
        assert torch.equal(update.direction(state, gradient, NOISE.float())[1], first)


def test_constant_is_constant() -> None:
    assert {Constant().factor(step, 10) for step in range(10)} == {1.0}


@pytest.mark.parametrize("steps", [1, 2, 4, 7, 100, 5000])
def test_step_decay_falls_at_its_milestones(steps) -> None:
    schedule = StepDecay(milestones=[0.5, 0.75], factors=[0.1, 0.01])
    factors = [schedule.factor(step, steps) for step in range(steps)]
    assert factors == sorted(factors, reverse=True)
    if steps >= 4:
        assert set(factors) == {1.0, 0.1, 0.01}
    if steps % 4 == 0:
        assert factors.count(1.0) == steps // 2
        assert factors.count(0.1) == factors.count(0.01) == steps // 4


each_length = pytest.mark.parametrize("steps", [1, 2, 3, 7, 100, 999, 5000])


@each_length
@pytest.mark.parametrize(
    "schedule",
    [
        Constant(),
        StepDecay(milestones=[0.5], factors=[0.1]),
        Cosine(final=0.01),
        Cyclic(lowest=0.02, highest=1.0, cycles=3),
        PowerDecay(exponent=1.0),
        WarmUp(share=0.1, then=Cosine(final=0.01)),
        WarmUp(share=0.999, then=WarmUp(share=0.5, then=Constant())),
    ],
    ids=str,
)
def test_every_schedule_is_positive_and_at_most_all_at_every_step_of_every_run(schedule, steps) -> None:
    assert all(0 < schedule.factor(step, steps) <= 1 for step in range(steps))


def test_cosine_by_hand() -> None:
    """cos of 0, 60, 90 and 120 degrees."""
    schedule = Cosine(final=0.2)
    assert [schedule.factor(step, 6) for step in (0, 2, 3, 4)] == pytest.approx([1.0, 0.8, 0.6, 0.4])
    factors = [schedule.factor(step, 1000) for step in range(1000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == pytest.approx(0.2, abs=1e-5)


def test_cyclic_is_the_papers_between_its_least_and_its_most() -> None:
    """Yang et al. 2022: min-lr 0.02, max-lr 1.0."""
    schedule = Cyclic(lowest=0.02, highest=1.0, cycles=1)
    factors = [schedule.factor(step, 5000) for step in range(5000)]
    assert (min(factors), max(factors)) == (0.02, 1.0)
    assert factors.index(1.0) == 2500
    assert factors[1250] == factors[3750] == pytest.approx(0.51)


@pytest.mark.parametrize("cycles", [1, 2, 5])
def test_cycles_repeat(cycles) -> None:
    schedule = Cyclic(lowest=0.1, highest=2.0, cycles=cycles)
    factors = [schedule.factor(step, 100) for step in range(100)]
    assert factors.count(2.0) == factors.count(0.1) == cycles
    assert factors == factors[: 100 // cycles] * cycles


def test_warm_up_rises_to_where_the_other_schedule_starts_and_leaves_it_the_rest() -> None:
    after = Cosine(final=0.2)
    schedule = WarmUp(share=0.4, then=after)
    factors = [schedule.factor(step, 10) for step in range(10)]
    assert factors[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert factors[4:] == [after.factor(step, 6) for step in range(6)]
    low = WarmUp(share=0.5, then=Cyclic(lowest=0.5, highest=1.0, cycles=1))
    assert [low.factor(step, 8) for step in (0, 3, 4, 6)] == pytest.approx([0.1, 0.4, 0.5, 1.0])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Cosine(final=0), "Expected 0 < final=0 < 1."),
        (lambda: Cosine(final="low"), "Expected final='low' to be a number."),
        (lambda: Cyclic(lowest=0, highest=1, cycles=1), "Expected lowest=0 > 0."),
        (lambda: Cyclic(lowest=1.0, highest=0.5, cycles=1), "Expected lowest=1.0 < highest=0.5."),
        (lambda: Cyclic(lowest=0.5, highest=1, cycles=0), "Expected cycles=0 >= 1."),
        (lambda: Cyclic(lowest=0.5, highest=1, cycles=1.5), "Expected cycles=1.5 to be an integer."),
        (lambda: WarmUp(share=1, then=Constant()), "Expected 0 < share=1 < 1."),
        (lambda: WarmUp(share=0.1, then="cosine"), "Expected then='cosine' to be a schedule."),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(make, sentence) -> None:
    with pytest.raises((TypeError, ValueError)) as refusal:
        make()
    assert str(refusal.value) == sentence


def test_examples_hold() -> None:
    assert doctest.testmod(schedules) == (0, 6)
