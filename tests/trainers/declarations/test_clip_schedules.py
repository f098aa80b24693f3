"""Bound schedules: the papers' formulas by hand, and runs whose noise, sensitivity and tally follow them."""

from __future__ import annotations

import doctest
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from dpsweep.accounting.events.build import are_same_events, compose, poisson_gaussian
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.taken_steps import took_declared_steps
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations import clip_schedules as bound_schedules
from dpsweep.trainers.declarations.batch_sampling import FixedSize, Poisson
from dpsweep.trainers.declarations.clip_schedules import (
    CONSTANT,
    Geometric,
    Linear,
    Noise,
    noise_multiplier_factor_at_step,
    step_counts_by_noise_factor,
)
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.methods.named_methods import DpAdamWosm, DpSgd
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Clip, Normalize
from dpsweep.trainers.randomness import reproducible_streams, standard_normal
from dpsweep.trainers.training.gradient_sums import EngineSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Progress, Run
from tests.trainers.loops import noisy_by_hand
from tests.trainers.single_run import train

RUN = Run(
    trainer=DpSgd(lr=0.5, clip_norm=0.4),
    sampler=Poisson(batch_size=10),
    schedule=Constant(),
    noise_multiplier=0.7,
    steps=5,
    train_records=40,
    bounds=Linear(least=0.5),
)
each_schedule = pytest.mark.parametrize(
    "bounds", [Linear(least=0.5), Linear(least=0.25, over=2), Geometric(rate=0.2, least=0.5)], ids=lambda one: str(one)
)


def test_the_examples_hold() -> None:
    assert doctest.testmod(bound_schedules).failed == 0


def test_linear_is_equation_6() -> None:
    """C_t = C / min(2, 1 + t / T), also past T."""
    found = [12 * Linear(least=0.5, over=100).factor(step, 250) for step in range(250)]
    assert found == pytest.approx([12 / min(2, 1 + step / 100) for step in range(250)], rel=1e-12)
    assert [Linear(least=0.5).factor(step, 100) for step in range(100)] == pytest.approx(
        [1 / (1 + step / 100) for step in range(100)], rel=1e-12
    )


def test_geometric_is_appendix_b() -> None:
    """A thousandth less at each step: half is passed at step 693, since .999^692 = .5004 and .999^693 = .4999."""
    bounds = Geometric(rate=0.001, least=0.5)
    assert bounds.factor(692, 2000) == pytest.approx(0.999**692) != 0.5
    assert {bounds.factor(step, 2000) for step in range(693, 2000)} == {0.5}
    assert sum(step_counts_by_noise_factor(bounds, 2000).values()) == 2000
    assert step_counts_by_noise_factor(bounds, 2000)[2.0] == 2000 - 693


@each_schedule
def test_noise_is_absolute_or_relative(bounds) -> None:
    for step in range(5):
        assert bounds.factor(step, 5) * noise_multiplier_factor_at_step(bounds, step, 5) == pytest.approx(
            1.0, rel=1e-15
        )
    assert step_counts_by_noise_factor(bounds, 5) == Counter(
        noise_multiplier_factor_at_step(bounds, step, 5) for step in range(5)
    )
    assert step_counts_by_noise_factor(replace(bounds, noise="multiplier"), 5) == {1.0: 5}
    assert step_counts_by_noise_factor(CONSTANT, 5) == {1.0: 5}


@pytest.mark.parametrize(
    ("made", "error", "why"),
    [
        (lambda: Linear(least=0), ValueError, "Expected 1e-06 <= least=0 <= 1."),
        (lambda: Linear(least=1.5), ValueError, "Expected 1e-06 <= least=1.5 <= 1."),
        (lambda: Linear(least=0.5, over=0), ValueError, "Expected over=0 >= 1."),
        (lambda: Linear(least=0.5, noise="loud"), ValueError, "Expected noise=loud to be one of absolute, multiplier."),
        (lambda: Geometric(rate=1.0, least=0.5), ValueError, "Expected 0 < rate=1.0 < 1."),
        (lambda: Geometric(rate=0.1, least="half"), TypeError, "Expected least='half' to be a number."),
    ],
)
def test_what_is_no_schedule_is_one_sentence(made, error, why) -> None:
    with pytest.raises(error) as refused:
        made()
    assert str(refused.value) == why


def test_a_clip_norm_shrinks_and_a_normalized_gradient_has_none() -> None:
    assert Clip(clip_norm=3.0).with_smaller_bound(0.5) == Clip(clip_norm=1.5)
    assert Normalize(regularizer=0.1).with_smaller_bound(1.0) == Normalize(regularizer=0.1)
    with pytest.raises(ValueError, match=r"^Expected clip_schedule=constant with normalized gradients"):
        Normalize(regularizer=0.1).with_smaller_bound(0.5)


def some_records(length: float = 1.0) -> Records:
    """Records whose gradients are as long as their only feature, at weight 0 and with one class right."""
    return Records(features=torch.full((40, 1), length), labels=torch.zeros(40, dtype=torch.int64))


def fresh_model() -> nn.Module:
    model = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(model.weight)
    return model


def path(run: Run, records: Records, streams) -> list[Tensor]:  # type: ignore[no-untyped-def]
    """The weights after each step."""
    model, found = fresh_model(), []
    train(run, model, Opacus(), records, streams, device="cpu", on_step=lambda _: found.append(model.weight.clone()))
    return [weights.detach().double().flatten() for weights in found]


