"""Products of blocks in float32, added up in float64: near enough to the exact sums, whatever the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dpsweep.trainers.engines.layer_gradients import OuterProductGradient, add_products_of_blocks
from dpsweep.trainers.methods.transforms import EXAMPLES_PER_BLOCK, LENGTH_SHARE, Clip, GradientTransform, Normalize

UNIT = 2.0**-24
COUNTS = (1, 64, 65, 200)
SHAPES = ((1, 1), (10, 30), (3, 6000))
"""Of products: the last one is so large that products are formed one by one."""

Factors = tuple[Tensor, Tensor]
"""Left [n, a] and right [n, b]."""


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_factors(n: int, a: int, b: int) -> Factors:
    return noise(n, a, seed=1), noise(n, b, seed=2)


def cancelling_factors(n: int, a: int, b: int) -> Factors:
    """Each example is nearly the opposite of the one before it."""
    left, right = noise(1, a, seed=1).repeat(n, 1), noise(1, b, seed=2).repeat(n, 1)
    left[1::2] *= -1 - 2.0**-20
    return left, right


def spread_factors(n: int, a: int, b: int) -> Factors:
    """Products of one size whose factors range over 24 decades, and entries over 12."""
    powers = 10.0 ** noise(n, 1, seed=3).mul(6).clamp(-12, 12)
    return noise(n, a, seed=1) * powers, noise(n, b, seed=2) * 10.0 ** noise(n, b, seed=4).mul(3).clamp(-6, 6) / powers


def absorbed_factors(n: int, a: int, b: int) -> Factors:
    """A product of 1, and others that a sum in float32 loses one by one."""
    left, right = torch.full((n, a), 0.9 * 2.0**-25, dtype=torch.float64), torch.ones(n, b, dtype=torch.float64)
    left[::EXAMPLES_PER_BLOCK] = 1
    return left, right


def aligned_factors(n: int, a: int, b: int) -> Factors:
    """The same product in all examples, so that each partial sum is rounded at its largest."""
    return torch.full((n, a), 0.1, dtype=torch.float64), torch.full((n, b), 0.3, dtype=torch.float64)


def exact_product(left: Tensor, right: Tensor) -> Tensor:
    return left.double().t() @ right.double()


FACTORS = (random_factors, cancelling_factors, spread_factors, absorbed_factors, aligned_factors)


def largest_error(left: Tensor, right: Tensor) -> float:
    """What `dpsweep.trainers.methods.transforms` allows for these examples, block by block."""
    length = float((left.double().norm(dim=1) * right.double().norm(dim=1)).max())
    sizes = [len(part) for part in torch.split(left, EXAMPLES_PER_BLOCK)]
    return length * (sum(size * ((1 + UNIT) ** size - 1) for size in sizes) + len(left) ** 2 * 2.0**-52)


@pytest.mark.parametrize("make", FACTORS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("count", COUNTS)
def test_the_error_is_within_the_proven_one_in_any_order(make: Callable[..., Factors], a: int, b: int, count) -> None:
    left, right = (factor.float() for factor in make(count, a, b))
    exact, allowed = exact_product(left, right), largest_error(left, right)
    orders = [torch.arange(count), torch.arange(count).flip(0), noise(count, seed=5).argsort()]
    for order in orders:
        sums = torch.zeros(a, b, dtype=torch.float64)
        add_products_of_blocks(sums, left[order].t(), right[order])
        assert float((sums - exact).norm()) <= allowed


def test_what_float32_loses_is_what_the_bound_is_for() -> None:
    left, right = (factor.float() for factor in absorbed_factors(64, 1, 1))
    sums = torch.zeros(1, 1, dtype=torch.float64)
    add_products_of_blocks(sums, left.t(), right)
    assert float((sums - exact_product(left, right)).abs()) > 8 * UNIT


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_a_blocks_result_is_its_own_whatever_the_others_are(a: int, b: int) -> None:
    left, right = (factor.float() for factor in random_factors(200, a, b))
    others = slice(64, 128)

    def change_by_last_example(left: Tensor, right: Tensor) -> Tensor:
        totals = []
        for share in (1.0, 0.0):
            scaled, sums = left.clone(), torch.zeros(a, b, dtype=torch.float64)
            scaled[-1] *= share
            add_products_of_blocks(sums, scaled.t(), right)
            totals.append(sums)
        return totals[0] - totals[1]

    before = change_by_last_example(left, right)
    left[others], right[others] = noise(64, a, seed=8).float(), noise(64, b, seed=9).float()
    assert float((change_by_last_example(left, right) - before).norm()) <= 1e-12 * float(before.norm())


@pytest.mark.parametrize("runs", [1, 3])
def test_runs_with_their_own_examples_are_summed_as_each_alone(runs: int) -> None:
    for a, b in SHAPES:
        left, right = noise(runs, a, 150, seed=1).float(), noise(runs, b, 150, seed=2).float().transpose(1, 2)
        sums, alone = (torch.ones(runs, a, b, dtype=torch.float64) for _ in range(2))
        add_products_of_blocks(sums, left, right)
        for run in range(runs):
            add_products_of_blocks(alone[run], left[run], right[run])
        assert torch.allclose(sums, alone, rtol=1e-5, atol=1e-4)


TRANSFORMS: tuple[GradientTransform, ...] = (
    *(Clip(clip_norm=bound) for bound in (2.0**-64, 1e-6, 1.0, 1e6, 2.0**120)),
    Normalize(regularizer=1e-9),
)


@pytest.mark.parametrize("make", FACTORS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize("count", [1, 64, 65, 129])
def test_a_record_moves_a_sum_by_no_more_than_the_bound(make, transform, count) -> None:
    """The record takes some place, and who was there moves to the end; its gradient points where it hurts most."""
    left, right = (factor.float() for factor in make(count + 1, 10, 30))
    scale = transform.norm_bound if isinstance(transform, Clip) else 1.0
    left *= 3 * scale
    left[-1], right[-1] = left[0], right[0]

    def total(order: list[int]) -> Tensor:
        gradient = OuterProductGradient(left=left[order], right=right[order])
        norms, sums = gradient.per_example_norms().float(), torch.zeros(10, 30, dtype=torch.float64)
        finite = gradient.with_marked_examples_zeroed(~norms.isfinite())
        finite.add_weighted_sum_to(sums, transform.factors(norms))
        return sums

    others = [*range(count)]
    without = total(others)
    assert bool(without.isfinite().all())
    for place in {0, count // 2, count - 1, count}:
        with_it = [*others[:place], count, *others[place + 1 :], *others[place : place + 1]]
        moved = float((total(with_it) - without).norm())
        assert moved <= transform.norm_bound
        assert moved >= (2 * LENGTH_SHARE - 1) * transform.norm_bound or make in (absorbed_factors, spread_factors)


def test_an_example_that_is_not_finite_is_zero_and_rounds_nothing() -> None:
    left, right = (factor.float() for factor in random_factors(130, 10, 30))
    left[7], right[70] = math.nan, math.inf
    marked = torch.zeros(130, dtype=torch.bool)
    marked[[7, 70]] = True
    zeroed = OuterProductGradient(left=left, right=right).with_marked_examples_zeroed(marked)
    sums, factors = torch.zeros(10, 30, dtype=torch.float64), torch.where(marked, 0.0, 1.0)
    zeroed.add_weighted_sum_to(sums, factors)
    finite = ~marked
    exact = exact_product(left[finite], right[finite])
    assert float((sums - exact).norm()) <= largest_error(left[finite], right[finite]) + 3 * 64**2 * UNIT


def test_subnormal_numbers_add_no_more_than_their_length() -> None:
    left, right = torch.full((64, 10), 1e-40), torch.full((64, 30), 1e38)
    sums = torch.zeros(10, 30, dtype=torch.float64)
    OuterProductGradient(left=left, right=right).add_weighted_sum_to(sums, torch.ones(64))
    assert not sums.any()
    OuterProductGradient(left=right[:, :10], right=left[:, :1].repeat(1, 30)).add_weighted_sum_to(sums, torch.ones(64))
    assert float(sums.norm()) <= 64 * 1e-2 * math.sqrt(300) * (1 + 1e-4)
