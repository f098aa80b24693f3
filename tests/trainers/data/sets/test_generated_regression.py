"""Records that are made up: the same for everybody, and of the law that they are said to have."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.sets.generated import LinearRegression
from dpsweep.trainers.data.split import split_off_holdout

DATA = LinearRegression(
    name="regression",
    records=1000,
    test_records=500,
    shape=(10,),
    classes=1,
    unit="record",
    noise_std=0.1,
    seed=0,
)


def test_labels_are_a_line_and_noise() -> None:
    private, public = DATA.load(None)
    assert public is not None
    assert (private.features.shape, public.features.shape) == ((1000, 10), (500, 10))
    assert private.features.dtype == private.labels.dtype == torch.float32
    best = torch.linalg.lstsq(private.features, private.labels[:, None]).solution
    errors = public.labels - (public.features @ best).squeeze(1)
    assert 0.08 < float(errors.std()) < 0.12
    assert float(private.features.std()) == pytest.approx(1, abs=0.05)
    assert float(best.norm()) > 1


def test_everybody_has_the_same_and_another_seed_is_another_data_set() -> None:
    (first, _), (second, _) = DATA.load(None), DATA.load(None)
    assert torch.equal(first.features, second.features)
    other = dataclasses.replace(DATA, seed=1)
    assert not torch.equal(first.features, other.load(None)[0].features)
    assert DATA.verify(None) == DATA.verify(None) != other.verify(None)


def test_more_public_records_are_the_same_private_data() -> None:
    assert DATA.verify(None) != dataclasses.replace(DATA, records=999).verify(None)


def test_numbers_are_held_out_by_their_contents() -> None:
    private, _ = DATA.load(None)
    whole = split_off_holdout(private, fraction=0.3, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    fewer = split_off_holdout(private.select(slice(1, None)), fraction=0.3, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    assert whole.holdout is not None
    assert fewer.holdout is not None
    assert abs(len(whole.holdout) - len(fewer.holdout)) + abs(len(whole.train) - len(fewer.train)) == 1


@pytest.mark.parametrize("wrong", [{"classes": 2}, {"shape": (2, 5)}, {"noise_std": -1.0}, {"records": 0}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^Expected dataset"):
        dataclasses.replace(DATA, **wrong)
