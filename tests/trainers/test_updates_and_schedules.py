"""Updates against hand-written recurrences and torch's own; schedules at every step of a run."""

from __future__ import annotations

import pytest
import torch

from trainers.schedules import Constant, StepDecay
from trainers.updates import Adam, AdamWithoutSecondMoments, Directions, Momentum, Sgd

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


def test_runs_side_by_side_have_each_its_own_noise() -> None:
    """Four runs of two rules, whose noise differs between all."""
    rules = [AdamWithoutSecondMoments(beta1=0.0, eps=1.0), Sgd()] * 2
    directions = Directions(rules, [rule.start(torch.zeros(2)) for rule in rules])
    found = directions(torch.full((4, 2), 12.0), torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    assert found[:, 0].tolist() == found[:, 1].tolist() == [6.0, 12.0, 3.0, 12.0]


def test_a_direction_never_changes_its_arguments() -> None:
    for update in (Sgd(), Adam(), Momentum(), AdamWithoutSecondMoments()):
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
