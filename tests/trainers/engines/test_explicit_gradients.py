"""Units of several examples: an engine bounds their mean gradient once, and no chunk splits it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.models.convolutional import cnn
from dpsweep.trainers.models.fully_connected import logistic, one_hidden
from tests.trainers.gradients import TRANSFORMS, each_engine, expected, problem, reference, units_of_sizes

SIZES = [(3, 1, 2, 1), (7,), (1, 6), (1,) * 7]
pytestmark = each_engine


@pytest.fixture
def unit_engine(engine):
    """An engine that bounds units of several examples; the fused one hands them on."""
    if isinstance(engine, Fused):
        pytest.skip("refuses units of several examples by name")
    return engine


each_sizes = pytest.mark.parametrize("sizes", SIZES, ids=repr)


def unit_means(gradients: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The mean of each unit's gradients, one row a unit."""
    return torch.stack([part.mean(dim=0) for part in torch.split(gradients, sizes)])


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize(("factory", "shape"), [(logistic, (11,)), (one_hidden, (11,)), (cnn, (1, 16, 16))])
def test_a_units_gradient_is_the_mean_of_its_examples_and_is_bounded_once(
    unit_engine, factory, shape, transform
) -> None:
    model, inputs, targets = problem(factory, shape, examples=7)
    total, norms = unit_engine.bounded_gradient_sum_and_norms(
        model, units_of_sizes(inputs, targets, SIZES[0]), Task(transform=transform, chunk=3)
    )
    means = unit_means(reference(model, inputs, targets), SIZES[0])
    assert torch.allclose(norms, means.norm(dim=1), rtol=1e-9)
    target = expected(means, transform)
    assert float((total - target).norm()) <= 1e-6 * float(target.norm())


@each_sizes
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100, None])
def test_the_chunk_never_splits_a_units_gradient(unit_engine, sizes, chunk) -> None:
    model, inputs, targets = problem(one_hidden, (11,), examples=7)
    transform = Clip(clip_norm=0.1)
    total, norms = unit_engine.bounded_gradient_sum_and_norms(
        model, units_of_sizes(inputs, targets, sizes), Task(transform=transform, chunk=chunk)
    )
    means = unit_means(reference(model, inputs, targets), sizes)
    assert torch.allclose(norms, means.norm(dim=1), rtol=1e-9)
    assert float((total - expected(means, transform)).norm()) <= 1e-5 * transform.norm_bound


def test_no_more_than_a_chunk_of_examples_is_in_work_at_a_time(unit_engine) -> None:
    model, inputs, targets = problem(logistic, (11,), examples=7)
    held: list[int] = []
    watched = nn.Sequential(model, Watch(held))
    for sizes in SIZES:
        unit_engine.bounded_gradient_sum_and_norms(
            watched, units_of_sizes(inputs, targets, sizes), Task(transform=Clip(clip_norm=1), chunk=2)
        )
        assert max(held) <= 2
        if not isinstance(unit_engine, Vmap):  # whose layers see one example that stands for a chunk
            assert len(set(held)) == 1, "all passes have one shape"
            assert sum(held) >= 7
        held.clear()


class Watch(nn.Module):
    """Writes down how many examples pass."""

    def __init__(self, seen: list[int]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, values: Tensor) -> Tensor:
        self.seen.append(len(values))
        return values


def test_units_of_one_example_are_examples(unit_engine) -> None:
    model, inputs, targets = problem(one_hidden, (11,), examples=7, dtype=torch.float32)
    plain = unit_engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=0.5), chunk=3)
    )
    single = unit_engine.bounded_gradient_sum_and_norms(
        model, units_of_sizes(inputs, targets, (1,) * 7), Task(transform=Clip(clip_norm=0.5), chunk=3)
    )
    assert all(torch.allclose(ours, theirs) for ours, theirs in zip(single, plain, strict=True))


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_a_unit_with_one_broken_example_contributes_exactly_zero(unit_engine, poison, chunk) -> None:
    model, inputs, targets = problem(one_hidden, (11,), examples=7, dtype=torch.float32)
    without, _ = unit_engine.bounded_gradient_sum_and_norms(
        model, units_of_sizes(inputs[3:], targets[3:], (1, 2, 1)), Task(transform=Clip(clip_norm=0.5), chunk=7)
    )
    inputs[1] = poison
    total, norms = unit_engine.bounded_gradient_sum_and_norms(
        model, units_of_sizes(inputs, targets, (3, 1, 2, 1)), Task(transform=Clip(clip_norm=0.5), chunk=chunk)
    )
    assert norms.isfinite().tolist() == [False, True, True, True]
    assert torch.allclose(total, without, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize("examples", [1, 400])
def test_one_unit_moves_the_sum_by_at_most_the_bound_however_many_examples_it_has(
    unit_engine, transform, examples
) -> None:
    """Bounding each example instead would move it by up to `examples` times the bound."""
    model, inputs, targets = problem(one_hidden, (11,), examples=7)
    others, _ = unit_engine.bounded_gradient_sum_and_norms(
        model, units_of_sizes(inputs, targets, (3, 4)), Task(transform=transform)
    )
    extreme = torch.full((examples, 11), 1e4, dtype=torch.float64)
    joined = torch.cat([inputs[:3], extreme, inputs[3:]])
    labels = torch.cat([targets[:3], targets.new_zeros(examples), targets[3:]])
    total, norms = unit_engine.bounded_gradient_sum_and_norms(
        model, units_of_sizes(joined, labels, (3, examples, 4)), Task(transform=transform)
    )
    assert float(norms[1]) > transform.norm_bound
    moved = float((total - others).norm())
    assert 0.99 * transform.norm_bound < moved <= transform.norm_bound * (1 + 1e-9)


def test_no_units_sum_to_zero(unit_engine) -> None:
    model, inputs, targets = problem(logistic, (11,), examples=0)
    total, norms = unit_engine.bounded_gradient_sum_and_norms(
        model, units_of_sizes(inputs, targets, ()), Task(transform=Clip(clip_norm=1))
    )
    assert not total.any()
    assert norms.shape == (0,)


@pytest.mark.parametrize("slots", [1, 3])
def test_slots_and_weights_that_are_not_the_batchs_are_refused(unit_engine, slots) -> None:
    _, inputs, targets = problem(logistic, (11,), examples=7)
    with pytest.raises(ValueError, match=r"^Expected filled=.* of 7 examples\.$"):
        Minibatch(inputs, targets, filled=torch.ones(slots, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^Expected weights=\[6\] of 7 places\.$"):
        Minibatch(inputs, targets, weights=torch.ones(6))
