"""`privatise` makes models that every check takes, keeps what it need not change, and says what it replaced."""

from __future__ import annotations

import doctest

import pytest
import torch
from torch import nn

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.models import replaced_layers as module
from dpsweep.trainers.models.checks import require_separate_examples
from dpsweep.trainers.models.replaced_layers import group_count_for_channels, privatise


class Residual(nn.Module):
    """A block as in torchvision's ResNet, with one normalization in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.activation = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, eps=0.1), nn.ReLU(inplace=True)
        self.rest = nn.ModuleDict({"norm": nn.BatchNorm2d(8, affine=False), "drop": nn.Dropout2d(0.3)})
        self.scale = nn.InstanceNorm2d(8, affine=True, track_running_stats=True)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 16, 12), nn.BatchNorm1d(12), nn.RReLU(), nn.Linear(12, 4))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = self.activation(self.norm(self.first(images)))
        return self.head(self.scale(self.rest["drop"](self.rest["norm"](values))))


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 8, num_layers=2, dropout=0.2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.cells(values)[0]).mean(dim=1))


@pytest.mark.parametrize(("factory", "shape"), [(Residual, (3, 6, 6)), (Sequences, (5, 4))])
def test_what_is_refused_is_taken_afterwards_and_the_model_itself_stays(factory, shape) -> None:
    model = factory()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"^Expected "):
        require_separate_examples(model, shape)
    private = privatise(model)
    require_separate_examples(private, shape)
    batch = Minibatch(torch.ones(3, *shape), torch.zeros(3, dtype=torch.int64))
    Fused().bounded_gradient_sum_and_norms(private, batch, Task(transform=Clip(clip_norm=1.0)))
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(old, model.state_dict()[name]) for name, old in before.items())
    shared = private.state_dict().keys() & before.keys()
    assert all(torch.equal(before[name], private.state_dict()[name]) for name in shared)
    assert {name for name in before if "running" not in name and "tracked" not in name} == private.state_dict().keys()


def test_a_group_norm_has_the_batch_norms_numbers() -> None:
    model = Residual()
    nn.init.uniform_(model.norm.weight)
    model.norm.bias.requires_grad_(False)
    private = privatise(model).norm
    assert (private.num_groups, private.num_channels, private.eps) == (2, 8, 0.1)
    assert torch.equal(private.weight, model.norm.weight)
    assert (private.weight.requires_grad, private.bias.requires_grad) == (True, False)


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (3, 1), (12, 3), (64, 16), (128, 32), (2048, 32), (7, 1)])
def test_groups_are_neither_many_nor_small(channels: int, groups: int) -> None:
    assert group_count_for_channels(channels) == groups


def test_a_refusal_names_the_replacement_and_the_function_that_makes_it() -> None:
    with pytest.raises(ValueError, match=r"norm=BatchNorm2d to .*; use GroupNorm, which dpsweep\.models\.privatise\("):
        require_separate_examples(Residual(), (3, 6, 6))


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.Sequential(nn.LazyBatchNorm2d())])
def test_layers_that_cannot_be_replaced_are_refused(layer) -> None:
    with pytest.raises(ValueError, match=r"^Expected (model|0)="):
        privatise(layer)


def test_its_example_is_true() -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted > 0
    assert failed == 0
