"""Losses: their gradients, what they call good, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpsweep.trainers.declarations.losses import (
    AbsoluteError,
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    Loss,
    NumberLoss,
    SquaredError,
    default_rate_factor,
    example_weights,
    require_loss_of_each_example_alone,
)

LOSSES = {
    "cross-entropy": (CrossEntropy(), 3),
    "smoothed cross-entropy": (CrossEntropy(label_smoothing=0.3), 3),
    "squared error": (SquaredError(cap=4.0), 1),
    "absolute error": (AbsoluteError(cap=2.0), 1),
    "Huber": (Huber(delta=0.5, cap=2.0), 1),
}
OF_NUMBERS = {name: loss for name, (loss, _) in LOSSES.items() if isinstance(loss, NumberLoss)}
each_number_loss = pytest.mark.parametrize("loss", OF_NUMBERS.values(), ids=OF_NUMBERS)
each_loss = pytest.mark.parametrize(("loss", "classes"), LOSSES.values(), ids=LOSSES)
AWKWARD = st.floats(width=32)


@each_loss
@pytest.mark.parametrize("shape", [(5,), (2, 5)])
def test_a_losss_gradient_is_its_gradient(loss: Loss, classes: int, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(shape[0], classes, *shape[1:], generator=generator, dtype=torch.float64)
    targets = torch.randint(classes, shape, generator=generator)
    (expected,) = torch.autograd.grad(loss(outputs.requires_grad_(), targets), outputs)
    assert torch.allclose(loss.gradient(outputs.detach(), targets), expected, rtol=1e-12, atol=1e-14)
    if len(shape) > 1:
        assert torch.equal(
            loss.gradient(outputs.detach(), targets[0]), loss.gradient(outputs.detach(), targets[:1].expand(shape))
        )


def test_the_gradient_of_several_labels_is_its_gradient_and_bounded_as_a_whole() -> None:
    generator, loss = torch.Generator().manual_seed(1), BinaryCrossEntropy()
    outputs = 5 * torch.randn(6, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(2, (6, 4), generator=generator).float()
    (expected,) = torch.autograd.grad(loss(outputs.requires_grad_(), targets), outputs)
    assert torch.allclose(loss.gradient(outputs.detach(), targets), expected, rtol=1e-12, atol=1e-14)
    assert float(expected.norm(dim=1).max()) <= 1 / math.sqrt(4), "at most 1 / 4 by each of four outputs"
    alone = sum(float(loss(outputs[row : row + 1].detach(), targets[row : row + 1])) for row in range(6))
    assert float(loss(outputs.detach(), targets)) == pytest.approx(alone)
    unlikely = loss.unlikely_targets(outputs.detach())
    assert bool((loss.gradient(outputs.detach(), unlikely).norm(dim=1) > 0.1).all())


def test_the_quality_of_several_labels_is_the_share_of_right_ones() -> None:
    outputs = torch.tensor([[1.0, -2.0, 3.0, -1.0], [0.5, 0.5, math.nan, math.inf], [0.0, 0.0, -math.inf, -1.0]])
    targets = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert BinaryCrossEntropy().quality(outputs, targets).tolist() == [0.75, 0.25, 0.75]


def test_losses_are_the_papers() -> None:
    outputs = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]], dtype=torch.float64)
    assert float(CrossEntropy()(outputs, torch.tensor([1, 0]))) == pytest.approx(math.log(4 / 3) + math.log(2))
    smoothed = CrossEntropy(label_smoothing=0.2)(outputs[:1], torch.tensor([1]))
    assert float(smoothed) == pytest.approx(0.9 * math.log(4 / 3) + 0.1 * math.log(4)), "targets of .1 and .9"
    numbers = torch.tensor([[1.0], [2.5]])
    targets = torch.tensor([0.0, 2.0])
    assert float(SquaredError()(numbers, targets)) == pytest.approx((1 + 0.25) / 2)
    assert float(AbsoluteError()(numbers, targets)) == pytest.approx(1 + 0.5)
    assert float(Huber(delta=0.6)(numbers, targets)) == pytest.approx(0.6 * (1 - 0.3) + 0.25 / 2)


def test_quality_is_being_right_or_near() -> None:
    outputs = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    assert CrossEntropy().quality(outputs, torch.tensor([1, 1])).tolist() == [1.0, 0.0]
    numbers = torch.tensor([[1.0], [2.0], [9.0]])
    assert SquaredError(cap=4.0).quality(numbers, torch.tensor([1.0, 3.0, 3.0])).tolist() == [1.0, 0.75, 0.0]


@each_number_loss
def test_the_mean_error_follows_from_the_mean_quality(loss: NumberLoss) -> None:
    generator = torch.Generator().manual_seed(4)
    outputs, targets = torch.rand(50, 1, generator=generator), torch.rand(50, generator=generator)
    errors = (outputs[:, 0] - targets).abs()
    means = {"root mean squared error": errors.square().mean().sqrt(), "mean absolute error": errors.mean()}
    for one in (loss, loss.other_error):
        assert one.mean_error(float(one.quality(outputs, targets).mean())) == pytest.approx(
            float(means[one.error_name]), rel=1e-4
        )
    assert {loss.error_name, loss.other_error.error_name} == set(means)
    assert loss.mean_error(1.0) == 0
    assert loss.mean_error(0.0) == loss.other_error.mean_error(0.0) == 2


@pytest.mark.parametrize("kind", [SquaredError, AbsoluteError, Huber])
@given(output=AWKWARD, target=AWKWARD, cap=st.floats(1e-6, 1e6))
def test_quality_is_never_outside_its_bounds(kind: Any, output: float, target: float, cap: float) -> None:
    """The price of a private score rests on it."""
    numbers = kind(cap=cap).quality(torch.tensor([[output]]), torch.tensor([target]))
    classes = CrossEntropy().quality(torch.tensor([[output, target]]), torch.tensor([1]))
    for quality in (numbers, classes):
        assert quality.shape == (1,)
        assert 0 <= float(quality) <= 1
    if not math.isfinite(output):
        assert float(numbers) == 0


@each_loss
def test_no_loss_of_unlikely_targets_is_flat(loss: Loss, classes: int) -> None:
    outputs = torch.randn(6, classes, generator=torch.Generator().manual_seed(2))
    assert bool((loss.gradient(outputs, loss.unlikely_targets(outputs)).norm(dim=1) > 0.1).all())


@pytest.mark.parametrize(
    ("loss", "classes", "other"),
    [
        (CrossEntropy(), 1, "squared_error"),
        *((loss, 2, "cross_entropy") for loss in (SquaredError(), AbsoluteError(), Huber())),
    ],
)
def test_labels_of_the_other_kind_are_refused(loss: Loss, classes: int, other: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected dataset\.classes={classes} .*; use loss={other}\.$"):
        loss.check(classes)


@pytest.mark.parametrize("cap", [0.0, -1.0, math.inf, math.nan])
def test_the_cap_is_a_bound(cap: float) -> None:
    for kind in (SquaredError, AbsoluteError, Huber):
        with pytest.raises(ValueError, match=r"^Expected cap="):
            kind(cap=cap)
    with pytest.raises(ValueError, match=r"^Expected loss\.delta="):
        Huber(delta=cap)


def test_a_weight_changes_no_loss_no_gradient_and_no_quality() -> None:
    """It multiplies gradients that are bounded: a factor on a loss is cancelled or cut off by the bound."""
    outputs, plain = torch.randn(4, 2, generator=torch.Generator().manual_seed(3)), CrossEntropy()
    weighted, targets = CrossEntropy(class_weights=(1.0, 20.0)), torch.tensor([0, 1, 0, 1])
    for name in ("__call__", "gradient", "quality"):
        assert torch.equal(getattr(weighted, name)(outputs, targets), getattr(plain, name)(outputs, targets))


@pytest.mark.parametrize("loss", [CrossEntropy(), BinaryCrossEntropy(), SquaredError(), Huber()])
def test_without_declared_weights_all_are_1(loss: Loss) -> None:
    assert example_weights(loss, torch.tensor([0, 1, 1])).tolist() == [1, 1, 1]
    assert default_rate_factor(loss) == 1


@given(weights=st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=9))
def test_a_weight_is_the_classs_over_the_largest_and_at_most_1(weights: list[float]) -> None:
    """The sensitivity rests on it, so rounding counts, also in float32."""
    found = example_weights(CrossEntropy(class_weights=tuple(weights)), torch.arange(len(weights)))
    assert found.tolist() == pytest.approx([weight / max(weights) for weight in weights], rel=1e-12)
    assert float(found.min()) >= 0
    assert float(found.max()) == float(found.float().max()) == 1


@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, -2.0), (1.0, math.inf), (1.0, math.nan), "ab", 3.0])
def test_weights_are_positive_numbers(weights: Any) -> None:
    with pytest.raises(ValueError, match=r"^Expected loss\.class_weights="):
        CrossEntropy(class_weights=weights)


def test_weights_are_given_for_every_class() -> None:
    with pytest.raises(ValueError, match=r"to have a weight for each of dataset\.classes=3\.$"):
        CrossEntropy(class_weights=(1.0, 20.0)).check(3)


def test_one_label_of_two_values_is_a_class() -> None:
    with pytest.raises(
        ValueError, match=r"^Expected dataset\.classes=1 >= 2 labels with loss=binary_cross_entropy; .*"
    ):
        BinaryCrossEntropy().check(1)


class Own(CrossEntropy):
    """A loss of a user's own that keeps the contract, since all that it does is ours."""


