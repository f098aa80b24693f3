"""Models that mix examples, keep statistics or draw global randomness are refused; ours are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpsweep.trainers.models.checks import (
    are_outputs_probabilities,
    require_separate_examples,
    require_separate_passes,
)
from dpsweep.trainers.models.convolutional import cnn, resnet20, strided_cnn, wide_resnet
from dpsweep.trainers.models.fully_connected import logistic, mlp, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights


class Layer(nn.Module):
    """A layer given by a function, for what has no name of its own."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, values: Tensor) -> Tensor:
        return self.function(values)


class Counting(nn.Module):
    """A layer that remembers the mean of what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, values: Tensor) -> Tensor:
        with torch.no_grad():
            self.seen += values.mean(dim=0).to(self.seen)
        return values


class Averaging(nn.Module):
    """A layer that keeps the mean of what it saw in a frozen parameter, while it trains or while it does not."""

    def __init__(self, *, training: bool) -> None:
        super().__init__()
        self.when = training
        self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, values: Tensor) -> Tensor:
        if self.training == self.when:
            self.mean.copy_(values.detach().mean(dim=0))
        return values


def model(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 2))


@pytest.mark.parametrize("factory", [logistic, mlp, one_hidden, cnn, strided_cnn, resnet20, wide_resnet])
def test_our_models_pass_and_are_left_alone(factory) -> None:
    ours = factory((3, 32, 32), 10).eval()
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    state = torch.get_rng_state()
    require_separate_examples(ours, (3, 32, 32))
    assert torch.equal(state, torch.get_rng_state())
    assert not ours.training
    assert all(torch.equal(before[name], value) for name, value in ours.state_dict().items())
    assert all(parameter.grad is None for parameter in ours.parameters())


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm1d(4, affine=False, track_running_stats=False),
        nn.SyncBatchNorm(4),
        nn.LazyBatchNorm1d(),
        nn.InstanceNorm1d(4, track_running_stats=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_known_to_mix_are_refused_by_name(layer) -> None:
    with pytest.raises(ValueError, match=rf"^Expected 1={type(layer).__name__} to treat every example on its own"):
        require_separate_examples(model(layer), (4,))


def test_a_nested_layer_is_named_by_its_path() -> None:
    with pytest.raises(ValueError, match=r"^Expected 1.0=BatchNorm1d to treat"):
        require_separate_examples(model(nn.Sequential(nn.BatchNorm1d(4))), (4,))


@pytest.mark.parametrize(
    "function",
    [
        lambda values: values - values.mean(dim=0),
        lambda values: values - values.mean(dim=0).detach(),
        lambda values: values.flip(0),
        lambda values: values.cumsum(0),
        lambda values: values / values.norm(),
        lambda values: values * (values.detach().sum() > 0),
        lambda values: torch.cat([values[:1], values[:1], values[2:]]),
    ],
    ids=["centred", "centred in secret", "reversed", "cumulated", "normalized", "gated", "duplicated"],
)
def test_layers_that_mix_in_any_other_way_are_found_out(function) -> None:
    with pytest.raises(
        ValueError, match=r"^Expected 1=Layer to treat every example on its own; no engine can .* replace this layer\.$"
    ):
        require_separate_examples(build_model_with_seeded_weights(lambda: model(Layer(function)), 1), (4,))


class Gated(nn.Module):
    """Centres the batch behind a gate that a weight opens, in batches of some sizes."""

    def __init__(self, gate: Callable[[Tensor], Tensor] = torch.abs, when: Callable[[int], bool] = bool) -> None:
        super().__init__()
        self.gate, self.when, self.weight = gate, when, nn.Parameter(torch.zeros(()))

    def forward(self, values: Tensor) -> Tensor:
        return values - self.gate(self.weight) * values.mean(dim=0) if self.when(len(values)) else values


class Attentive(nn.Module):
    """Attention over four columns of one number; `batch_first` was forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(1, 1)
        nn.init.zeros_(self.attention.out_proj.weight)

    def forward(self, values: Tensor) -> Tensor:
        columns = values[:, :, None]
        return values + self.attention(columns, columns, columns)[0][:, :, 0]


