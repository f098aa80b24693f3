"""What a record adds to a sum, bit by bit, whoever else is in the batch: float32 rounding tells nobody of a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from dpsweep.trainers.data.records import Records, Units
from dpsweep.trainers.declarations.batch_sampling import FixedSize, Poisson, Shuffle
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Clip
from dpsweep.trainers.models.fully_connected import logistic, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.batch_and_noise import Batch, seldom_exceeded_batch_size
from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums, Sums
from tests.trainers.loops import RUN

SHAPE, CLASSES, N = (1, 9, 9), 10, 200
MODELS = {"logistic": lambda: logistic(SHAPE, CLASSES), "784-100-10": lambda: one_hidden(SHAPE, CLASSES, width=33)}
EXACT = 1e-12


def models(name: str) -> list[nn.Module]:
    return [build_model_with_seeded_weights(MODELS[name], seed) for seed in range(3)]


def records(count: int) -> Records:
    generator = torch.Generator().manual_seed(1)
    features = torch.rand(N, *SHAPE, generator=generator)
    return Records(features=features[:count], labels=(torch.arange(N) % CLASSES)[:count])


def stacked(models: list[nn.Module], data: Records) -> Sums:
    return StackedSums(stack=Stack.from_model(models[0]), records=data, device="cpu", chunk=None)


def fused(models: list[nn.Module], data: Records) -> Sums:
    return EngineSums(models=models, engine=Fused(), records=data, device="cpu", chunk=None)


def opacus(models: list[nn.Module], data: Records) -> Sums:
    return EngineSums(models=models, engine=Opacus(), records=data, device="cpu", chunk=None)


def total(name: str, make: Callable[[list[nn.Module], Records], Sums], units: np.ndarray, **declared: object) -> Tensor:
    """Each model's sum over the same units, each its own batch, or one batch of all."""
    own, common = models(name), bool(declared.pop("common"))
    weights = torch.stack([parameters_to_vector(model.parameters()).detach() for model in own])
    data = records(int(declared.pop("available", N)))
    sizes = np.full(len(own), len(units))
    batch = Batch(units=units if common else np.tile(units, len(own)), sizes=sizes, common=common, **declared)
    return make(own, data).over([*range(len(own))], [Clip(clip_norm=0.5)] * len(own))(weights, batch)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("make", [stacked, fused, opacus])
@pytest.mark.parametrize("common", [True, False], ids=["common", "own"])
@pytest.mark.parametrize("block", [7, 20, 64])
def test_what_a_record_adds_depends_on_its_block_alone(name, make, common, block) -> None:
    """The last of 21, beside two companies: the same, but for what gradients are shortened by; and so others' shares.

    Explicit gradients are added in float64 one by one, so that nobody else adds anything else.
    """
    one, added = np.array([199]), []
    for company in (np.arange(0, 60, 3), np.arange(1, 40, 2)[:20]):
        with_it, without = (
            total(name, make, chosen, common=common, block=block, nominal=10**6)
            for chosen in (np.concatenate([company, one]), company)
        )
        assert with_it.dtype == torch.float64
        added.append(with_it - without)
    assert float((added[0] - added[1]).norm()) < (EXACT if make is opacus else (1 - LENGTH_SHARE) * 0.5)
    assert 0 < float(added[0].norm(dim=1).max()) <= 0.5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("make", [stacked, fused, opacus])
@pytest.mark.parametrize("common", [True, False], ids=["common", "own"])
@pytest.mark.parametrize("block", [150, 200])
@pytest.mark.parametrize("nominal", [N, 10**6], ids=["crowded", "gathered"])
def test_what_a_record_adds_depends_on_nobody_in_other_blocks(name, make, common, block, nominal) -> None:
    """The last of 150, after 22 others and before them 127: exactly the same, whoever these are."""
    one, near, added = np.array([199]), np.arange(177, 199), []
    for others in (np.arange(127), np.arange(20, 147)):
        company = np.concatenate([others, near])
        with_it, without = (
            total(name, make, chosen, common=common, block=block, nominal=nominal)
            for chosen in (np.concatenate([company, one]), company)
        )
        added.append(with_it - without)
    assert float((added[0] - added[1]).norm()) < EXACT
    assert 0 < float(added[0].norm(dim=1).max()) <= 0.5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("make", [stacked, fused, opacus])
