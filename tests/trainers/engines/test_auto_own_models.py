"""A user's own model: its constructor's weights are trained, and its gradients are those of single examples."""

from __future__ import annotations

import logging
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from dpsweep.accounting.events.build import are_same_events
from dpsweep.sweeper.trial.build import make_model
from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task, Unsupported
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.models.checks import check_vocabulary_fits_model, require_separate_examples
from dpsweep.trainers.models.weights import construct_user_model, load_weights_into_model, save_model
from dpsweep.trainers.randomness import reproducible_streams
from tests.exactness import rows_alone
from tests.trainers.gradients import units_of_sizes
from tests.trainers.loops import CLASSES as LOOP_CLASSES
from tests.trainers.loops import RUN, some_records
from tests.trainers.loops import SHAPE as LOOP_SHAPE
from tests.trainers.own_models import CLASSES, LENGTH, MODELS, WIDTH, Attention, Custom, Recurrent, Stubborn
from tests.trainers.single_run import train

pytestmark = pytest.mark.usefixtures("trusting")

SHAPE = (LENGTH, WIDTH)
SIZES = (*LOOP_SHAPE, 4)
made = partial(construct_user_model, name="my_model.Net", seed=3)


def batch(examples: int, dtype: torch.dtype = torch.float64) -> Minibatch:
    inputs = torch.randn(examples, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Minibatch(inputs.to(dtype), torch.arange(examples) % CLASSES)


@pytest.mark.parametrize("engine", [Auto(), Vmap()], ids=lambda engine: type(engine).__name__)
@pytest.mark.parametrize("name", MODELS)
def test_norms_are_those_of_a_loop_over_single_examples(engine: Any, name: str) -> None:
    model, examples = made(MODELS[name]).double(), batch(8)
    rows = rows_alone(model, examples.inputs, examples.targets)
    transform = Clip(clip_norm=float(rows.norm(dim=1).median()))
    require_separate_examples(model, SHAPE)
    total, norms = engine.bounded_gradient_sum_and_norms(model, examples, Task(transform=transform, chunk=3))
    assert torch.allclose(norms, rows.norm(dim=1), rtol=1e-10)
    assert torch.allclose(total.double(), transform.factors(rows.norm(dim=1)) @ rows, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_so_they_are_in_float32_and_for_units_of_several_examples(name: str) -> None:
    model, examples = made(MODELS[name]), batch(8, torch.float32)
    units = units_of_sizes(examples.inputs, examples.targets, (3, 1, 4))
    _, norms = Vmap().bounded_gradient_sum_and_norms(model, units, Task(transform=Clip(clip_norm=1.0), chunk=3))
    rows = rows_alone(model.double(), examples.inputs.double(), examples.targets)
    means = torch.stack([rows[first:last].mean(dim=0) for first, last in ((0, 3), (3, 4), (4, 8))])
    assert torch.allclose(norms.double(), means.norm(dim=1), rtol=1e-4)


def test_a_broken_example_adds_nothing() -> None:
    model, examples = made(Recurrent).double(), batch(4)
    examples.inputs[1] = torch.inf
    task = Task(transform=Clip(clip_norm=0.5))
    total, norms = Vmap().bounded_gradient_sum_and_norms(model, examples, task)
    alone, _ = Vmap().bounded_gradient_sum_and_norms(
        model, Minibatch(examples.inputs[[0, 2, 3]], examples.targets[[0, 2, 3]]), task
    )
    assert not norms[1].isfinite()
    assert torch.allclose(total, alone, rtol=1e-10)


def test_what_torch_cannot_vectorise_is_done_one_by_one_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dpsweep"), "propagate", True)
    for factory, slow in ((Stubborn, True), (Recurrent, False)):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="dpsweep"):
            Vmap().bounded_gradient_sum_and_norms(
                made(factory), batch(2, torch.float32), Task(transform=Clip(clip_norm=1.0))
            )
        assert ("one example after another" in caplog.text) == slow


def test_auto_says_which_engine_takes_what_no_faster_one_takes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dpsweep"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="dpsweep"):
        Auto().bounded_gradient_sum_and_norms(
            made(Custom), batch(2, torch.float32), Task(transform=Clip(clip_norm=1.0))
        )
    assert "engine vmap: Expected model=Custom to use its parameters in its layers alone" in caplog.text


class LengthFirst(nn.Module):
    """A linear layer that has examples in the second dimension of its inputs: Opacus takes them for the first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, 4), nn.Linear(4, CLASSES)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(values.transpose(0, 1)).tanh().sum(dim=0))


@pytest.mark.parametrize(
    ("engine", "factory", "message"),
    [
        (
            Fused(),
            LengthFirst,
            r"^Expected inner=Linear to be called with one .*; engine=auto or engine=vmap takes it\.$",
        ),
        (Opacus(), Recurrent, r"^Expected cells=LSTM to have gradients that Opacus .* or engine=vmap takes it\.$"),
        (Opacus(), LengthFirst, r"^Expected model=LengthFirst to have gradients that Opacus computes"),
    ],
)
def test_engines_refuse_by_the_layers_name_and_say_who_takes_it(engine: Any, factory: Any, message: str) -> None:
    model = made(factory)
    with pytest.raises(Unsupported, match=message):
        engine.bounded_gradient_sum_and_norms(model, batch(2, torch.float32), Task(transform=Clip(clip_norm=1.0)))
    Auto().bounded_gradient_sum_and_norms(model, batch(2, torch.float32), Task(transform=Clip(clip_norm=1.0)))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(30), nn.Linear(30, 3)), "1=BatchNorm1d to treat every"),
        (lambda: Recurrent(dropout=0.1), "cells=LSTM to draw nothing from torch's global generator"),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "1=LazyLinear to be made with the shape of its weight"),
        (lambda: {}["no such key"], "model=my_model.Net to take dataset.shape and classes: KeyError: 'no such key'"),
        (lambda: 7, "model=my_model.Net to make a torch.nn.Module, got int"),
    ],
)
def test_what_no_engine_takes_is_refused_in_one_sentence(factory: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^Expected {message}") as refusal:
        made(factory)
    assert "\n" not in str(refusal.value)


def test_errors_of_its_forward_pass_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^Expected model=Recurrent to take random inputs of shape=\[3, 4\]:"):
        require_separate_examples(made(Recurrent), (4,))


def test_tables_of_places_are_no_tables_of_words() -> None:
    check_vocabulary_fits_model(made(Attention), None, SHAPE)
    with pytest.raises(ValueError, match=r"^Expected dataset\.vocabulary for a model of words"):
        check_vocabulary_fits_model(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(24, 3)), None, (6,))


class FineTuned(nn.Module):
    """A frozen body with weights of a file, and a head whose weights start at numbers that the constructor sets."""

    def __init__(self, shape: tuple[int, ...], classes: int, weights: str) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(shape[0], 4), nn.Linear(4, classes)
        self.body.load_state_dict(load_file(weights))
        self.body.requires_grad_(False)
        nn.init.constant_(self.head.weight, 0.125)
        nn.init.zeros_(self.head.bias)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(values).tanh())


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    weights = {"weight": torch.arange(12.0).view(4, 3), "bias": torch.tensor([1.0, -1.0, 2.0, 0.5])}
    save_file(weights, tmp_path / "body.safetensors")
    module = ModuleType("my_models_of_this_test")
    module.FineTuned = FineTuned  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return {
        "model": {"_target_": f"{module.__name__}.FineTuned", "weights": str(tmp_path / "body.safetensors")},
        "dataset": {
            **{"_target_": "dpsweep.trainers.data.sets.generated.LinearRegression", "name": "made_up", "records": 40},
            **{"test_records": 0, "shape": [3], "classes": 1, "unit": "record", "noise_std": 0.1, "seed": 0},
        },
    }


def test_the_weights_that_a_constructor_set_or_loaded_are_those_that_are_trained(config: dict[str, Any]) -> None:
    model = make_model(config, "any trial")
    assert torch.equal(model.body.weight, torch.arange(12.0).view(4, 3))
    assert bool((model.head.weight == 0.125).all())
    assert not model.body.weight.requires_grad


def test_a_frozen_part_is_neither_noised_nor_counted() -> None:
    """To train a head on a frozen body is to train that head alone on what the body makes of the records."""

    def fine_tuned() -> nn.Module:
        model = nn.Sequential(nn.Linear(*SIZES), nn.Tanh(), nn.Linear(SIZES[1], LOOP_CLASSES))
        model[0].requires_grad_(False)
        return model

    model, records = made(fine_tuned), some_records(60)
    body = [tensor.clone() for tensor in model[0].parameters()]
    head = made(lambda: nn.Sequential(nn.Linear(SIZES[1], LOOP_CLASSES)))
    head[0].load_state_dict(model[2].state_dict())
    seen = replace(records, features=model[:2](records.features).detach())
    for trains, on in ((model, records), (head, seen)):
        outcome = train(RUN, trains, Vmap(), on, reproducible_streams(1, "any"), device="cpu")
        assert are_same_events(outcome.event, RUN.event)
    assert all(torch.equal(old, new) for old, new in zip(body, model[0].parameters(), strict=True))
    assert torch.allclose(model[2].weight, head[0].weight, atol=1e-5)


def drawn() -> nn.Module:
    """Weights from each of the generators that constructors draw from."""
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.bias[0] = float(np.random.normal())
        model.bias[1] = random.random()
    return model


def test_what_a_constructor_draws_depends_on_the_seed_alone_and_moves_no_global_generator() -> None:
    def weights(seed: int) -> torch.Tensor:
        return nn.utils.parameters_to_vector(construct_user_model(drawn, "my_model.Net", seed).parameters()).detach()

    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    first = weights(3)
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert states[2] == random.getstate()
    torch.rand(5)
    assert torch.equal(weights(3), first)
    assert bool((weights(4) != first).all())


def test_a_model_with_tied_weights_is_kept_and_read_back(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        model[2].weight = model[0].weight
        return model

    model = made(tied)
    save_model(model, tmp_path)
    again = load_weights_into_model(construct_user_model(tied, "my_model.Net", 9), tmp_path)
    inputs = torch.rand(3, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(again(inputs), model(inputs))
