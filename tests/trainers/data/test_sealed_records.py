"""Sealed parts of records: disjoint, of equal size, and no record's part depends on another record."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.sealed_parts import SealedParts
from dpsweep.trainers.data.records import Records, assign_units_and_cap_records
from dpsweep.trainers.data.split import (
    nominal_units_outside_sealed_parts,
    number_of_sealed_part,
    pseudo_random_part_mask,
)

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def records_of(count: int, seed: int = 0) -> Records:
    values = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))
    return Records(features=values, labels=torch.zeros(count, dtype=torch.int64))


def sizes(numbers: NDArray[np.int64], parts: int) -> list[int]:
    return np.bincount(numbers, minlength=parts + 1).tolist()


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_parts_are_of_equal_size_and_within_the_share(adjacency: Adjacency, parts: int) -> None:
    sealed = SealedParts(share=0.25, parts=parts)
    numbers = number_of_sealed_part(records_of(20_000), sealed, adjacency)
    outside, *inside = sizes(numbers, parts)
    assert set(numbers.tolist()) == set(range(parts + 1))
    assert abs(outside - 15_000) < 5 * (20_000 * 0.25 * 0.75) ** 0.5
    assert all(abs(size - 5000 / parts) < 5 * (5000 / parts) ** 0.5 for size in inside)
    nominal = nominal_units_outside_sealed_parts(20_000, sealed, adjacency)
    assert nominal == (outside if adjacency is REPLACE else 15_000)


def test_a_record_that_is_added_or_moved_changes_no_other_part() -> None:
    sealed, records = SealedParts(share=0.3, parts=3), records_of(500)
    numbers = number_of_sealed_part(records, sealed, ADD)
    order = np.random.default_rng(1).permutation(500)[:400]
    assert (number_of_sealed_part(records.select(order), sealed, ADD) == numbers[order]).all()
    replaced = Records(features=records.features.clone(), labels=records.labels)
    replaced.features[7] += 1
    after, before = (number_of_sealed_part(one, sealed, REPLACE) for one in (replaced, records))
    assert (after == before).all(), "the part is that of the position"


def test_all_records_of_a_unit_are_in_one_part() -> None:
    names = [f"person {place % 90}".encode() for place in range(900)]
    records = assign_units_and_cap_records(records_of(900), names, cap=10)
    assert records.units is not None
    numbers = number_of_sealed_part(records, SealedParts(share=0.4, parts=2), ADD)
    for unit in range(len(records.units.names)):
        assert len(set(numbers[records.units.of == unit])) == 1


def test_the_held_out_share_is_the_same_in_and_outside_the_parts() -> None:
    records = records_of(20_000)
    inside = number_of_sealed_part(records, SealedParts(share=0.5, parts=1), ADD) == 1
    held_out = pseudo_random_part_mask(records, 0.2, ADD)
    for part in (inside, ~inside):
        assert abs(held_out[part].mean() - 0.2) < 5 * (0.16 / part.sum()) ** 0.5, "the keys differ"