class MeanOfBatch(Own):
    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().__call__(outputs, targets) / len(outputs)


class Contrastive(Own):
    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().__call__(outputs - outputs.mean(0), targets)


class LastDimension(Own):
    """Right for [n, classes]; for several runs at once the softmax is over examples."""

    def gradient(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().gradient(outputs, targets) + outputs.softmax(dim=-1) - outputs.softmax(dim=1)


class RelativeQuality(Own):
    def quality(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] > outputs[:, 0].mean()).to(outputs.dtype)


class LargeQuality(Own):
    def quality(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 2 + outputs[:, 0] ** 2


class Raising(Own):
    def gradient(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise KeyError("a mistake")


@pytest.mark.parametrize(
    ("loss", "mistake"),
    [
        (MeanOfBatch(), "Got the loss of a batch unlike"),
        (Contrastive(), "Got the loss of a batch unlike"),
        (LastDimension(), "Got the gradient of several runs of a batch unlike"),
        (RelativeQuality(), "Got the quality of a batch unlike"),
        (LargeQuality(), r"Got a quality outside \[0, 1\]"),
        (Raising(), "KeyError: 'a mistake'"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Loss) else "",
)
def test_an_own_loss_that_mixes_examples_is_refused(loss: Loss, mistake: str) -> None:
    name = type(loss).__name__
    with pytest.raises(ValueError, match=rf"^Expected loss=\S*\.{name} to keep the contract of .* {mistake}"):
        require_loss_of_each_example_alone(loss, 10)


@each_loss
def test_losses_that_keep_the_contract_are_accepted(loss: Loss, classes: int) -> None:
    own = type(f"Own{type(loss).__name__}", (type(loss),), {"__module__": "mine"})
    values = {field.name: getattr(loss, field.name) for field in fields(loss)}  # type: ignore[arg-type]
    require_loss_of_each_example_alone(own(**values), classes)