@each_schedule
@pytest.mark.parametrize("noise", Noise)
def test_each_step_clips_and_is_noised_as_its_own_bound_says(bounds, noise) -> None:
    """By hand in float64: every gradient is far longer than any bound, so a sum is the batch times C_t in length."""
    run = replace(RUN, bounds=replace(bounds, noise=noise))
    found = path(run, some_records(1e6), reproducible_streams(3, "trial"))
    streams, weights = reproducible_streams(3, "trial"), torch.zeros(2, dtype=torch.float64)
    for step, after in enumerate(found):
        drawn, _ = run.sampler.draw_batch_indices(1, 40, 40, streams.subsampling)
        clip_norm = 0.4 * bounds.factor(step, 5)
        std = 0.7 * (0.4 if noise is Noise.ABSOLUTE else clip_norm)
        error = torch.softmax(weights * 1e6, dim=0) - torch.tensor([1.0, 0.0], dtype=torch.float64)
        length = float(error.norm()) * 1e6
        total = len(drawn) * error * 1e6 * min(1.0, LENGTH_SHARE * clip_norm / length if length else 1.0)
        weights = weights - 0.5 * noisy_by_hand(total, std, streams) / 10
        assert torch.allclose(after, weights, rtol=1e-4, atol=1e-6)
        weights = after


@pytest.mark.parametrize("noise", Noise)
def test_an_update_is_told_the_deviation_of_its_own_step(noise) -> None:
    """DP-AdamWOSM divides by it: no records, so that its first moment is noise alone."""
    trainer = DpAdamWosm(lr=1.0, clip_norm=0.4, beta1=0.0, eps=1e-12)
    run = replace(RUN, trainer=trainer, bounds=Linear(least=0.5, noise=noise))
    records, streams = some_records(), reproducible_streams(4, "trial")
    empty = Records(features=records.features[:0], labels=records.labels[:0])
    steps = torch.stack(path(run, empty, reproducible_streams(4, "trial"))).diff(dim=0)
    noises = [torch.from_numpy(standard_normal(streams.noise, 2)) for _ in range(5)][1:]
    cell = 2.0**-4
    assert torch.allclose(steps, -torch.stack(noises), rtol=1e-5, atol=cell), "each is its noise over its deviation"


@each_schedule
def test_what_ran_is_told_step_by_step(bounds) -> None:
    run = replace(RUN, bounds=bounds)
    outcome = train(run, fresh_model(), Opacus(), some_records(), reproducible_streams(1, "one"), device="cpu")
    steps = [
        poisson_gaussian(sample_rate=0.25, noise_multiplier=0.7 * (1 / bounds.factor(step, 5))) for step in range(5)
    ]
    assert are_same_events(outcome.event, compose(steps))
    assert are_same_events(outcome.event, run.event)
    assert not took_declared_steps(outcome.event, replace(run, bounds=CONSTANT).event, least=0)


def test_a_run_that_diverges_did_a_part_of_what_was_declared() -> None:
    wild = replace(RUN, trainer=DpSgd(lr=1e38, clip_norm=1e3), steps=50)
    outcome = train(wild, fresh_model(), Opacus(), some_records(), reproducible_streams(1, "another"), device="cpu")
    assert outcome.diverged
    assert outcome.steps < 50
    assert took_declared_steps(outcome.event, wild.event, least=0)
    assert not took_declared_steps(outcome.event, wild.event, least=50)


@pytest.mark.parametrize("sampler", [Poisson(batch_size=10), FixedSize(batch_size=10)])
def test_a_run_that_was_stopped_goes_on_at_the_right_step(sampler) -> None:
    kept: list[Progress] = []

    class Notes:
        def mark_next_interval(self, missing: int) -> int:
            return missing

        def save_progress(self, progress: Progress) -> None:
            kept.append(replace(progress, weights=progress.weights.clone(), ran=progress.ran.copy()))

    adjacency = Adjacency.REPLACE_ONE if isinstance(sampler, FixedSize) else Adjacency.ADD_OR_REMOVE_ONE
    run = replace(RUN, sampler=sampler, adjacency=adjacency)
    ends = iter([False, True])
    options = {"device": "cpu", "journal": Notes()}
    first = train(
        run,
        fresh_model(),
        Opacus(),
        some_records(),
        reproducible_streams(1, "a third"),
        should_stop=lambda: next(ends),
        **options,
    )
    assert (first.stopped, first.steps) == (True, 2)
    assert took_declared_steps(first.event, run.event, least=2)
    last = train(
        run, fresh_model(), Opacus(), some_records(), reproducible_streams(1, "a fourth"), since=kept[0], **options
    )
    assert last.steps == 5
    assert are_same_events(last.event, run.event)


def test_runs_with_other_bounds_do_not_take_their_steps_together() -> None:
    models = [fresh_model(), fresh_model()]
    runs, records = [RUN, replace(RUN, bounds=CONSTANT)], some_records()
    sums = EngineSums(models=models, engine=Opacus(), records=records, device="cpu", chunk=None)
    with pytest.raises(ValueError, match="Expected bounds of runs that are trained together to be alike"):
        train_together(runs, models, sums, records, [reproducible_streams(1, "a fifth")] * 2, device="cpu")
