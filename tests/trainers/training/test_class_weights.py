"""Class weights in training steps: held against a loop of bounded gradients in float64, and against the bound."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.declarations.augmentation import ShiftFlip
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.losses import CrossEntropy
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Engine
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.methods.method import Method
from dpsweep.trainers.methods.named_methods import DpAdam, DpNsgd, DpSgd
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Clip
from dpsweep.trainers.methods.updates import Sgd
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams, reproducible_streams
from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run

SHAPE, CLASSES, N = (6,), 3, 40
WEIGHTS = (1.0, 4.0, 0.5)
WEIGHTED = CrossEntropy(class_weights=WEIGHTS)
METHODS = {
    "DP-SGD": DpSgd(lr=1.0, clip_norm=0.1),
    "DP-SGD that clips few": DpSgd(lr=1.0, clip_norm=2.0),
    "DP-NSGD": DpNsgd(lr=1.0, regularizer=0.3),
    "AUTO-S": DpNsgd(lr=1.0, regularizer=0.01),
    "DP-Adam": DpAdam(lr=1.0, clip_norm=0.1, beta1=0.9, beta2=0.999, eps=1e-8),
}
ENGINES = {"fused": Fused(), "opacus": Opacus(), "vmap": Vmap(), "auto": Auto(), "stacked": None}
FAR = 50.0
"""The standard deviation of features, so that the gradient of a record is far above every bound."""
ROUNDING = 2e-5
"""Of weights in float32, from which a sum is read."""
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
each_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)


def some_records(sizes: tuple[int, ...] = (1,) * N) -> Records:
    generator = torch.Generator().manual_seed(4)
    features = torch.randn(sum(sizes), *SHAPE, generator=generator)
    labels = torch.randint(CLASSES, (sum(sizes),), generator=generator)
    names = tuple(f"unit {place}".encode() for place in range(len(sizes)))
    units = None if max(sizes) == 1 else Units(names=names, of=np.repeat(np.arange(len(sizes)), sizes))
    return Records(features=features, labels=labels, units=units)


def extreme_feature(label: int) -> Tensor:
    candidates = FAR * torch.randn(50, *SHAPE, generator=torch.Generator().manual_seed(9))
    losses = cross_entropy(fresh()(candidates), torch.full((50,), label), reduction="none")
    return candidates[losses.argmax()][None]


def with_extreme_unit(records: Records, *labels: int) -> Records:
    """The records and one more unit, which has an extreme record of each of these labels."""
    units = records.units
    return replace(
        records,
        features=torch.cat([records.features, *map(extreme_feature, labels)]),
        labels=torch.cat([records.labels, torch.tensor(labels)]),
        units=units and Units(names=(*units.names, b"another"), of=np.append(units.of, [N] * len(labels))),
    )


def with_extreme_record_in_place(records: Records, label: int) -> Records:
    """The records with an extreme one of this label in the place of the first one."""
    features, labels = records.features.clone(), records.labels.clone()
    features[:1], labels[0] = extreme_feature(label), label
    return replace(records, features=features, labels=labels)


def fresh(width: int = 4) -> nn.Module:
    return build_model_with_seeded_weights(lambda: one_hidden(SHAPE, CLASSES, width=width), 5)


def flat(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach().double()


def streams() -> Streams:
    return replace(reproducible_streams(1, "one"), noise=None)


def step_sum(
    method: Method,
    engine: Engine | None,
    records: Records,
    loss: CrossEntropy = WEIGHTED,
    *,
    batch_size: int = N,
    runs: int = 1,
    width: int = 4,
) -> Tensor:
    """The sum of bounded gradients in one step without noise, of the last of these runs."""
    one = Run(
        trainer=replace(method, update=Sgd()),
        sampler=Poisson(batch_size=batch_size),
        schedule=Constant(),
        noise_multiplier=0.0,
        steps=1,
        train_records=N,
        public=True,
    )
    models = [fresh(width) for _ in range(runs)]
    sums = (
        StackedSums(stack=Stack.from_model(models[0], loss), records=records, device="cpu")
        if engine is None
        else EngineSums(models=models, engine=engine, records=records, device="cpu", chunk=7, loss=loss)
    )
    train_together([one] * runs, models, sums, records, [streams() for _ in range(runs)], device="cpu")
    return batch_size * (flat(fresh(width)) - flat(models[-1]))


def sum_by_loop(method: Method, records: Records, weights: tuple[float, ...] = WEIGHTS) -> Tensor:
    """The same sum in float64, one unit after another: bounded means of gradients, times means of weights."""
    model = fresh().double()
    total = torch.zeros_like(flat(model))
    for unit in range(records.number_of_units):
        rows = [unit] if records.units is None else np.flatnonzero(records.units.of == unit).tolist()
        loss = cross_entropy(model(records.features[rows].double()), records.labels[rows])
        gradient = torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))])
        norm, transform = float(gradient.norm()), method.transform
        bounded = (
            min(1.0, LENGTH_SHARE * transform.clip_norm / norm)
            if isinstance(transform, Clip)
            else LENGTH_SHARE / (transform.regularizer + norm)
        )
        factor = sum(weights[label] for label in records.labels[rows].tolist()) / len(rows) / max(weights)
        total += factor * bounded * gradient
    return total


@each_engine
@each_method
def test_a_bounded_gradient_is_multiplied_by_its_classs_weight(method: Method, engine: Engine | None) -> None:
    """Under normalization, too, where a factor on the loss would be cancelled."""
    records = some_records()
    expected = sum_by_loop(method, records)
    assert float((step_sum(method, engine, records) - expected).norm()) < ROUNDING
    assert float((sum_by_loop(method, records, (1.0, 1.0, 1.0)) - expected).norm()) > 0.1, "weights make a difference"


@pytest.mark.parametrize("engine", [Opacus(), Vmap(), Auto()], ids=["opacus", "vmap", "auto"])
@each_method
def test_a_unit_has_the_mean_of_its_rows_weights(method: Method, engine: Engine) -> None:
    records = some_records(tuple(1 + place % 4 for place in range(N)))
    assert float((step_sum(method, engine, records) - sum_by_loop(method, records)).norm()) < ROUNDING


@each_engine
@each_method
def test_an_extreme_record_moves_the_sum_by_its_share_of_the_bound(method: Method, engine: Engine | None) -> None:
    records, bound = some_records(), method.transform.norm_bound
    without = step_sum(method, engine, records)
    by_label = [step_sum(method, engine, with_extreme_unit(records, label)) for label in range(CLASSES)]
    for label, weight in enumerate(WEIGHTS):
        moved, share = float((by_label[label] - without).norm()), weight / max(WEIGHTS)
        assert moved <= share * bound + ROUNDING, "added"
        assert moved >= 0.9 * share * bound - ROUNDING, "all of its share: a gradient this long is bounded"
    one, other = (step_sum(method, engine, with_extreme_record_in_place(records, label)) for label in (0, 1))
    for first, second in itertools.combinations((without, one, other), 2):
        assert float((first - second).norm()) <= 2 * bound + ROUNDING, "replaced"


@pytest.mark.parametrize("engine", [Opacus(), Vmap()], ids=["opacus", "vmap"])
@each_method
def test_an_extreme_unit_moves_the_sum_by_at_most_the_bound(method: Method, engine: Engine) -> None:
    sizes = tuple(1 + place % 4 for place in range(N))
    records, heaviest = some_records(sizes), int(np.argmax(WEIGHTS))
    more = with_extreme_unit(records, heaviest, heaviest)
    moved = step_sum(method, engine, more) - step_sum(method, engine, records)
    bound = method.transform.norm_bound
    assert 0.9 * bound - ROUNDING <= float(moved.norm()) <= bound + ROUNDING


@pytest.mark.parametrize(("runs", "width"), [(1, 4), (3, 4), (3, 64)])
@each_engine
def test_drawn_batches_are_weighted_as_all_records_are(engine: Engine | None, runs: int, width: int) -> None:
    """Sums are linear in the weights: two settings add up to a multiple of the plain sum, whatever batch was drawn.

    Stacked runs of narrow models pass over all records, those of wide ones gather their own batches.
    """
    method, records = METHODS["AUTO-S"], some_records()
    plain, one, other = (
        step_sum(method, engine, records, CrossEntropy(class_weights=weights), batch_size=20, runs=runs, width=width)
        for weights in (None, (1.0, 3.0, 1.0), (3.0, 1.0, 3.0))
    )
    assert float(plain.norm()) > 0.5
    assert float((one + other - 4 / 3 * plain).norm()) < ROUNDING
    assert float((one - other).norm()) > 0.1


def test_copies_have_the_weight_of_their_original() -> None:
    shape, method = (1, 4, 4), METHODS["AUTO-S"]
    generator = torch.Generator().manual_seed(2)
    records = Records(features=torch.randn(N, *shape, generator=generator), labels=torch.arange(N) % 2)

    def total(weights: tuple[float, float] | None) -> Tensor:
        model = build_model_with_seeded_weights(lambda: one_hidden(shape, 2, width=4), 5)
        before = flat(model)
        sums = EngineSums(
            models=[model],
            engine=Opacus(),
            records=records,
            device="cpu",
            chunk=None,
            loss=CrossEntropy(class_weights=weights),
            augmentation=ShiftFlip(multiplicity=3, pixels=1),
            draws=[np.random.default_rng(1)],
        )
        run = Run(
            trainer=method,
            sampler=Poisson(batch_size=N),
            schedule=Constant(),
            noise_multiplier=0.0,
            steps=1,
            train_records=N,
            public=True,
        )
        train_together([run], [model], sums, records, [streams()], device="cpu")
        return N * (before - flat(model))

    assert float((total((1.0, 4.0)) + total((4.0, 1.0)) - 1.25 * total(None)).norm()) < ROUNDING
