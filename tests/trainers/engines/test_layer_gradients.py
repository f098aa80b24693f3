"""Norms are never said too short, so no example of any batch weighs more than the bound, to the last bit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpsweep.trainers.engines.layer_gradients import (
    DenseGradient,
    LayerGradient,
    OuterProductGradient,
    SparseGradient,
    joint_norms,
    norms_along_dimension,
    row_norms,
)
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Clip, Normalize

LONGER = 1 + 2.0**-13


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def exact(rows: Tensor) -> Tensor:
    return rows.double().flatten(1).norm(dim=1)


def assert_safe(rows: Tensor) -> None:
    found = row_norms(rows)
    assert found.dtype == torch.float64
    assert bool((found >= exact(rows) * (1 - 1e-15)).all())
    assert bool((found <= exact(rows) * LONGER).all())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.sampled_from([(1, 1024), (64, 784), (300, 100), (300, 63), (8, 4096), (16, 32, 16, 3, 3), (3, 7, 1024)]),
    power=st.floats(-44, 37),
    spread=st.floats(0, 12),
    seed=st.integers(0, 10**6),
)
def test_norms_are_never_short_of_the_truth_and_hardly_longer(shape, power, spread, seed) -> None:
    scales = 10.0 ** (power - spread * noise(*shape, seed=seed + 1).abs())
    assert_safe((noise(*shape, seed=seed) * scales).clamp(-3e38, 3e38).float())


@pytest.mark.parametrize("shape", [(64, 784), (64, 2, 784)])
def test_squares_that_a_float32_sum_loses_are_made_up_for(shape) -> None:
    """One large term, and hundreds of which each alone is lost beside it."""
    rows = torch.full(shape, math.sqrt(0.9 * 2.0**-25))
    rows[..., 0] = 1
    assert float(torch.linalg.vector_norm(rows[0].flatten(), dtype=torch.float32)) < float(exact(rows)[0])
    assert_safe(rows)


@pytest.mark.parametrize("tiny", [1e-45, 1e-30, 1e-21, 3e-20])
def test_rows_whose_squares_underflow_beside_others_are_not_taken_for_shorter(tiny) -> None:
    rows = noise(64, 784, seed=3).float()
    rows[5] = tiny
    rows[6] = 0
    assert_safe(rows)
    assert float(row_norms(rows)[6]) == 0


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_one_broken_row_leaves_the_others_norms(broken) -> None:
    rows = noise(64, 784, seed=3).float()
    rows[5, 3] = broken
    found = row_norms(rows)
    assert not found[5].isfinite()
    others = torch.arange(64) != 5
    assert torch.allclose(found[others], exact(rows[others]), rtol=2e-4)


@pytest.mark.parametrize("joining", [0.0, 1e-30, 1.0, math.inf, math.nan])
@pytest.mark.parametrize("shape", [(30, 784), (30, 16, 16, 3, 3), (3, 12)])
def test_a_row_that_joins_changes_no_bit_of_the_others_norms(shape, joining) -> None:
    """Clipped by other norms, all other records' gradients would change with one record."""
    rows = noise(*shape, seed=3).float()
    more = torch.cat([rows, torch.full_like(rows[:1], joining)])
    assert torch.equal(row_norms(more)[:-1], row_norms(rows))
    flat = rows.flatten(1)
    assert torch.equal(norms_along_dimension(more.flatten(1), 1)[:-1], norms_along_dimension(flat, 1))


def test_float64_and_short_rows_are_measured_as_they_are() -> None:
    rows = noise(64, 784, seed=3)
    assert torch.allclose(row_norms(rows), exact(rows), rtol=1e-14)
    assert torch.equal(row_norms(rows[:, :10].float()), torch.linalg.vector_norm(rows[:, :10].float().double(), dim=1))


def outer(seed: int) -> LayerGradient:
    return OuterProductGradient(left=noise(64, 10, seed=seed).float(), right=noise(64, 784, seed=seed + 1).float())


def rows(seed: int) -> LayerGradient:
    return DenseGradient(rows=noise(24, 16, 16, 3, 3, seed=seed).float())


def entries(seed: int) -> LayerGradient:
    drawn = torch.Generator().manual_seed(seed)
    table = torch.stack([torch.randperm(50, generator=drawn)[:30] for _ in range(40)]).flatten()
    owners = torch.arange(40).repeat_interleave(30)
    return SparseGradient(values=noise(1200, 32, seed=seed).float(), rows=table, owners=owners, examples=40)


SHAPES = {outer: (10, 784), rows: (16, 16, 3, 3), entries: (50, 32)}


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "transform", [Clip(clip_norm=0.7), Clip(clip_norm=1e-6), Normalize(regularizer=1e-9)], ids=repr
)
def test_each_examples_share_of_a_float32_sum_keeps_the_bound_strictly(make, transform) -> None:
    for seed in range(10):
        held = make(100 * seed)
        norms = joint_norms([held]).float()
        factors = transform.factors(norms)
        for example in range(len(norms)):
            total = torch.zeros(SHAPES[make], dtype=torch.float64)
            held.add_weighted_sum_to(total, torch.where(torch.arange(len(norms)) == example, factors, 0))
            share = float(total.norm())
            assert 0.999 * LENGTH_SHARE * transform.norm_bound < share <= transform.norm_bound
