from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.split import Split, pseudo_random_part_mask, split_off_holdout

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
GOLDEN = {ADD: [3, 5, 12], REPLACE: [2, 3]}


def some(count: int, seed: int = 0, kind: torch.dtype = torch.uint8) -> Records:
    """Random records, no two alike."""
    rng = np.random.default_rng(seed)
    features = torch.from_numpy(rng.integers(0, 256, size=(count, 1, 4, 4), dtype=np.uint8)).to(kind)
    return Records(features=features, labels=torch.from_numpy(rng.integers(0, 10, size=count)))


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_removing_or_adding_one_record_moves_no_other(kind: torch.dtype) -> None:
    records = some(40, kind=kind)
    mask = pseudo_random_part_mask(records, 0.3, ADD)
    assert 0 < mask.sum() < 40
    for gone in range(40):
        rest = np.delete(np.arange(40), gone)
        assert (pseudo_random_part_mask(records.select(rest), 0.3, ADD) == mask[rest]).all()


def test_the_order_of_the_rows_decides_nothing_under_add_or_remove_one() -> None:
    records = some(500)
    order = np.random.default_rng(1).permutation(500)
    assert (
        pseudo_random_part_mask(records.select(order), 0.2, ADD) == pseudo_random_part_mask(records, 0.2, ADD)[order]
    ).all()


def test_replacing_one_record_moves_no_record_under_replace_one() -> None:
    records = some(60)
    mask = pseudo_random_part_mask(records, 0.3, REPLACE)
    for replaced in range(60):
        features, labels = records.features.clone(), records.labels.clone()
        features[replaced], labels[replaced] = 255 - features[replaced], (labels[replaced] + 1) % 10
        neighbour = Records(features=features, labels=labels)
        assert (pseudo_random_part_mask(neighbour, 0.3, REPLACE) == mask).all()


def test_under_replace_one_the_contents_decide_nothing() -> None:
    assert (
        pseudo_random_part_mask(some(300, seed=1), 0.2, REPLACE)
        == pseudo_random_part_mask(some(300, seed=2), 0.2, REPLACE)
    ).all()


def test_under_add_or_remove_one_label_and_features_both_decide() -> None:
    records = some(400)
    mask = pseudo_random_part_mask(records, 0.5, ADD)
    relabelled = Records(features=records.features, labels=(records.labels + 1) % 10)
    inverted = Records(features=255 - records.features, labels=records.labels)
    for changed in (relabelled, inverted):
        assert 100 < (pseudo_random_part_mask(changed, 0.5, ADD) != mask).sum() < 300


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.5, 0.9])
def test_about_the_fraction_is_held_out(fraction: float, adjacency: Adjacency) -> None:
    count = 20000
    held = pseudo_random_part_mask(some(count), fraction, adjacency).mean()
    assert abs(held - fraction) < 4.5 * (fraction * (1 - fraction) / count) ** 0.5


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_larger_fraction_holds_out_the_same_records_and_more(adjacency: Adjacency) -> None:
    small, large = (pseudo_random_part_mask(some(2000), fraction, adjacency) for fraction in (0.1, 0.3))
    assert (large | ~small).all()
    assert large.sum() > small.sum()


def test_the_split_is_the_published_hash() -> None:
    records = some(50)
    for mask, tags in (
        (
            pseudo_random_part_mask(records, 0.25, ADD),
            [
                int(label).to_bytes(8, "little") + bytes(row.flatten().tolist())
                for row, label in zip(records.features, records.labels, strict=True)
            ],
        ),
        (pseudo_random_part_mask(records, 0.25, REPLACE), [position.to_bytes(8, "little") for position in range(50)]),
    ):
        digests = [hashlib.blake2b(tag, digest_size=8, key=b"dpsweep holdout 1").digest() for tag in tags]
        assert mask.tolist() == [digest[0] < 64 for digest in digests]


def test_the_split_never_changes() -> None:
    counted = Records(features=torch.arange(48, dtype=torch.uint8).reshape(24, 2), labels=torch.arange(24))
    assert np.flatnonzero(pseudo_random_part_mask(counted, 0.2, ADD)).tolist() == GOLDEN[ADD]
    assert np.flatnonzero(pseudo_random_part_mask(counted, 0.2, REPLACE)).tolist() == GOLDEN[REPLACE]


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_parts_are_disjoint_and_whole(adjacency: Adjacency) -> None:
    records, test = some(100), some(5, seed=9)
    split = split_off_holdout(records, fraction=0.2, adjacency=adjacency, test=test)
    assert isinstance(split, Split)
    assert split.holdout is not None
    assert split.test is test
    held = pseudo_random_part_mask(records, 0.2, adjacency)
    assert torch.equal(split.holdout.stored_features(), records.stored_features(held))
    assert torch.equal(split.train.stored_features(), records.stored_features(~held))
    assert torch.equal(split.train.labels, records.labels[torch.from_numpy(~held)])


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_records_are_split_into_none_and_none(adjacency: Adjacency) -> None:
    assert pseudo_random_part_mask(some(3).select(slice(0, 0)), 0.2, adjacency).shape == (0,)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_fraction_that_empties_a_part_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="Expected fraction="):
        pseudo_random_part_mask(some(3), fraction, ADD)


def test_an_adjacency_by_its_name_is_that_adjacency() -> None:
    by_name = pseudo_random_part_mask(some(100), 0.2, "replace_one")  # type: ignore[arg-type]
    assert (by_name == pseudo_random_part_mask(some(100), 0.2, REPLACE)).all()
    with pytest.raises(ValueError, match="replace_two"):
        pseudo_random_part_mask(some(100), 0.2, "replace_two")  # type: ignore[arg-type]