@pytest.mark.parametrize("common", [True, False], ids=["common", "own"])
@pytest.mark.parametrize("nominal", [N, 10**6], ids=["crowded", "gathered"])
def test_a_record_that_takes_anothers_place_moves_no_sum_by_more_than_the_bound(name, make, common, nominal) -> None:
    """The other moves to the end, which is in another block."""
    company, declared = np.arange(0, 196, 2), {"common": common, "block": 200, "nominal": nominal}
    without = total(name, make, company, **declared)
    for place in (0, 31, 63, 64, 97):
        chosen = np.append(company, company[place])
        chosen[place] = 199
        moved = (total(name, make, chosen, **declared) - without).norm(dim=1)
        assert float(moved.max()) <= 0.5
        assert float(moved.min()) >= 0.5 * (2 * LENGTH_SHARE - 1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("make", [stacked, fused, opacus])
@pytest.mark.parametrize("common", [True, False], ids=["common", "own"])
def test_another_place_in_the_batch_changes_what_a_record_adds_by_less_than_gradients_are_shortened_for(
    name, make, common
) -> None:
    """What docs/accounting.md assumes of kernels: 2**-22 of the bound, of 2**-21 that are left for float64 sums."""
    declared = {"common": common, "block": 20, "nominal": 10**6}
    units = np.arange(0, 60, 3)
    first = total(name, make, units, **declared)
    for place in range(1, 20):
        moved = units.copy()
        moved[[0, place]] = units[[place, 0]]
        two = float((total(name, make, moved, **declared) - first).norm(dim=1).max())
        assert two < 2 * 0.5 * 2.0**-22, "two records have each other's places"


@pytest.mark.parametrize("nominal", [N, 10**6], ids=["crowded", "gathered"])
def test_a_record_that_no_batch_has_changes_nothing(nominal) -> None:
    """Where all records keep one order, it takes the place of another one, which moves to the end.

    That one's gradient may be rounded otherwise there, by what docs/accounting.md assumes of kernels; its sum may not.
    """
    own, data, sums = models("logistic"), records(N), []
    weights = torch.stack([parameters_to_vector(model.parameters()).detach() for model in own])
    places = np.arange(N)
    places[[5, N - 1]] = N - 1, 5
    for chosen, found in (
        (np.arange(0, 196), data),
        (places[:196], Records(features=data.features[places], labels=data.labels[places])),
    ):
        sizes = np.full(len(own), len(chosen))
        batch = Batch(units=np.tile(chosen, len(own)), sizes=sizes, common=False, block=200, nominal=nominal)
        sums.append(stacked(own, found).over([*range(len(own))], [Clip(clip_norm=0.5)] * len(own))(weights, batch))
    assert float((sums[0] - sums[1]).norm(dim=1).max()) < (0.5 * 2.0**-22 if nominal == N else EXACT)


def of_patients(units: np.ndarray, *, order: np.random.Generator | None = None) -> Tensor:
    """The sum over these patients, of whom patient p has 1 + p % 3 of the records."""
    of = np.repeat(np.arange(99), 1 + np.arange(99) % 3)
    names = tuple(f"patient {place}".encode() for place in range(99))
    data = replace(records(len(of)), units=Units(names=names, of=of.astype(np.int64)))
    (model,) = models("784-100-10")[:1]
    weights = parameters_to_vector(model.parameters()).detach()[None]
    batch = Batch(units=units, sizes=np.array([len(units)]), common=True, block=20, nominal=99, order=order)
    return opacus([model], data).over([0], [Clip(clip_norm=0.5)])(weights, batch)


@pytest.mark.parametrize("joining", [97, 98, 96])
def test_what_a_patient_adds_depends_on_no_other_patients_records(joining) -> None:
    """The last of the patients with as many records, beside companies whose other patients have more or fewer."""
    alike = [joining % 3 + 3 * place for place in range(8)]
    added = []
    for others in ([], [place for place in range(60) if (place - joining) % 3]):
        company = np.array(alike + others)
        added.append(of_patients(np.append(company, joining)) - of_patients(company))
    assert float((added[0] - added[1]).norm()) < EXACT
    assert 0 < float(added[0].norm()) <= 0.5


def test_patients_in_any_order_are_the_same_sum_up_to_rounding() -> None:
    units = np.arange(5, 60)
    assert float((of_patients(units) - of_patients(units, order=reproducible_streams(1, "o").order)).norm()) < 1e-5


@pytest.mark.parametrize("make", [stacked, fused])
@pytest.mark.parametrize("common", [True, False], ids=["common", "own"])
@pytest.mark.parametrize("nominal", [N, 10**6], ids=["crowded", "gathered"])
def test_any_order_is_the_same_sum_up_to_rounding(make, common, nominal) -> None:
    units, declared = np.arange(0, 63, 3), {"common": common, "block": 7, "nominal": nominal}
    sorted_, random = (
        total("784-100-10", make, units, order=order, **declared)
        for order in (None, reproducible_streams(1, "order").order)
    )
    assert 0 <= float((sorted_ - random).norm()) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_one_record_more_in_the_data_leaves_sums_without_it_as_they_are(name) -> None:
    units = np.arange(0, 60, 3)
    declared = {"common": False, "block": 20, "nominal": N}
    more, less = (total(name, stacked, units, available=count, **declared) for count in (N, N - 1))
    assert float((more - less).norm()) < EXACT


@pytest.mark.parametrize(
    ("sampler", "block"),
    [
        (Poisson(batch_size=100), 120),
        (Poisson(batch_size=1000), 1000),
        (FixedSize(batch_size=64), 64),
        (Shuffle(batch_size=250), 282),
    ],
)
def test_blocks_are_declared(sampler, block) -> None:
    assert seldom_exceeded_batch_size(sampler, 1000) == pytest.approx(block, abs=2)


def test_orders_are_drawn_from_a_stream_of_their_own() -> None:
    units = np.arange(50)
    batch = Batch(units=units, sizes=np.array([50]), common=True, block=50, nominal=50)
    assert np.array_equal(batch.units_of_slice_in_random_order(slice(0, 50)), units)
    one, two = (
        replace(batch, order=reproducible_streams(1, "a").order).units_of_slice_in_random_order(slice(10, 40))
        for _ in range(2)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, units[10:40])
    assert np.array_equal(np.sort(one), units[10:40])
    index, there = np.arange(12).reshape(2, 6), np.arange(6) < np.array([[6], [4]])
    rows = replace(batch, order=reproducible_streams(2, "b").order).shuffle_rows_with_masked_units_first(index, there)
    assert np.array_equal(np.sort(rows[0]), index[0])
    assert np.array_equal(np.sort(rows[1, :4]), index[1, :4])
    assert not rows[1, 4:].any()
    orders = (reproducible_streams(seed, "c").order for seed in range(200))
    assert (
        len({tuple(replace(batch, order=order).units_of_slice_in_random_order(slice(0, 5))) for order in orders}) > 60
    )
    assert RUN.sampler.batch_size < seldom_exceeded_batch_size(RUN.sampler, RUN.train_records) < RUN.train_records
