"""Training over several processes: the sums, the draws and the noise are those of one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.declarations.augmentation import ShiftFlip
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.methods.named_methods import DpNsgd, DpSgd
from dpsweep.trainers.models.convolutional import cnn
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.data_parallel import split_batch_among_ranks, start_sums_across_processes
from dpsweep.trainers.training.gradient_sums import EngineSums, Sums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run
from tests.rank_engines import EndsElsewhere, InFloat64, WithNoise

SHAPE, CLASSES, NOMINAL, AVAILABLE = (1, 16, 16), 3, 90, 80
UNITS = Units(names=tuple(f"{name:02}".encode() for name in range(27)), of=np.arange(AVAILABLE) // 3)
FACTORIES = {
    "cnn": partial(cnn, SHAPE, CLASSES, activation="tanh"),
    "mlp": partial(one_hidden, SHAPE, CLASSES, width=5),
}


def records(units: bool = False) -> Records:
    generator = torch.Generator().manual_seed(1)
    return Records(
        features=torch.rand(AVAILABLE, *SHAPE, generator=generator),
        labels=torch.randint(CLASSES, (AVAILABLE,), generator=generator),
        units=UNITS if units else None,
    )


def runs(noise_multiplier: float = 0.7) -> list[Run]:
    shared: dict[str, Any] = {
        "sampler": Poisson(batch_size=30),
        "schedule": Constant(),
        "noise_multiplier": noise_multiplier,
        "steps": 4,
        "train_records": NOMINAL,
    }
    return [
        Run(trainer=DpSgd(lr=0.5, clip_norm=0.3), **shared),
        Run(trainer=DpNsgd(lr=0.2, regularizer=0.1), **shared),
    ]


def sums_of(name: str, data: Records, engine: Any = None) -> EngineSums:
    models = [build_model_with_seeded_weights(FACTORIES[name], seed).double() for seed in (1, 2)]
    return EngineSums(models=models, engine=engine or InFloat64(), records=data, device="cpu", chunk=7)


def weights_after(
    sums: Sums, models: Sequence[nn.Module], data: Records, noise_multiplier: float
) -> list[torch.Tensor]:
    streams = [reproducible_streams(3, str(place)) for place in range(2)]
    train_together(runs(noise_multiplier), models, sums, data, streams, device="cpu")
    return [parameters_to_vector(model.parameters()).detach().clone() for model in models]


@pytest.mark.parametrize(
    ("name", "units", "engine", "processes"),
    [("cnn", False, Fused, 2), pytest.param("mlp", True, Vmap, 3, marks=pytest.mark.long)],
    ids=["records", "patients"],
)
def test_several_processes_train_the_model_of_one_process(name, units, engine, processes) -> None:
    data = records(units)
    alone, parallel = (sums_of(name, data, InFloat64(engine)) for _ in range(2))
    expected = weights_after(alone, alone.models, data, 0.7)
    with start_sums_across_processes(parallel, ["cpu"] * processes) as all_ranks:
        got = weights_after(all_ranks, parallel.models, data, 0.7)
    for own, other in zip(got, expected, strict=True):
        assert torch.allclose(own, other, rtol=0, atol=1e-9)


def test_noise_per_rank_would_be_seen() -> None:
    data = records()
    alone, parallel = sums_of("mlp", data), sums_of("mlp", data, WithNoise())
    expected = weights_after(alone, alone.models, data, 0.0)
    with start_sums_across_processes(parallel, ["cpu", "cpu"]) as both:
        got = weights_after(both, parallel.models, data, 0.0)
    assert not torch.allclose(got[0], expected[0], rtol=0, atol=1e-3)


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 3, 50])
def test_every_unit_is_in_one_share(common, ranks) -> None:
    sizes = np.array([5, 0, 7])
    units = np.arange(5) if common else np.array([*range(5), *range(7)])
    whole = Batch(
        units=units,
        sizes=np.repeat(5, 3) if common else sizes,
        common=common,
        block=9,
        nominal=20,
        order=np.random.default_rng(1),
    )
    parts = list(split_batch_among_ranks(whole, ranks))
    assert len(parts) == ranks
    assert {part.block for part in parts} == {-(-9 // ranks)}
    assert np.array_equal(sum(part.sizes for part in parts), whole.sizes)
    if common:
        assert sorted(np.concatenate([part.units for part in parts])) == list(range(5))
        return
    for run, size in enumerate(sizes):
        own = [np.split(part.units, part.sizes.cumsum()[:-1])[run] for part in parts]
        assert sorted(np.concatenate(own)) == list(range(size))


def test_the_order_of_a_share_is_drawn_once() -> None:
    whole = Batch(
        units=np.arange(1000),
        sizes=np.array([1000]),
        common=True,
        block=1000,
        nominal=1000,
        order=np.random.default_rng(1),
    )
    first, second = split_batch_among_ranks(whole, 2)
    assert first.order is None
    assert not np.array_equal(first.units, np.sort(first.units))
    assert not np.array_equal(second.units, np.sort(second.units))


def test_a_rank_that_fails_ends_the_training_with_an_error() -> None:
    data = records()
    parallel = sums_of("mlp", data, EndsElsewhere())
    with pytest.raises(RuntimeError), start_sums_across_processes(parallel, ["cpu", "cpu"]) as both:
        weights_after(both, parallel.models, data, 0.7)


def test_augmented_copies_are_drawn_in_one_process() -> None:
    sums = replace(sums_of("mlp", records()), augmentation=ShiftFlip(multiplicity=2, pixels=1))
    with (
        pytest.raises(ValueError, match=r"^Expected compute.processes=1 with an augmentation"),
        start_sums_across_processes(sums, ["cpu", "cpu"]),
    ):
        pass
