"""The contract of every engine, against gradients by torch.func in float64, example by example."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import partial

import pytest
import torch

from dpsweep.trainers.declarations.losses import BinaryCrossEntropy, SquaredError
from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.interface import Minibatch, Task, automatic_chunk_size, per_example_gradient_norms
from dpsweep.trainers.methods.transforms import Clip, Normalize
from dpsweep.trainers.models.convolutional import cnn, resnet20, strided_cnn, wide_resnet
from dpsweep.trainers.models.fully_connected import logistic, mlp, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from tests.trainers.gradients import CLASSES, TRANSFORMS, each_engine, expected, problem, reference

TEMPERED = {"activation": "tempered_sigmoid", "tempering": {"scale": 1.5, "temperature": 3.0, "offset": 0.7}}
MODELS = [
    (logistic, (1, 8, 8)),
    (logistic, (11,)),
    (one_hidden, (11,)),
    (partial(mlp, widths=[6, 5], activation="tanh"), (2, 3)),
    (partial(mlp, widths=[6, 5], **TEMPERED), (2, 3)),
    (partial(cnn, **TEMPERED), (1, 16, 16)),
    (cnn, (1, 16, 16)),
    (strided_cnn, (1, 17, 16)),
    (cnn, (3, 17, 18)),
    (resnet20, (3, 8, 8)),
    (partial(wide_resnet, depth=10, widening=1, groups=4), (3, 8, 8)),
]
pytestmark = each_engine


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize(("factory", "shape"), MODELS)
def test_the_sum_and_the_norms_are_right(engine, factory, shape, transform) -> None:
    model, inputs, targets = problem(factory, shape, examples=7)
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, chunk=3)
    )
    gradients = reference(model, inputs, targets)
    assert torch.allclose(norms, gradients.norm(dim=1), rtol=1e-9)
    target = expected(gradients, transform)
    assert float((total - target).norm()) <= 1e-6 * float(target.norm())
    assert float(total.norm()) <= 7 * transform.norm_bound


def test_the_transforms_here_clip_all_some_and_none(engine) -> None:
    gradients = reference(*problem(cnn, (1, 16, 16), examples=7))
    tight, _, loose = TRANSFORMS[:3]
    assert float(gradients.norm(dim=1).min()) > tight.norm_bound
    assert float(gradients.norm(dim=1).max()) < loose.norm_bound


@pytest.mark.parametrize(("factory", "shape"), MODELS)
def test_numbers_are_learnt_as_classes_are(engine, factory, shape) -> None:
    model = build_model_with_seeded_weights(lambda: factory(shape, 1), 3).double()
    generator = torch.Generator().manual_seed(7)
    inputs, targets = (torch.randn(7, *sizes, generator=generator).double() for sizes in (shape, ()))
    transform, squares = Clip(clip_norm=0.5), SquaredError()
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, chunk=3, loss=squares)
    )
    gradients = reference(model, inputs, targets, lambda outputs, labels: (outputs - labels).square().sum() / 2)
    assert torch.allclose(norms, gradients.norm(dim=1), rtol=1e-9)
    target = expected(gradients, transform)
    assert float((total - target).norm()) <= 1e-6 * float(target.norm())


@pytest.mark.parametrize(("factory", "shape"), MODELS)
def test_several_labels_are_one_gradient(engine, factory, shape) -> None:
    model = build_model_with_seeded_weights(lambda: factory(shape, 4), 3).double()
    generator = torch.Generator().manual_seed(8)
    inputs = torch.randn(7, *shape, generator=generator).double()
    targets = torch.randint(2, (7, 4), generator=generator).float()
    transform = Clip(clip_norm=0.1)
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, chunk=3, loss=BinaryCrossEntropy())
    )
    gradients = reference(model, inputs, targets, BinaryCrossEntropy())
    assert torch.allclose(norms, gradients.norm(dim=1), rtol=1e-9)
    target = expected(gradients, transform)
    assert float((total - target).norm()) <= 1e-6 * float(target.norm())


@pytest.mark.parametrize(("factory", "shape"), MODELS)
def test_float32_agrees_with_float64(engine, factory, shape) -> None:
    transform = Clip(clip_norm=0.5)
    model, inputs, targets = problem(factory, shape, examples=7, dtype=torch.float32)
    total, norms = engine.bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), Task(transform=transform))
    assert (total.dtype, norms.dtype) == (torch.float64, torch.float32)
    gradients = reference(model.double(), inputs, targets)
    assert torch.allclose(norms.double(), gradients.norm(dim=1), rtol=1e-4)
    assert float((total.double() - expected(gradients, transform)).norm()) <= 1e-4 * 7 * transform.norm_bound


@pytest.mark.parametrize(("factory", "shape"), MODELS)
def test_who_joins_a_batch_changes_nothing_of_what_the_others_add(engine, factory, shape) -> None:
    """In float32: the sum with a record alone in its pass is the sum without it and the record's own, exactly.

    That is, up to the rounding of float64 sums.
    """
    model, inputs, targets = problem(factory, shape, examples=9, dtype=torch.float32)
    task = Task(transform=Clip(clip_norm=0.5), chunk=3)

    def total(*places: int) -> torch.Tensor:
        weights = torch.zeros(9)
        weights[[*places]] = 1
        return engine.bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets, weights), task)[0]

    assert float((total(*range(7)) - total(*range(6)) - total(6)).norm()) <= 1e-13


@pytest.mark.parametrize("examples", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("chunk", [1, 2, 5, 100, None])
def test_the_chunk_changes_nothing(engine, examples, chunk) -> None:
    model, inputs, targets = problem(cnn, (1, 16, 16), examples=examples)
    transform = Normalize(regularizer=0.1)
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, chunk=chunk)
    )
    assert norms.shape == (examples,)
    if examples == 0:
        assert torch.equal(total, torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64))
        return
    whole, all_norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, chunk=examples)
    )
    assert torch.allclose(total, whole, rtol=1e-10, atol=1e-12)
    assert torch.allclose(norms, all_norms, rtol=1e-10)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize(
    ("factory", "shape"), [(logistic, (11,)), (one_hidden, (11,)), (cnn, (1, 16, 16)), (resnet20, (3, 8, 8))]
)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e38])
def test_an_example_without_a_finite_gradient_contributes_exactly_zero(
    engine, factory, shape, transform, poison
) -> None:
    model, inputs, targets = problem(factory, shape, examples=6, dtype=torch.float32)
    inputs[4] = poison
    if poison == 1e38:
        inputs[4].view(-1)[::2] *= -3
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, chunk=6)
    )
    if not norms[4].isfinite():
        healthy = torch.tensor([0, 1, 2, 3, 5])
        without, _ = engine.bounded_gradient_sum_and_norms(
            model, Minibatch(inputs[healthy], targets[healthy]), Task(transform=transform, chunk=5)
        )
        assert torch.allclose(total, without, rtol=1e-4, atol=1e-5 * transform.norm_bound)
    assert bool(norms[[0, 1, 2, 3, 5]].isfinite().all())
    assert bool(total.isfinite().all())
    assert float(total.double().norm()) <= 6 * transform.norm_bound * (1 + 1e-5)
    assert not norms[4].isfinite() or poison == 1e38


def test_a_batch_of_broken_examples_sums_to_zero(engine) -> None:
    model, inputs, targets = problem(one_hidden, (11,), examples=3)
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs * math.nan, targets), Task(transform=Clip(clip_norm=1), chunk=2)
    )
    assert bool(norms.isnan().all())
    assert not total.any()


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_zero_gradients_sum_to_zero(engine, transform) -> None:
    model = build_model_with_seeded_weights(lambda: logistic((4,), 2), 1)
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias.copy_(torch.tensor([1000.0, -1000.0]))
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64)), Task(transform=transform)
    )
    assert not norms.any()
    assert not total.any()


def test_products_that_torch_may_shorten_are_refused(engine) -> None:
    model, inputs, targets = problem(logistic, (11,), examples=3, dtype=torch.float32)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ValueError, match=r"^Expected float32_matmul_precision=medium to be highest\.$"):
            engine.bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=1)))
    finally:
        torch.set_float32_matmul_precision("highest")


def test_numbers_whose_rounding_would_break_the_bound_are_refused(engine) -> None:
    model, inputs, targets = problem(one_hidden, (11,), examples=3, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"^Expected model=Sequential to be all .*, got torch\.bfloat16\.$"):
        engine.bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=1)))
    model.double()[1].float()
    with pytest.raises(ValueError, match=r", got torch\.float32, torch\.float64\.$"):
        engine.bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=1)))


def test_frozen_parameters_do_not_count(engine) -> None:
    model, inputs, targets = problem(one_hidden, (11,), examples=4)
    gradients = reference(model, inputs, targets)[:, -(101 * CLASSES) :]
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)
    total, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=1e6))
    )
    assert torch.allclose(total, gradients.sum(dim=0))
    assert torch.allclose(norms, gradients.norm(dim=1))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match=r"^Expected model=Sequential to have trainable parameters.$"):
        engine.bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=1)))


@pytest.mark.parametrize(("factory", "shape"), MODELS)
@pytest.mark.parametrize("training", ["train", "eval"])
def test_the_model_is_left_plain(engine, factory, shape, training) -> None:
    model, inputs, targets = problem(factory, shape, examples=3)
    getattr(model, training)()

    def traces() -> list[object]:
        modules = [(sorted(vars(module)), module.training, len(module._forward_hooks)) for module in model.modules()]
        backward = [len(module._backward_hooks) for module in model.modules()]
        return [modules, backward, [(sorted(vars(p)), p.grad) for p in model.parameters()]]

    before, weights = traces(), [parameter.clone() for parameter in model.parameters()]
    state = torch.get_rng_state()
    engine.bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=1), chunk=2))
    with pytest.raises((IndexError, RuntimeError)):
        engine.bounded_gradient_sum_and_norms(
            model, Minibatch(inputs, targets + CLASSES), Task(transform=Clip(clip_norm=1), chunk=2)
        )
    assert torch.equal(state, torch.get_rng_state())
    assert traces() == before
    assert all(torch.equal(old, new) for old, new in zip(weights, model.parameters(), strict=True))


def test_a_chunk_must_be_a_positive_integer(engine) -> None:
    model, inputs, targets = problem(logistic, (11,), examples=3)
    with pytest.raises(ValueError, match=r"^Expected chunk=0 >= 1.$"):
        engine.bounded_gradient_sum_and_norms(
            model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=1), chunk=0)
        )


def test_norms_of_a_million_coordinates_are_exact(engine) -> None:
    gradients = [torch.full((1, 3000, 1000), 0.1), torch.full((1, 7), 0.1)]
    exact = math.sqrt(3_000_007) * float(torch.tensor(0.1))
    assert float(per_example_gradient_norms(gradients)) == pytest.approx(exact, rel=1e-7)


def test_norms_neither_underflow_nor_overflow_in_between(engine) -> None:
    assert float(per_example_gradient_norms([torch.full((1, 4), 1e-30)])) == pytest.approx(2e-30)
    assert float(per_example_gradient_norms([torch.full((1, 4), 1e30)])) == pytest.approx(2e30)


def test_the_chunk_is_chosen_by_size(engine) -> None:
    small, large = (problem(factory, (3, 32, 32), 1)[0] for factory in (logistic, resnet20))
    example = torch.zeros(3, 32, 32)
    assert automatic_chunk_size(large, example) >= 16
    assert automatic_chunk_size(small, example) > automatic_chunk_size(large, example)
    assert automatic_chunk_size(large, torch.zeros(1).expand(3, 10_000, 10_000)) == 1


MEMORY = """
import re, resource, sys, torch
from pathlib import Path
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.{file} import {engine}
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.models.convolutional import resnet20
from dpsweep.trainers.methods.transforms import Clip
torch.set_num_threads(1)
model = build_model_with_seeded_weights(lambda: resnet20((3, 32, 32), 10), 1)
inputs, targets = torch.zeros(1000, 3, 32, 32), torch.zeros(1000, dtype=torch.int64)
task = Task(transform=Clip(clip_norm=1))
{engine}().bounded_gradient_sum_and_norms(model, Minibatch(inputs[:100], targets[:100]), task)
if sys.platform == "linux":  # ru_maxrss is inherited from the process that started this one
    print(re.search("VmHWM:[^0-9]*([0-9]+) kB", Path("/proc/self/status").read_text())[1])
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.long
def test_a_large_batch_of_resnet20_fits_in_memory(engine) -> None:
    """Some chunks of a batch of 1000; further ones re-use the memory of these."""
    if isinstance(engine, Auto):
        pytest.skip("is the fused engine here")
    engine_type = type(engine)
    script = MEMORY.format(file=engine_type.__module__.rsplit(".", 1)[1], engine=engine_type.__name__)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    kilobytes = int(done.stdout) * (1 if sys.platform != "darwin" else 1 / 1024)
    assert kilobytes < 2 * 2**20
