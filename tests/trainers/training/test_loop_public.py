"""Training without noise on records declared public: the textbook's steps, and an event that protects nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import leaves_with_counts, non_private
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.split import Split
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.declarations.scores import OnTraining
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Engine
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named_methods import ClippedSgd, DpSgd, NormalizedSgd, PlainAdam, PlainSgd
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Clip, Normalize
from dpsweep.trainers.methods.updates import Adam
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams, reproducible_streams
from dpsweep.trainers.training.gradient_sums import StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Outcome, Run
from tests.trainers.single_run import train

SHAPE, CLASSES, N, STEPS = (6,), 3, 40, 3
TRAINERS = (
    PlainSgd(lr=0.5),
    ClippedSgd(lr=0.5, clip_norm=0.3),
    NormalizedSgd(lr=0.5, regularizer=0.2),
    PlainAdam(lr=0.05, beta1=0.8, beta2=0.9, eps=1e-4),
)
RUN = Run(
    trainer=TRAINERS[0],
    sampler=Poisson(batch_size=N),
    schedule=Constant(),
    noise_multiplier=0.0,
    steps=STEPS,
    train_records=N,
    public=True,
)
GENERATOR = torch.Generator().manual_seed(3)
RECORDS = Records(
    features=torch.randn(N, *SHAPE, generator=GENERATOR), labels=torch.randint(CLASSES, (N,), generator=GENERATOR)
)


def fresh(seed: int = 5) -> nn.Module:
    return build_model_with_seeded_weights(lambda: one_hidden(SHAPE, CLASSES, width=4), seed)


def flat(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach().clone()


def noiseless_streams() -> Streams:
    """Streams whose noise is nobody's to draw."""
    return replace(reproducible_streams(1, "one"), noise=None)


def by_torch(trainer: object) -> Tensor:
    """The same steps in float64 by autograd and by torch's own optimizers, one example at a time."""
    model = fresh().double()
    adam = isinstance(trainer.update, Adam)
    kind = torch.optim.Adam(model.parameters(), lr=0.05, betas=(0.8, 0.9), eps=1e-4)
    optimizer = kind if adam else torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(STEPS):
        total = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for features, label in zip(RECORDS.features.double(), RECORDS.labels, strict=True):
            found = torch.autograd.grad(cross_entropy(model(features[None]), label[None]), list(model.parameters()))
            norm = float(torch.cat([one.flatten() for one in found]).norm())
            factor = 1.0
            if isinstance(trainer.transform, Clip):
                factor = min(1.0, LENGTH_SHARE * 0.3 / norm)
            if isinstance(trainer.transform, Normalize):
                factor = LENGTH_SHARE / (0.2 + norm)
            for part, one in zip(total, found, strict=True):
                part += factor * one
        for parameter, part in zip(model.parameters(), total, strict=True):
            parameter.grad = part / N
        optimizer.step()
    return flat(model)


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.label)
@pytest.mark.parametrize("engine", [Fused(), Opacus(), None], ids=["fused", "opacus", "stacked"])
def test_steps_are_the_textbooks_and_draw_no_noise(trainer, engine: Engine | None) -> None:
    run, model = replace(RUN, trainer=trainer), fresh()
    if engine is None:
        sums = StackedSums(stack=Stack.from_model(model), records=RECORDS, device="cpu")
        (outcome,) = train_together([run], [model], sums, RECORDS, [noiseless_streams()], device="cpu")
    else:
        outcome = train(run, model, engine, RECORDS, noiseless_streams(), device="cpu")
    expected, start = by_torch(trainer), flat(fresh()).double()
    assert float((flat(model).double() - expected).norm()) < 2e-5 * float((expected - start).norm())
    assert leaves_with_counts(outcome.event) == leaves_with_counts(run.event) == ((non_private(), STEPS),)


@pytest.mark.parametrize("accountant", [Pld(), Rdp()], ids=lambda accountant: accountant.name)
@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_no_accountant_says_less_than_infinity_whatever_the_noise(accountant, noise) -> None:
    event = replace(RUN, trainer=DpSgd(lr=0.5, clip_norm=1.0), noise_multiplier=noise).event
    assert accountant.epsilon(event, 1e-5, Adjacency.ADD_OR_REMOVE_ONE) == float("inf")


def test_batches_stay_each_runs_own_where_the_event_tells_of_none() -> None:
    run = replace(RUN, sampler=Poisson(batch_size=20), steps=30)
    models = [fresh(), fresh()]
    sums = StackedSums(stack=Stack.from_model(models[0]), records=RECORDS, device="cpu")
    streams = [reproducible_streams(1, name) for name in "ab"]
    outcomes: tuple[Outcome, ...] = train_together([run] * 2, models, sums, RECORDS, streams, device="cpu")
    assert outcomes[0].batch_sizes != outcomes[1].batch_sizes
    assert not torch.equal(flat(models[0]), flat(models[1]))


def test_noise_for_gradients_that_nothing_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected noise_multiplier=1\.0 to be 0 with unbounded gradients"):
        replace(RUN, noise_multiplier=1.0)


def test_a_score_of_the_training_records_is_the_share_of_right_ones_and_asks_for_public_data() -> None:
    model = fresh()
    right = int((model(RECORDS.features).argmax(dim=1) == RECORDS.labels).sum())
    score = OnTraining()
    found = score.measure(model, Split(train=RECORDS), reproducible_streams(1, "another").score, "cpu")
    assert found.value == right / N
    assert found.low < found.value < found.high
    with pytest.raises(ValueError, match=r"Expected dataset\.public=true with score=training"):
        score.check(0, public=False)
