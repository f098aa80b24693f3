"""Models: parameter counts, shapes, refusals, and initial weights from a generator of their own."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from dpsweep.trainers.models.convolutional import WeightStandardConv2d, cnn, resnet20, strided_cnn, vgg, wide_resnet
from dpsweep.trainers.models.fully_connected import TemperedSigmoid, linear, logistic, mlp, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
COUNTS = [
    (logistic, GREY, 10, 784 * 10 + 10),
    (logistic, (104,), 2, 104 * 2 + 2),
    (one_hidden, GREY, 10, 785 * 100 + 101 * 10),
    (one_hidden, (104,), 2, 105 * 100 + 101 * 2),
    (partial(mlp, widths=[100, 100], activation="tanh"), (54,), 7, 55 * 100 + 101 * 100 + 101 * 7),
    (partial(mlp, widths=[3, 4, 5]), COLOUR, 2, 3073 * 3 + 4 * 4 + 5 * 5 + 6 * 2),
    (cnn, GREY, 10, 260 + 5020 + 321 * 50 + 51 * 10),
    (cnn, COLOUR, 10, 760 + 5020 + 501 * 50 + 51 * 10),
    (strided_cnn, GREY, 10, 65 * 16 + 257 * 16 * 2 + 513 * 32 + 33 * 10),
    (strided_cnn, COLOUR, 10, 193 * 16 + 257 * 16 * 2 + 801 * 32 + 33 * 10),
    (vgg, COLOUR, 10, 28 * 32 + 289 * (32 + 64) + 577 * (64 + 128) + 1153 * 128 + 2049 * 128 + 129 * 10),
    (wide_resnet, COLOUR, 10, 2753818),
    (partial(wide_resnet, depth=10, widening=1, groups=4), GREY, 10, 78938 - 2 * 9 * 16),
    (resnet20, COLOUR, 10, 269722),
    (resnet20, GREY, 10, 269722 - 2 * 9 * 16),
]


@pytest.mark.parametrize(("factory", "shape", "classes", "count"), COUNTS)
def test_parameter_counts_and_output_shapes(factory, shape, classes, count) -> None:
    model = build_model_with_seeded_weights(lambda: factory(shape, classes), 1)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert model(torch.zeros(3, *shape)).shape == (3, classes)
    assert model(torch.zeros(0, *shape)).shape == (0, classes)


def test_resnet20_has_its_nineteen_convolutions_and_halves_twice() -> None:
    model = build_model_with_seeded_weights(lambda: resnet20(COLOUR, 10), 1)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(nn.Conv2d) == 19
    assert kinds.count(nn.GroupNorm) == 19
    features = nn.Sequential(*list(model.children())[:-3])
    assert features(torch.zeros(1, *COLOUR)).shape == (1, 64, 8, 8)


def test_resnet20_shortcuts_carry_the_image_where_the_branch_is_silent() -> None:
    model = build_model_with_seeded_weights(lambda: resnet20(COLOUR, 10), 1)
    widening = next(block for block in model.children() if getattr(block, "stride", 1) == 2)
    for parameter in widening.parameters():
        nn.init.zeros_(parameter)
    images = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(1))
    out = widening(images)
    assert out.shape == (2, 32, 4, 4)
    assert torch.equal(out[:, 8:24], images[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


@pytest.mark.parametrize("factory", [cnn, strided_cnn, vgg, resnet20, wide_resnet])
@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 7, 28), (1, 2, 3, 4)])
def test_image_models_refuse_what_is_no_image(factory, shape) -> None:
    with pytest.raises(ValueError, match=r"^Expected shape=.* to be \(channels, height, width\), at least"):
        factory(shape, 10)


def test_the_smallest_images_fit() -> None:
    for factory in (cnn, strided_cnn, vgg):
        assert factory((1, 16, 16), 10)(torch.zeros(1, 1, 16, 16)).shape == (1, 10)
    assert resnet20((1, 8, 8), 10)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


@pytest.mark.parametrize(
    "factory", [logistic, mlp, one_hidden, cnn, strided_cnn, vgg, resnet20, partial(wide_resnet, depth=10)]
)
def test_initial_weights_depend_on_the_seed_alone(factory) -> None:
    def weights(seed: int) -> torch.Tensor:
        return nn.utils.parameters_to_vector(
            build_model_with_seeded_weights(partial(factory, COLOUR, 10), seed).parameters()
        )

    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = weights(3)
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])
    torch.rand(5)
    assert torch.equal(weights(3), first)
    torch.set_rng_state(state)
    assert not torch.equal(weights(4), first)


def test_initial_weights_follow_torchs_own_rule() -> None:
    model = build_model_with_seeded_weights(
        lambda: nn.Sequential(nn.Conv2d(3, 50, 5), nn.GroupNorm(2, 50), nn.Linear(75, 200)), 1
    )
    convolution, norm, linear = model
    for layer in (convolution, linear):
        limit = 1 / math.sqrt(75)
        for values in (layer.weight, layer.bias):
            assert values.abs().max() <= limit
            assert values.abs().max() > 0.9 * limit
        assert float(layer.weight.detach().std()) == pytest.approx(limit / math.sqrt(3), rel=0.05)
    assert bool((norm.weight == 1).all())
    assert bool((norm.bias == 0).all())


@pytest.mark.parametrize("layer", [nn.Bilinear(3, 3, 3), nn.PReLU(), nn.LSTM(3, 3)])
def test_layers_without_a_known_rule_are_refused_by_name(layer) -> None:
    with pytest.raises(ValueError, match=rf"^Expected 1={type(layer).__name__} to be"):
        build_model_with_seeded_weights(lambda: nn.Sequential(nn.Linear(3, 3), layer), 1)


def test_layers_that_mix_examples_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^Expected 1=BatchNorm1d to treat every example on its own"):
        build_model_with_seeded_weights(lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), 1)


def test_linear_regression_answers_with_one_number_and_so_not_with_classes() -> None:
    model = build_model_with_seeded_weights(lambda: linear((2, 3), 1), 1)
    assert sum(parameter.numel() for parameter in model.parameters()) == 7
    assert model(torch.zeros(4, 2, 3)).shape == (4, 1)
    for classes in (2, 10):
        with pytest.raises(ValueError, match=f"^Expected classes={classes} <= 1 for model=linear; model=logistic"):
            linear((2, 3), classes)


def test_one_hidden_is_the_mlp_of_one_width_with_the_weights_that_it_always_had() -> None:
    before = build_model_with_seeded_weights(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3)), 5
    )
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    for factory in (partial(one_hidden, width=7), partial(mlp, widths=(7,))):
        assert torch.equal(build_model_with_seeded_weights(lambda f=factory: f((4,), 3), 5)(inputs), before(inputs))
    assert not torch.equal(
        build_model_with_seeded_weights(lambda: one_hidden((4,), 3, width=7, activation="tanh"), 5)(inputs),
        before(inputs),
    )


@pytest.mark.parametrize(
    ("numbers", "exact"),
    [
        ({}, torch.tanh),
        ({"scale": 1, "temperature": 1, "offset": 0}, torch.sigmoid),
        ({"scale": 1.5, "temperature": 3.0, "offset": 0.7}, lambda x: 1.5 / (1 + torch.exp(-3 * x)) - 0.7),
    ],
)
def test_tempered_sigmoids_are_the_papers(numbers, exact) -> None:
    values = torch.linspace(-5, 5, 101, dtype=torch.float64)
    assert torch.allclose(TemperedSigmoid(**numbers)(values), exact(values), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("factory", [cnn, strided_cnn, vgg, partial(mlp, widths=(8, 8))])
def test_every_hidden_layer_has_the_activation_that_was_asked_for(factory) -> None:
    tempering = {"scale": 1.5, "temperature": 3.0, "offset": 0.7}
    kinds = [type(module) for module in factory(GREY, 10, activation="tanh")]
    assert kinds.count(nn.Tanh) >= 2
    assert nn.ReLU not in kinds
    layers = list(factory(GREY, 10, activation="tempered_sigmoid", tempering=tempering))
    tempered = [layer for layer in layers if isinstance(layer, TemperedSigmoid)]
    assert len(tempered) == kinds.count(nn.Tanh)
    assert all(vars(layer).items() >= tempering.items() for layer in tempered)
    assert nn.Tanh in map(type, factory(GREY, 10, activation="tanh", tempering={"scale": 2.0, "offset": 1}))


@pytest.mark.parametrize("factory", [mlp, cnn, strided_cnn, vgg])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "reul"}, "Expected activation=reul to be one of relu, tanh, tempered_sigmoid."),
        ({"activation": ["relu"]}, r"Expected activation=\['relu'\] to be one of"),
        (
            {"tempering": {"scale": 3.0}},
            "Expected activation=(relu|tanh) to be tempered_sigmoid, since tempering={'scale': 3",
        ),
        ({"activation": "tempered_sigmoid", "tempering": {"scale": 0}}, "Expected scale=0 > 0."),
        ({"activation": "tempered_sigmoid", "tempering": {"temperature": -1}}, "Expected temperature=-1 > 0."),
        ({"activation": "tempered_sigmoid", "tempering": {"offset": math.nan}}, "Expected offset=nan to be finite."),
    ],
)
def test_activations_validate_their_fields(factory, options, message) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        factory(GREY, 10, **options)


@pytest.mark.parametrize("widths", [100, "100", [], None])
def test_widths_are_a_list(widths) -> None:
    with pytest.raises(TypeError, match=r"^Expected widths=.* to be a list of at least one integer.$"):
        mlp(GREY, 10, widths=widths)


def test_each_width_is_a_positive_integer() -> None:
    with pytest.raises(ValueError, match=r"^Expected widths\[1\]=0 >= 1.$"):
        mlp(GREY, 10, widths=[3, 0])


def test_wide_resnets_have_their_layers_in_the_papers_order() -> None:
    model = build_model_with_seeded_weights(lambda: wide_resnet(COLOUR, 10), 1)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(WeightStandardConv2d) == 13 + 3, "16 layers less the last, and three shortcuts"
    assert nn.Conv2d not in kinds
    (last,) = (module for module in model.modules() if isinstance(module, nn.Linear))
    assert last.in_features == 4 * 64
    assert all(norm.num_groups == 16 for norm in model.modules() if isinstance(norm, nn.GroupNorm))
    branch = [type(module) for module in list(model.children())[1].residual[0]]
    assert branch == [nn.ReLU, nn.GroupNorm, WeightStandardConv2d]
    features = nn.Sequential(*list(model.children())[:-3])
    assert features(torch.zeros(1, *COLOUR)).shape == (1, 256, 8, 8)


def test_wide_resnet_shortcuts_carry_the_image_where_the_branch_is_silent() -> None:
    first, second = list(build_model_with_seeded_weights(lambda: wide_resnet(GREY, 10, widening=1), 1).children())[1:3]
    for block in (first, second):
        nn.init.zeros_(block.residual[-1][-1].gain)
        nn.init.zeros_(block.residual[-1][-1].bias)
    images = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(second(images), images)
    assert torch.equal(first(images), first.shortcut(images))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 4}, "Expected depth=4 to be 10, 16, 22"),
        ({"depth": 18}, "Expected depth=18 to be 10, 16, 22"),
        ({"widening": 0}, "Expected widening=0 >= 1."),
        ({"groups": 3}, "Expected groups=3 to divide 16."),
    ],
)
def test_wide_resnets_validate_their_sizes(options, message) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        wide_resnet(COLOUR, 10, **options)


def test_standardized_weights_have_mean_zero_and_their_gains_for_norms() -> None:
    layer = build_model_with_seeded_weights(lambda: WeightStandardConv2d(3, 5, 3), 1).double()
    with torch.no_grad():
        layer.weight.mul_(7).add_(3)
        layer.gain.copy_(torch.arange(1.0, 6.0))
    ones = torch.eye(27, dtype=torch.float64).view(27, 3, 3, 3)
    seen = (layer(ones) - layer.bias[:, None, None]).flatten(1)
    assert torch.allclose(seen.mean(dim=0), torch.zeros(5, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(seen.norm(dim=0), torch.arange(1.0, 6.0, dtype=torch.float64))


def test_gains_start_at_one() -> None:
    layer = build_model_with_seeded_weights(lambda: WeightStandardConv2d(3, 5, 3), 1)
    assert bool((layer.gain == 1).all())
    assert bool((layer.bias != 1).all())


def test_words_start_as_torch_would_draw_them() -> None:
    table = build_model_with_seeded_weights(lambda: nn.Embedding(50, 40, padding_idx=3), 1)
    assert not table.weight[3].any()
    assert float(table.weight.detach().std()) == pytest.approx(1, abs=0.05)
    assert torch.equal(
        table.weight, build_model_with_seeded_weights(lambda: nn.Embedding(50, 40, padding_idx=3), 1).weight
    )
