"""The fused engine on images: every way to a convolution's gradients, in every layout and chunk."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import conv2d

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task, Unsupported
from dpsweep.trainers.engines.layers import (
    Geometry,
    _image_convolution_weight_gradients,
    _weight_gradients_by_channel_windows,
    _weight_gradients_by_grouped_convolution,
    _weight_gradients_by_position_windows,
)
from dpsweep.trainers.methods.transforms import Clip, Normalize
from dpsweep.trainers.models.convolutional import WeightStandardConv2d, gradients_by_weight_and_gain, standardize_weight
from tests.exactness import CLASSES, EXACT, Model, assert_exact, filled, noise


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    channels=st.lists(st.sampled_from([1, 3, 4, 16]), min_size=1, max_size=2),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    bias=st.booleans(),
    residual=st.booleans(),
    size=st.tuples(st.integers(7, 9), st.integers(7, 9)),
    examples=st.integers(1, 4),
)
def test_random_convolutions_are_exact(channels, kernel, stride, padding, bias, residual, size, examples) -> None:
    stem = nn.Conv2d(2, channels[0], kernel, stride, padding, bias=bias)
    rest = [nn.Conv2d(channels[0], channels[-1], 3, padding=1, bias=bias), nn.GroupNorm(1, channels[-1]), nn.ELU()]

    def forward(self: nn.Module, images: Tensor) -> Tensor:
        first = self.stem(images).tanh()
        second = self.rest(first)
        return self.head((second + first.mean(dim=1, keepdim=True) if residual else second).mean(dim=(2, 3)))

    model = filled(Model(forward, stem=stem, rest=nn.Sequential(*rest), head=nn.Linear(channels[-1], CLASSES)))
    assert_exact(model, noise(examples, 2, *size), Normalize(regularizer=0.1), 3)


@pytest.mark.parametrize("channels", [1, 2, 5, 16])
@pytest.mark.parametrize("chunk", [1, 2, 17, 18, 40])
def test_the_weighted_sum_of_convolutions_is_exact_for_every_chunk(channels, chunk) -> None:
    model = filled(nn.Sequential(nn.Conv2d(channels, 3, 2, (2, 1), (1, 0)), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)))
    assert_exact(model, noise(35, channels, 5, 5), Clip(clip_norm=0.5), chunk)


@pytest.mark.parametrize("channels", [1, 3])
def test_pooled_images_are_exact_in_their_own_layout_and_the_weights_stay_where_they_were(channels) -> None:
    model = filled(
        nn.Sequential(
            nn.Conv2d(channels, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 5, 2), nn.Flatten(), nn.Linear(20, 3)
        )
    )
    places = [(weight.data_ptr(), weight.stride()) for weight in model.parameters()]
    assert_exact(model, noise(5, channels, 8, 8), Clip(clip_norm=0.5), 3)
    assert [(weight.data_ptr(), weight.stride()) for weight in model.parameters()] == places
    with pytest.raises(IndexError, match="Target 99"):
        Fused().bounded_gradient_sum_and_norms(
            model,
            Minibatch(noise(5, channels, 8, 8), torch.full((5,), 99)),
            Task(transform=Clip(clip_norm=0.5), chunk=3),
        )
    assert [(weight.data_ptr(), weight.stride()) for weight in model.parameters()] == places


def test_a_model_that_views_its_images_as_rows_is_taken_in_the_layout_that_allows_it() -> None:
    layers = {"a": nn.Conv2d(1, 4, 3), "pool": nn.MaxPool2d(2), "b": nn.Linear(36, 3)}
    model = Model(lambda self, x: self.b(self.pool(self.a(x)).view(-1, 36)), **layers)
    assert_exact(filled(model), noise(5, 1, 8, 8), Clip(clip_norm=0.5), 3)


@pytest.mark.parametrize(
    "way",
    [
        _weight_gradients_by_grouped_convolution,
        _weight_gradients_by_position_windows,
        _weight_gradients_by_channel_windows,
        _image_convolution_weight_gradients,
    ],
)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [((3, 2), (1, 2), (1, 0)), ((1, 1), (2, 1), (0, 0)), ((2, 5), (3, 2), (0, 2)), ((3, 3), (2, 3), (2, 1))],
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("chunk", [1, 5, 18])
def test_every_way_to_a_convolutions_gradients_is_exact(way, kernel, stride, padding, layout, chunk) -> None:
    layer = filled(nn.Conv2d(3, 4, kernel, stride, padding))
    inputs = noise(18, 3, 7, 8).contiguous(memory_format=layout)
    gradient = noise(*layer(inputs).shape, seed=3).contiguous(memory_format=layout)
    parts = zip(torch.split(inputs, chunk), torch.split(gradient, chunk), strict=True)
    found_parts = [way(Geometry.from_layer(layer), *part) for part in parts]
    rows = [rows for part in found_parts for rows in (part if isinstance(part, tuple) else (part,))]
    for row, found in enumerate(torch.cat(rows)):
        weight = layer.weight.detach().clone().requires_grad_()
        output = conv2d(inputs[row : row + 1], weight, None, stride, padding)
        (alone,) = torch.autograd.grad(output, weight, gradient[row : row + 1])
        assert torch.allclose(found, alone, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("channels", [1, 3, 16])
@pytest.mark.parametrize("frozen", [(), ("weight",), ("gain",), ("weight", "bias")])
def test_standardized_convolutions_are_exact(channels, frozen) -> None:
    layer = WeightStandardConv2d(channels, 4, 3, 2, 1)
    model = filled(nn.Sequential(layer, nn.Tanh(), WeightStandardConv2d(4, 3, 1), nn.Flatten(), nn.Linear(27, 3)))
    for name in frozen:
        getattr(layer, name).requires_grad_(False)
    assert_exact(model, noise(5, channels, 6, 5), Clip(clip_norm=0.5), 3)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 0.0])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_by_weights_that_hardly_vary_are_pulled_back_too(scale, layout) -> None:
    weight, gain, rows = 0.3 + scale * noise(4, 3, 2, 2), noise(4, seed=2), noise(6, 4, 3, 2, 2, seed=3)
    _, pull = torch.func.vjp(standardize_weight, weight, gain)
    expected = [pull(row) for row in rows]
    found = gradients_by_weight_and_gain(
        weight, gain, torch.stack([row.contiguous(memory_format=layout) for row in rows])
    )
    for row, (by_weight, by_gain) in enumerate(expected):
        assert torch.allclose(found[0][row], by_weight, rtol=1e-12, atol=1e-10)
        assert torch.allclose(found[1][row], by_gain, rtol=1e-12, atol=1e-12)


def test_a_gain_that_another_layer_brings_is_refused() -> None:
    layer = nn.Linear(4, 3)
    layer.gain = nn.Parameter(torch.ones(3))
    with pytest.raises(Unsupported, match="Linear to be called once in a pass, and the loss to depend on it"):
        Fused().bounded_gradient_sum_and_norms(
            layer, Minibatch(torch.ones(2, 4), torch.zeros(2, dtype=torch.int64)), Task(transform=Clip(clip_norm=1.0))
        )
