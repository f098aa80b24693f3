"""The guard on what training changed: models that lose their adapters (Opacus, issue 820), and others."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from dpsweep.accounting.errors import ContractBroken
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.adapters import Lora
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.models.replaced_layers import attach_adapters
from dpsweep.trainers.models.weights import WeightDelta, check_saved_weights_reload, load_weights_into_model, save_model
from dpsweep.trainers.randomness import reproducible_streams
from tests.trainers.loops import RUN
from tests.trainers.single_run import train


class Unwrapped(nn.Module):
    """The mistake of the issue: adapters are trained in a wrapped copy, and the unwrapped model is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.wrapped = adapted()
        object.__setattr__(self, "original", copy.deepcopy(self.wrapped))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.wrapped(values)
        return outputs

    def state_dict(self, *arguments, **options):
        return {f"wrapped.{name}": value for name, value in self.original.state_dict().items()}


class Renamed(Unwrapped):
    """A model whose state has other names, as its own loading expects: nothing is lost."""

    def state_dict(self, *arguments, **options):
        return self.wrapped.state_dict()

    def load_state_dict(self, state, *arguments, **options):
        return self.wrapped.load_state_dict(state)


def adapted() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 5).requires_grad_(False), nn.Tanh(), nn.Linear(5, 2))
    return attach_adapters(model, Lora(rank=2, alpha=1.0, targets=("0",)), torch.Generator().manual_seed(1))


def trained(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.5)
    return model


def test_a_model_that_saves_the_unwrapped_original_is_refused_before_the_charge() -> None:
    with pytest.raises(
        ValueError, match=r"to save the weights that are trained: its state_dict lacks those of wrapped"
    ):
        check_saved_weights_reload(Unwrapped())


def test_a_model_that_saves_the_unwrapped_original_is_caught_after_training(tmp_path: Path) -> None:
    model = Unwrapped()
    before = WeightDelta.from_untrained_model(model)
    trained(model)
    save_model(model, tmp_path)
    with pytest.raises(ContractBroken, match=r"^The file of weights lacks the training of wrapped\.0\.lora_A\.weight"):
        before.check_weight_changes_and_saved_file(model, tmp_path, noisy=True)


@pytest.mark.parametrize("make", [adapted, Renamed])
def test_the_delta_is_the_same_after_save_and_load(make, tmp_path: Path) -> None:
    model = make()
    check_saved_weights_reload(model)
    before, initial = WeightDelta.from_untrained_model(model), copy.deepcopy(model)
    save_model(trained(model), tmp_path)
    before.check_weight_changes_and_saved_file(model, tmp_path, noisy=True)
    loaded = load_weights_into_model(make(), tmp_path)
    for (name, now), then in zip(loaded.named_parameters(), initial.parameters(), strict=True):
        assert torch.allclose(now - then, torch.tensor(0.5 if then.requires_grad else 0.0)), name


def test_a_frozen_weight_that_changed_is_caught(tmp_path: Path) -> None:
    model = adapted()
    before = WeightDelta.from_untrained_model(model)
    trained(model)
    with torch.no_grad():
        model[0].base_layer.weight[0, 0] += 1e-6
    save_model(model, tmp_path)
    with pytest.raises(ContractBroken, match=r"^Training changed 0\.base_layer\.weight, which is frozen"):
        before.check_weight_changes_and_saved_file(model, tmp_path, noisy=False)


def test_an_adapter_that_was_not_trained_is_caught_where_noise_was_added(tmp_path: Path) -> None:
    model = adapted()
    before = WeightDelta.from_untrained_model(model)
    with torch.no_grad():
        model[2].weight.add_(1.0)
        model[2].bias.add_(1.0)
    save_model(model, tmp_path)
    with pytest.raises(ContractBroken, match=r"^Training did not change 0\.lora_A\.weight"):
        before.check_weight_changes_and_saved_file(model, tmp_path, noisy=True)
    before.check_weight_changes_and_saved_file(model, tmp_path, noisy=False)


def test_a_resumed_run_compares_with_the_frozen_weights_of_its_checkpoint(tmp_path: Path) -> None:
    """Without a seed a job that resumes draws other initial weights, and replaces them with the checkpoint's."""
    model = adapted()
    other = tuple(torch.randn_like(value) for value in model.parameters() if not value.requires_grad)
    before = WeightDelta.from_untrained_model(model, other)
    with torch.no_grad():
        for value, saved in zip((p for p in model.parameters() if not p.requires_grad), other, strict=True):
            value.copy_(saved)
    save_model(trained(model), tmp_path)
    before.check_weight_changes_and_saved_file(model, tmp_path, noisy=True)


def test_a_tensor_whose_updates_were_too_small_is_named_and_no_error(tmp_path: Path) -> None:
    model = adapted()
    before = WeightDelta.from_untrained_model(model)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    save_model(model, tmp_path)
    small = [False] * len(names)
    assert before.check_weight_changes_and_saved_file(model, tmp_path, noisy=True, moved=small) == tuple(names)
    with pytest.raises(ContractBroken, match=f"^Training did not change {names[1]}"):
        before.check_weight_changes_and_saved_file(model, tmp_path, noisy=True, moved=[False, True, *small[2:]])


@pytest.mark.parametrize(("lr", "changes"), [(1e-12, False), (1.0, True)])
def test_the_loop_says_whether_its_updates_could_change_a_parameter(lr: float, changes: bool) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    run = replace(RUN, trainer=DpSgd(lr=lr, clip_norm=1.0), steps=3)
    records = Records(
        features=torch.ones(RUN.train_records, 6), labels=torch.zeros(RUN.train_records, dtype=torch.int64)
    )
    outcome = train(run, model, Opacus(), records, reproducible_streams(1, "trial"), device="cpu")
    assert outcome.moved == (changes, changes)