def centring(when: Callable[[int], bool]) -> Layer:
    return Layer(lambda values: values - values.mean(dim=0) if when(len(values)) else values)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (Attentive(), "1.attention=MultiheadAttention"),
        (Gated(), "1=Gated"),
        (Gated(torch.relu), "1=Gated"),
        (Gated(lambda weight: torch.relu(-weight)), "1=Gated"),
        (Gated(when=lambda examples: examples > 8), "1=Gated"),
        (centring(lambda examples: examples > 8), "1=Layer"),
        (centring(lambda examples: examples % 4 == 0), "1=Layer"),
    ],
    ids=["attention", "gate", "positive gate", "negative gate", "both", "above 8", "multiples of 4"],
)
def test_layers_that_mix_at_other_weights_or_in_other_batches_are_found_out(layer: nn.Module, name: str) -> None:
    mixing = model(layer)
    before = {key: value.clone() for key, value in mixing.state_dict().items()}
    with pytest.raises(ValueError, match=rf"^Expected {name} to treat every example on its own; no engine can"):
        require_separate_examples(mixing, (4,))
    assert all(torch.equal(before[key], value) for key, value in mixing.state_dict().items())


def test_passes_of_the_sizes_that_will_run_are_tried() -> None:
    mixing = model(centring(lambda examples: examples > 40))
    require_separate_examples(mixing, (4,))
    require_separate_passes(mixing, (4,), (8, 40))
    with pytest.raises(ValueError, match=r"^Expected 1=Layer to treat every example on its own"):
        require_separate_passes(mixing, (4,), (8, 64))


def test_a_checkpoint_without_derivatives_by_inputs_is_refused() -> None:
    for reentrant in (False, True):
        layer = Layer(lambda values, reentrant=reentrant: checkpoint(torch.tanh, values, use_reentrant=reentrant))
        if not reentrant:
            require_separate_examples(model(layer), (4,))
            continue
        with pytest.raises(ValueError, match=r"^Expected a model whose outputs .* use_reentrant=False in a checkpoint"):
            require_separate_examples(model(layer), (4,))


@pytest.mark.parametrize("layer", [Counting(), Averaging(training=True), Averaging(training=False)])
def test_statistics_are_found_out(layer) -> None:
    message = rf"^Expected 1={type(layer).__name__} to keep no statistics of its inputs in (seen|mean); no engine can"
    with pytest.raises(ValueError, match=message):
        require_separate_examples(model(layer), (4,))


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.AlphaDropout(), nn.RReLU()])
def test_layers_that_draw_global_randomness_are_refused_by_name(layer) -> None:
    with pytest.raises(ValueError, match=rf"^Expected 1={type(layer).__name__} to draw nothing"):
        require_separate_examples(model(layer), (4,))


def test_hidden_global_randomness_is_found_out_and_put_back() -> None:
    noisy = model(Layer(lambda values: values + 0 * torch.rand(1)))
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"^Expected 1=Layer to draw nothing from torch's global generator; no engine"):
        require_separate_examples(noisy, (4,))
    assert torch.equal(state, torch.get_rng_state())


def test_what_is_no_classifier_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Expected outputs.shape=\[3\] == \[3, classes\].$"):
        require_separate_examples(Layer(lambda values: values.sum(dim=1)), (4,))


@pytest.mark.parametrize(
    ("function", "condition"),
    [
        (lambda values: values * torch.nan, "to give finite outputs for random inputs"),
        (torch.no_grad()(lambda values: 2 * values), "to compute its outputs with gradients: without torch.no_grad"),
        (lambda values: 2 * values.detach(), "to compute its outputs with gradients: without torch.no_grad"),
    ],
    ids=["nan", "no_grad", "detach"],
)
def test_what_no_gradient_can_train_is_refused(function: Callable[[Tensor], Tensor], condition: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected model=Layer {condition}"):
        require_separate_examples(Layer(function), (4,))


class Blocks(nn.Module):
    """Mixes examples deep inside, or in its own forward pass."""

    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.inside = inside
        centred = Layer(lambda values: values - values.mean(dim=0))
        self.blocks = nn.ModuleList(
            [model(nn.Tanh()), nn.Sequential(nn.Linear(2, 4), centred if inside else nn.Tanh())]
        )

    def forward(self, values: Tensor) -> Tensor:
        for block in self.blocks:
            values = block(values)
        return values if self.inside else values - values.mean(dim=0)


@pytest.mark.parametrize(("inside", "name"), [(True, "blocks.1.1=Layer"), (False, "model=Blocks")])
def test_the_innermost_layer_that_mixes_is_named_by_its_path(inside: bool, name: str) -> None:
    blocks = Blocks(inside=inside)
    with pytest.raises(ValueError, match=rf"^Expected {name} to treat every example on its own; no engine can"):
        require_separate_examples(blocks, (4,))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in blocks.modules())


@pytest.mark.parametrize(
    ("last", "probabilities"), [(nn.Softmax(-1), True), (nn.LogSoftmax(-1), False), (nn.Sigmoid(), False)]
)
def test_a_softmax_at_the_end_of_a_model_is_recognised(last: nn.Module, probabilities: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 3), last)
    assert are_outputs_probabilities(model, (4,)) is probabilities
    assert not are_outputs_probabilities(model[:1], (4,))
