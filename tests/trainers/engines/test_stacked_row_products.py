"""oneDNN's product is that of torch, and is taken for large float32 products on a CPU alone."""

from __future__ import annotations

import pytest
import torch

from dpsweep.trainers.engines import stacked as row_products
from dpsweep.trainers.engines.stacked import is_one_dnn_product_faster, one_dnn_product


def noise(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("outputs", "examples", "inputs"), [(100, 256, 784), (1, 3, 5), (7, 1, 1), (30, 1000, 784)])
def test_the_product_is_that_in_float64_up_to_rounding(outputs: int, examples: int, inputs: int) -> None:
    matrix, rows = noise(inputs, outputs).t(), noise(examples, inputs, seed=2)
    exact = matrix.double() @ rows.double().t()
    bound = inputs * 2.0**-24 * (matrix.double().abs() @ rows.double().abs().t())
    assert bool(((one_dnn_product(matrix, rows).double() - exact).abs() <= bound + 1e-30).all())


def test_an_example_that_is_not_finite_leaves_the_others() -> None:
    matrix, rows = noise(100, 784), noise(256, 784, seed=2)
    broken = rows.clone()
    broken[5] = torch.inf
    others = torch.arange(256) != 5
    assert torch.equal(one_dnn_product(matrix, broken)[:, others], one_dnn_product(matrix, rows)[:, others])


def test_only_large_float32_products_suit() -> None:
    rows = torch.zeros(256, 784)
    assert not is_one_dnn_product_faster(10, rows)
    assert not is_one_dnn_product_faster(100, rows.double())
    assert is_one_dnn_product_faster(100, rows) == row_products._has_one_dnn_operator()
