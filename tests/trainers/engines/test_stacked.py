"""Stacked models: each run's sum is that of torch's own gradients, example by example, and nobody disturbs anybody."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parameters_to_vector

from dpsweep.trainers.declarations.losses import CrossEntropy, Loss, SquaredError
from dpsweep.trainers.engines.stacked import ELEMENTWISE, Examples, Stack
from dpsweep.trainers.methods.transforms import Clip, GradientTransform, Normalize, join_transforms_of_runs
from dpsweep.trainers.models.fully_connected import logistic, mlp, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights

FEATURES, CLASSES, RUNS, EXAMPLES = 6, 3, 4, 9


def deep() -> nn.Module:
    inner = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh())
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 5), nn.SiLU(), inner, nn.Linear(4, CLASSES))


def line() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 1))


def ray() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 1, bias=False))


def loss_of(factory) -> Loss:
    return SquaredError() if factory in (line, ray) else CrossEntropy()


TEMPERING = {"scale": 1.5, "temperature": 3.0, "offset": 0.7}
MODELS = {
    "logistic": lambda: logistic((FEATURES,), CLASSES),
    "one hidden": lambda: one_hidden((FEATURES,), CLASSES, width=7),
    "tanh": lambda: mlp((FEATURES,), CLASSES, widths=[5, 4], activation="tanh"),
    "tempered": lambda: mlp((FEATURES,), CLASSES, widths=[5], activation="tempered_sigmoid", tempering=TEMPERING),
    "deep": deep,
    "line": line,
    "ray": ray,
}
TRANSFORMS = {
    "clip": [Clip(clip_norm=bound) for bound in (0.01, 0.5, 1.0, 1e6)],
    "normalize": [Normalize(regularizer=amount) for amount in (1e-6, 0.1, 1.0, 100.0)],
    "the same": [Clip(clip_norm=0.5)] * RUNS,
}
each_model = pytest.mark.parametrize("factory", MODELS.values(), ids=MODELS)
each_transform = pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
each_batch = pytest.mark.parametrize("common", [True, False], ids=["common", "own"])


def models(factory, dtype: torch.dtype) -> list[nn.Module]:
    return [build_model_with_seeded_weights(factory, seed).to(dtype) for seed in range(RUNS)]


def weights_of(models: list[nn.Module]) -> Tensor:
    return torch.stack([parameters_to_vector(model.parameters()).detach() for model in models])


def batch(common: bool, dtype: torch.dtype, examples: int = EXAMPLES) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(examples)
    shape = (examples,) if common else (RUNS, examples)
    inputs = torch.randn(*shape, FEATURES, generator=generator, dtype=torch.float64).to(dtype)
    return inputs, torch.randint(CLASSES, shape, generator=generator)


def gradients(model: nn.Module, inputs: Tensor, targets: Tensor, loss) -> Tensor:
    """torch's own gradients [n, P] in float64."""
    model = model.double()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def of_one(parameters, example, target):
        return loss(functional_call(model, parameters, (example[None],)), target[None])

    found = vmap(grad(of_one), in_dims=(None, 0, 0))(parameters, inputs.double(), targets)
    return torch.cat([gradient.flatten(1) for gradient in found.values()], dim=1)


def expected(factory, transforms, inputs: Tensor, targets: Tensor, there: Tensor | None) -> Tensor:
    loss, sums = loss_of(factory), []
    for run, (model, transform) in enumerate(zip(models(factory, torch.float64), transforms, strict=True)):
        own = (inputs, targets) if inputs.ndim == 2 else (inputs[run], targets[run])
        rows = gradients(model, *own, loss)
        factors = transform.factors(rows.norm(dim=1))
        sums.append((factors if there is None else factors * there[run]) @ rows)
    return torch.stack(sums)


def summed(
    factory,
    transforms: list[GradientTransform],
    inputs: Tensor,
    targets: Tensor,
    there: Tensor | None = None,
) -> Tensor:
    there = inputs.new_ones(inputs.shape[:-1]) if there is None else there
    rows = models(factory, inputs.dtype)
    weights = weights_of(rows)
    total = torch.zeros_like(weights, dtype=torch.float64)
    stack = Stack.from_model(rows[0], loss_of(factory))
    examples = Examples(inputs=inputs, targets=targets, lengths=stack.first_layer_input_norms_with_bias(inputs))
    stack.add_bounded_gradient_sums(total, weights, examples, there, join_transforms_of_runs(transforms, weights))
    return total


@each_model
@each_transform
@each_batch
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_each_runs_sum_is_that_of_its_own_gradients(factory, transforms, common, dtype, tolerance) -> None:
    inputs, targets = batch(common, dtype)
    ours, theirs = summed(factory, transforms, inputs, targets), expected(factory, transforms, inputs, targets, None)
    for run in range(RUNS):
        assert float((ours[run].double() - theirs[run]).norm()) <= tolerance * float(theirs[run].norm())


