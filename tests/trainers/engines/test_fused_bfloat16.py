"""Products of bfloat16 factors: other gradients, the same guarantees."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.methods.transforms import Clip
from tests.exactness import CLASSES, filled
from tests.trainers.layer_models import CASES, Case

each_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
NARROW, WIDE = Fused(precision="bfloat16"), Fused()
FREE = Task(transform=Clip(clip_norm=1e6))


def batch(case: Case, examples: int) -> Minibatch:
    inputs = case.inputs(examples)
    return Minibatch(inputs.float() if inputs.is_floating_point() else inputs, torch.arange(examples) % CLASSES)


@each_case
def test_gradients_are_those_of_float32_up_to_rounding(case: Case) -> None:
    model, examples = filled(case.make()).float(), batch(case, 5)
    total, norms = NARROW.bounded_gradient_sum_and_norms(model, examples, FREE)
    expected, lengths = WIDE.bounded_gradient_sum_and_norms(model, examples, FREE)
    assert float((total - expected).norm()) <= 0.05 * float(lengths.sum())
    assert torch.allclose(norms, lengths, rtol=0.05)


@each_case
def test_what_an_example_adds_is_as_long_as_its_norm_says_and_never_above_the_bound(case: Case) -> None:
    model, examples = filled(case.make()).float(), batch(case, 4)
    for place in range(4):
        one = examples[place : place + 1]
        total, norms = NARROW.bounded_gradient_sum_and_norms(model, one, FREE)
        length = float(norms)
        assert length * (1 - 2.0**-12) <= float(total.norm()) <= length * (1 + 1e-7)
        for share in (0.01, 0.5, 0.999):
            clipped, _ = NARROW.bounded_gradient_sum_and_norms(
                model, one, Task(transform=Clip(clip_norm=share * length))
            )
            assert 0.999 * share * length <= float(clipped.norm()) <= share * length


@each_case
def test_who_joins_a_batch_changes_nothing_of_what_the_others_add(case: Case) -> None:
    """A sum that rounds by 2**-8 would show the smallest dependence of one example's rounding on another."""
    model, examples = filled(case.make()).float(), batch(case, 7)
    task = Task(transform=Clip(clip_norm=0.5), chunk=4)

    def total(*places: int) -> Tensor:
        weights = torch.zeros(7)
        weights[[*places]] = 1
        return NARROW.bounded_gradient_sum_and_norms(model, replace(examples, weights=weights), task)[0]

    rounding = 4 * 3**2 * 2.0**-24 * 0.5  # of a block of three
    assert float((total(*range(7)) - total(*range(6)) - total(6)).norm()) <= rounding


def test_the_precision_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"^Expected precision=half to be float32 or bfloat16\.$"):
        Fused(precision="half")
    with pytest.raises(ValueError, match=r"^Expected precision=half"):
        Auto(precision="half")
    assert replace(NARROW, precision="float32") == WIDE
    assert Auto(precision="bfloat16") != Auto()


def test_auto_hands_its_precision_on() -> None:
    case = CASES["Linear"]
    model, examples = filled(case.make()).float(), batch(case, 5)
    totals = [
        engine.bounded_gradient_sum_and_norms(model, examples, FREE)[0]
        for engine in (Auto(precision="bfloat16"), NARROW, Auto())
    ]
    assert torch.equal(totals[0], totals[1])
    assert not torch.equal(totals[0], totals[2])
