"""Averages of the weights: by hand from those of every step, which they leave alone, for one run and for several."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from dpsweep.accounting.events.build import are_same_events
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named_methods import DpAdam, DpSgd
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams, reproducible_streams
from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums
from dpsweep.trainers.training.learning_curves import CurvePoint, CurveRecorder
from dpsweep.trainers.training.loop import Averages, train_together
from dpsweep.trainers.training.run import Run
from tests.trainers.single_run import train

RUN = Run(
    trainer=DpSgd(lr=0.5, clip_norm=0.3),
    sampler=Poisson(batch_size=20),
    schedule=Constant(),
    noise_multiplier=0.7,
    steps=12,
    train_records=60,
    ema=0.4,
)


def test_the_weight_of_the_past_grows_to_what_was_asked_for() -> None:
    """From 0, and then 1 and 1 again: 9/10 after one step, 9/10 * 2/11 + 9/11 after two; 0.15 caps the second."""
    for ema, second in ((0.9, 0.9 * 2 / 11 + 9 / 11), (0.15, 0.9 * 0.15 + 0.85)):
        averages = Averages(ema, [torch.zeros(1, dtype=torch.float64)])
        found = []
        for step in range(2):
            averages.add_weights(torch.ones(1, 1, dtype=torch.float64), step)
            found += [float(average) for average in averages if average is not None]
        assert found == pytest.approx([0.9, second], rel=1e-12)


def test_a_run_ends_with_the_average_of_its_weights() -> None:
    """At most 0.4, which (1 + t) / (10 + t) reaches at t = 5."""
    one, path = model(0), [flat(model(0)).double()]

    def look(_: int) -> None:
        path.append(flat(one).double())

    outcome = train(RUN, one, Opacus(), RECORDS, streams(0), device="cpu", on_step=look)
    plain, last = model(0), replace(RUN, ema=None)
    other = train(last, plain, Opacus(), RECORDS, streams(0), device="cpu")
    assert torch.equal(flat(plain).double(), path[-1]), "the steps themselves are what they were"
    assert are_same_events(outcome.event, other.event)
    expected = path[0]
    for step, weights in enumerate(path[1:]):
        decay = (1 + step) / (10 + step) if step < 5 else 0.4
        expected = decay * expected + (1 - decay) * weights
    assert torch.allclose(flat(one).double(), expected, rtol=1e-5, atol=1e-7)
    assert not torch.allclose(flat(one).double(), path[-1], rtol=1e-2)


@pytest.mark.parametrize("stacked", [True, False])
def test_runs_side_by_side_have_each_its_own_average(stacked: bool) -> None:
    runs = [replace(RUN, trainer=trainer) for trainer in (RUN.trainer, DpAdam(lr=0.1, clip_norm=0.3), RUN.trainer)]
    together, alone = [model(seed) for seed in range(3)], [model(seed) for seed in range(3)]
    sums = (
        StackedSums(stack=Stack.from_model(together[0]), records=RECORDS, device="cpu")
        if stacked
        else EngineSums(models=together, engine=Opacus(), records=RECORDS, device="cpu", chunk=None)
    )
    train_together(runs, together, sums, RECORDS, [streams(seed) for seed in range(3)], device="cpu")
    for seed, (run, one) in enumerate(zip(runs, alone, strict=True)):
        train(run, one, Opacus(), RECORDS, streams(seed), device="cpu")
    for mine, other in zip(together, alone, strict=True):
        assert torch.allclose(flat(mine), flat(other), rtol=1e-4, atol=1e-6)


def test_curves_look_at_the_average_and_leave_the_steps_alone() -> None:
    seen: list[Tensor] = []

    def look(model: nn.Module, _: GradientTransform) -> CurvePoint:
        seen.append(flat(model))
        return {}

    watched, alone = model(0), model(0)
    train(RUN, watched, Opacus(), RECORDS, streams(0), device="cpu", watch=CurveRecorder(every=2, look=look))
    train(RUN, alone, Opacus(), RECORDS, streams(0), device="cpu")
    assert torch.equal(flat(watched), flat(alone))
    assert len(seen) == -(-RUN.steps // 2)
    assert torch.equal(seen[-1], flat(watched)), "the last look is at what is handed over"


def test_a_run_that_was_stopped_or_diverged_is_left_where_it_is() -> None:
    one = model(0)
    outcome = train(RUN, one, Opacus(), RECORDS, streams(0), device="cpu", should_stop=lambda: True)
    plain = model(0)
    train(replace(RUN, steps=1, ema=None), plain, Opacus(), RECORDS, streams(0), device="cpu")
    assert outcome.stopped
    assert torch.equal(flat(one), flat(plain))
    wild = replace(RUN, trainer=DpSgd(lr=3e38, clip_norm=1e6))
    assert train(wild, model(0), Opacus(), RECORDS, streams(0), device="cpu").diverged


def test_a_decay_is_a_fraction() -> None:
    for wrong in (0, 1, -0.5):
        with pytest.raises(ValueError, match=f"^Expected 0 < ema={wrong} < 1"):
            replace(RUN, ema=wrong)


def some_records() -> Records:
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(3, (60,), generator=generator)
    return Records(features=torch.randn(60, 6, generator=generator), labels=labels)


def streams(number: int) -> Streams:
    return reproducible_streams(1, str(number))


def model(seed: int) -> nn.Module:
    return build_model_with_seeded_weights(lambda: logistic((6,), 3), seed)


def flat(one: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(one.parameters()).detach().clone()


RECORDS = some_records()
