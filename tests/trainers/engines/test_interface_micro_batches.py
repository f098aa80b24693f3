"""Packs of whole units: every example once, in order, and never more held than the chunk allows."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from dpsweep.trainers.engines.interface import pack_units_into_micro_batches


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 10, 100])
@pytest.mark.parametrize("sizes", [(1,) * 9, (3, 1, 2, 1), (12, 1, 1, 12), (2, 2, 2), (7,), ()], ids=repr)
def test_packs_hold_whole_units_in_order_and_at_most_a_chunk_or_one_unit(sizes, chunk) -> None:
    packs = list(pack_units_into_micro_batches(sizes, chunk))
    assert [size for pack in packs for size in pack.sizes] == list(sizes)
    assert [place for pack in packs for place in range(100)[pack.example_slice]] == list(range(sum(sizes)))
    assert all(sum(pack.sizes) <= chunk or len(pack.sizes) == 1 for pack in packs)
    for pack, following in pairwise(packs):
        fits = sum(pack.sizes) + following.sizes[0] <= chunk
        assert pack.sizes[0] != following.sizes[0] or not fits, "a pack is as full as it can be"
    for pack in packs:
        assert torch.bincount(pack.unit_index_of_each_example()).tolist() == list(pack.sizes)
        assert torch.equal(pack.unit_index_of_each_example(), pack.unit_index_of_each_example().sort().values)
        assert len(set(pack.sizes)) == 1, "nobody's place depends on the sizes of others"
