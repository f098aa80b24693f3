"""Every layer of the fused engine: exact against single examples, never above the bound, never shortened below it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dpsweep.trainers.engines.fused import COMPOSITES, Fused, layers_to_record
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.layers import LAYERS
from dpsweep.trainers.engines.recorders import COPIED
from dpsweep.trainers.methods.transforms import Clip, Normalize
from tests.exactness import CLASSES, assert_exact, filled, rows_alone
from tests.trainers.layer_models import CASES, Case

each_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def test_every_rule_and_every_composite_has_a_model_here() -> None:
    kinds = {case.kind for case in CASES.values()} | {type(layer) for layer in convolution_with_standard_weights()}
    assert kinds >= {*LAYERS, *COPIED, *COMPOSITES}


def convolution_with_standard_weights() -> list[nn.Module]:
    """The one layer that tests/trainers/engines/test_layers_convolutions.py has models of."""
    return [make(1, 1, 1) for make in LAYERS if make.__module__.startswith("dpsweep.")]


@each_case
def test_a_layer_is_recorded_as_the_table_says(case: Case) -> None:
    treatments = {layer.treatment for layer in layers_to_record(case.make()) if type(layer.module) is case.kind}
    assert treatments == {case.treatment}


@each_case
@pytest.mark.parametrize("chunk", [2, None])
def test_sums_and_norms_are_those_of_single_examples(case: Case, chunk: int | None) -> None:
    model, inputs = filled(case.make()), case.inputs(5)
    for transform in (Clip(clip_norm=0.2), Clip(clip_norm=1e4), Normalize(regularizer=0.1)):
        assert_exact(model, inputs, transform, chunk)


@each_case
def test_what_an_example_adds_in_float32_never_exceeds_the_bound_nor_falls_short_of_it(case: Case) -> None:
    """Below the bound it is the gradient itself."""
    model = filled(case.make()).float()
    inputs = case.inputs(4)
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    exact = rows_alone(filled(case.make()), case.inputs(4), torch.arange(4) % CLASSES).norm(dim=1)
    for example in range(4):
        for bound in (0.5 * float(exact[example]), 2 * float(exact[example])):
            total, norms = added(model, inputs, example, Clip(clip_norm=bound))
            assert float(norms) == pytest.approx(float(exact[example]), rel=1e-3)
            length = float(total.norm())
            assert length <= min(bound, float(norms) * (1 + 1e-7))
            assert length == pytest.approx(min(bound, float(exact[example])), rel=1e-3)


def added(model: nn.Module, inputs: Tensor, example: int, transform: Clip) -> tuple[Tensor, Tensor]:
    batch = Minibatch(inputs[example : example + 1], torch.tensor([example % CLASSES]))
    return Fused().bounded_gradient_sum_and_norms(model, batch, Task(transform=transform))


@each_case
def test_who_joins_a_batch_changes_nothing_of_what_the_others_add(case: Case) -> None:
    model, inputs, targets = filled(case.make()).float(), case.inputs(7), torch.arange(7) % CLASSES
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    task, engine = Task(transform=Clip(clip_norm=0.5), chunk=4), Fused()

    def total(*taken: int) -> Tensor:
        """The sum where these places are taken, and the others blank."""
        weights = torch.zeros(7).index_fill_(0, torch.tensor(taken), 1.0)
        rows = torch.zeros_like(inputs)
        rows[list(taken)] = inputs[list(taken)]
        return engine.bounded_gradient_sum_and_norms(model, Minibatch(rows, targets * weights.long(), weights), task)[0]

    rounding = 4 * 3**2 * 2.0**-24 * 0.5  # of a block of three
    assert float((total(*range(7)) - total(*range(6)) - total(6)).norm()) <= rounding
    weights, others = (torch.arange(7) == 5).float(), inputs.flip(0)
    others[5], others[0] = inputs[5], 0
    alone = [
        engine.bounded_gradient_sum_and_norms(model, Minibatch(rows, targets, weights), task)[0]
        for rows in (inputs, others)
    ]
    assert torch.equal(*alone), "the same bits, whatever the others are"


@each_case
def test_a_broken_example_adds_nothing(case: Case) -> None:
    if case.words:
        pytest.skip("words are whole numbers")
    model, inputs, targets = filled(case.make()), case.inputs(4), torch.arange(4) % CLASSES
    inputs[1] = torch.nan
    others = torch.tensor([0, 2, 3])
    task = Task(transform=Clip(clip_norm=0.5))
    total, norms = Fused().bounded_gradient_sum_and_norms(model, Minibatch(inputs, targets), task)
    alone, _ = Fused().bounded_gradient_sum_and_norms(model, Minibatch(inputs[others], targets[others]), task)
    assert not norms[1].isfinite()
    assert torch.allclose(total, alone, rtol=1e-10)


@each_case
def test_the_model_is_left_plain(case: Case) -> None:
    model, inputs = case.make().eval(), case.inputs(3)
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    model = model.float()

    def traces() -> list[object]:
        modules = [(sorted(vars(module)), module.training, len(module._forward_hooks)) for module in model.modules()]
        return [modules, [(p.grad, p.requires_grad) for p in model.parameters()]]

    before, weights = traces(), [parameter.clone() for parameter in model.parameters()]
    Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, torch.zeros(3, dtype=torch.int64)), Task(transform=Clip(clip_norm=1))
    )
    assert traces() == before
    assert all(torch.equal(old, new) for old, new in zip(weights, model.parameters(), strict=True))