@each_model
def test_whoever_is_not_there_adds_nothing(factory) -> None:
    inputs, targets = batch(False, torch.float64)
    there = torch.arange(EXAMPLES) < torch.tensor([9, 0, 4, 1])[:, None]
    inputs[~there] = math.nan
    ours = summed(factory, TRANSFORMS["clip"], inputs, targets, there)
    theirs = expected(factory, TRANSFORMS["clip"], inputs.nan_to_num(), targets, there)
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    assert not ours[1].any()


@each_batch
def test_a_model_with_one_output_is_trained_on_squares(common) -> None:
    inputs, _ = batch(common, torch.float64)
    targets = inputs.sum(dim=-1) / 2
    ours = summed(line, TRANSFORMS["clip"], inputs, targets)
    assert torch.allclose(ours, expected(line, TRANSFORMS["clip"], inputs, targets, None), rtol=1e-10)
    residual = (
        models(line, torch.float64)[3](inputs if common else inputs[3]).squeeze(1) - targets[None if common else 3]
    )
    own = inputs if common else inputs[3]
    assert torch.allclose(ours[3, :FEATURES], residual.detach().flatten() @ own, rtol=1e-9), "nothing is clipped at 1e6"


@each_model
@each_batch
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e38])
def test_a_broken_example_adds_exactly_nothing_to_anybody(factory, common, poison) -> None:
    inputs, targets = batch(common, torch.float32)
    healthy = [place for place in range(EXAMPLES) if place != 2]
    there = None if common else torch.ones(RUNS, EXAMPLES, dtype=torch.bool)
    without = summed(factory, TRANSFORMS["clip"], inputs[..., healthy, :], targets[..., healthy])
    inputs[..., 2, 0] = poison
    with_it = summed(factory, TRANSFORMS["clip"], inputs, targets, there)
    assert bool(with_it.isfinite().all())
    bounds = torch.tensor([transform.norm_bound for transform in TRANSFORMS["clip"]])
    moved = (with_it - without).norm(dim=1)
    if math.isfinite(poison):
        assert bool((moved <= bounds * (1 + 1e-4)).all())
    else:
        assert torch.allclose(with_it, without, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(
    scale=st.sampled_from([0.0, 1e-30, 1e-12, 1e-3, 1.0, 1e3, 1e12, 1e18]),
    bound=st.floats(1e-3, 1e3),
    seed=st.integers(0, 10**6),
    common=st.booleans(),
)
def test_one_examples_share_is_strictly_within_the_bound(scale, bound, seed, common) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = scale * torch.randn(*(() if common else (RUNS,)), 1, FEATURES, generator=generator)
    targets = torch.randint(CLASSES, inputs.shape[:-1], generator=generator)
    for factory in MODELS.values():
        for transforms in ([Clip(clip_norm=bound)] * RUNS, [Normalize(regularizer=k / bound) for k in range(1, 5)]):
            total = summed(factory, transforms, inputs, targets)
            for row, transform in zip(total, transforms, strict=True):
                assert float(row.double().norm()) <= transform.norm_bound


@each_model
def test_nobody_at_all(factory) -> None:
    for common in (True, False):
        assert not summed(factory, TRANSFORMS["clip"], *batch(common, torch.float32, examples=0)).any()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)), "0=Conv2d"),
        (nn.Sequential(nn.Linear(6, 3), nn.Flatten()), "1=Flatten"),
        (nn.Sequential(nn.Linear(6, 3), nn.ReLU(inplace=True), nn.Linear(3, 3)), "1=ReLU"),
        (nn.Sequential(nn.Linear(6, 3), nn.Softmax(dim=1), nn.Linear(3, 3)), "1=Softmax"),
        (nn.Sequential(nn.Linear(6, 3), nn.Sequential(nn.LayerNorm(3)), nn.Linear(3, 3)), "1.0=LayerNorm"),
        (type("Twisted", (nn.Linear,), {})(6, 3), "model=Twisted"),
    ],
)
def test_what_cannot_be_stacked_is_refused_by_name(model, name) -> None:
    with pytest.raises(ValueError, match=rf"^Expected {name} to "):
        Stack.from_model(model)


def test_shared_frozen_and_watched_parameters_are_refused() -> None:
    layer = nn.Linear(4, 4)
    frozen = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    frozen[0].bias.requires_grad_(False)
    for model in (nn.Sequential(layer, nn.Tanh(), layer), frozen):
        with pytest.raises(ValueError, match=r"^Expected all parameters of Sequential to be trained"):
            Stack.from_model(model)
    watched = nn.Sequential(nn.Linear(4, 2))
    watched[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"^Expected 0=Linear to have no hooks"):
        Stack.from_model(watched)
    with pytest.raises(ValueError, match="to end with a linear layer"):
        Stack.from_model(nn.Sequential(nn.Linear(4, 2), nn.Tanh()))


@pytest.mark.parametrize("kind", ELEMENTWISE, ids=lambda kind: kind.__name__)
def test_activations_take_each_number_by_itself(kind) -> None:
    values = torch.linspace(-3, 3, 24)
    assert torch.allclose(
        kind()(values.view(2, 3, 4)).flatten(), torch.stack([kind()(value) for value in values]), atol=1e-6
    )
