"""Weights of models: initial ones, the files of trained ones, and the guard on what training changed.

Initial weights come from a generator of the trial, never from torch's global generator. Our models are built on the
meta device, where torch's own initialisation draws nothing and costs nothing; this module then fills every parameter. A
user's model is built by its own constructor, which draws or loads its weights. During that call the global generators
are seeded for the trial, and restored afterwards. Both kinds of weights are drawn on the CPU, so they are the same for
every device.

Files of trained models hold named tensors and nothing else, the same bytes for the same weights. The weights are the
charged output of training. If the selection rule hides losers, only the winner's file may be released.

Training changes the trainable weights and no others, and the file of weights has the same change. Adapters can be lost
silently: they are trained in a wrapped copy of a model and saved from the unwrapped one, losses fall, the privacy price
grows, and the saved model is the initial one (Opacus, issue 820). So two laws are checked.

* Before the charge, `check_saved_weights_reload`: weights that are written to a file and read into another copy are
  the same weights.
* After training, `WeightDelta.check`: frozen weights are the initial ones bit by bit, each trained tensor has changed
  unless its updates were too small for its precision, and the file that was written, read into another copy, gives the
  weights that were trained.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from dpsweep.accounting.durable_files import PRIVATE, write_bytes
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.records.trial_result import MODEL_FILE
from dpsweep.trainers.data.published_files import Pretrained
from dpsweep.trainers.models.checks import refuse_known_unsafe_layers
from dpsweep.trainers.user_modules import error_as_one_line

if TYPE_CHECKING:
    from pathlib import Path


def save_model(model: nn.Module, folder: Path) -> str:
    """Writes the model's parameters and buffers into a folder, readable by the owner alone, by one atomic rename.

    Returns the SHA-256 of the file.
    """
    content = save(named_tensors_to_save(model))
    write_bytes(folder / MODEL_FILE, content, PRIVATE)
    return sha256(content).hexdigest()


def named_tensors_to_save(model: nn.Module) -> dict[str, Tensor]:
    """The named tensors of a model's file; a tensor with several names is stored once per name.

    Errors: ValueError that names an entry other than a tensor; without it, saving would fail after the charge.
    """
    tensors: dict[str, Tensor] = {}
    places = set[tuple[int, tuple[int, ...]]]()
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(f"Expected {name}={type(value).__name__} in the model's state to be a tensor.")
        tensor = value.detach().cpu().contiguous()
        place = (tensor.data_ptr(), tuple(tensor.shape))
        tensors[name] = tensor.clone() if place in places else tensor
        places.add(place)
    return tensors


def load_weights_into_model(model: nn.Module, folder: Path) -> nn.Module:
    """The same model with the weights that `save_model` wrote; raises RuntimeError if they do not fit the model."""
    model.load_state_dict(load_file(folder / MODEL_FILE))
    return model


def build_model_with_seeded_weights(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The model from `factory`, on the CPU, with weights that are published or depend on `seed` alone.

    Errors: ValueError that names the first layer whose parameters or buffers this module cannot fill.
    """
    with torch.device("meta"):
        model = factory()
    refuse_known_unsafe_layers(model)
    for name, module in model.named_modules():
        _require_known_initialization(name or "model", module)
    _allocate_empty_tensors(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            _fill_initial_weights(module, generator)
        for module in model.modules():
            if isinstance(module, Pretrained):
                module.load_state_dict(module.published_parameters())
    return model


def construct_user_model(factory: Callable[[], nn.Module], name: str, seed: int) -> nn.Module:
    """The model from the user's `factory`, on the CPU, with the weights that the factory drew or loaded.

    Guarantee: its draws from the global generators of torch's CPU, numpy and Python depend on `seed` alone, and these
    generators are restored. Modules of ours that start from published weights have these weights.
    Errors: ValueError, one sentence, for every error of the factory and for a model that cannot be trained or saved.
    """
    try:
        with _seeded_global_generators(seed), torch.device("cpu"):
            model = factory()
            if isinstance(model, nn.Module):
                model = model.to("cpu")
    except BadInput:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise ValueError(
            f"Expected model={name} to take dataset.shape and classes: {error_as_one_line(error)}."
        ) from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"Expected model={name} to make a torch.nn.Module, got {type(model).__name__}.")
    refuse_known_unsafe_layers(model)
    for module in model.modules():
        if isinstance(module, Pretrained):
            module.load_state_dict(module.published_parameters())
    model.zero_grad(set_to_none=True)
    named_tensors_to_save(model)
    return model


@contextmanager
def _seeded_global_generators(seed: int) -> Iterator[None]:
    """Seeds the global generators that a constructor may draw from, and restores their states afterwards."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def _allocate_empty_tensors(model: nn.Module) -> None:
    """What `model.to_empty(device="cpu")` does, which imports sympy: .4 s."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            empty = torch.empty(parameter.shape, dtype=parameter.dtype)
            setattr(module, name, nn.Parameter(empty, requires_grad=parameter.requires_grad))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def _require_known_initialization(name: str, module: nn.Module) -> None:
    tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    if tensors and not isinstance(module, (nn.Linear, _ConvNd, nn.GroupNorm, nn.LayerNorm, nn.Embedding)):
        raise ValueError(
            f"Expected {name}={type(module).__name__} to be a linear or convolutional layer, GroupNorm, "
            "LayerNorm or Embedding: how to draw its initial weights is not known."
        )


def _fill_initial_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Fill linear maps uniformly within 1/sqrt(fan in), as torch does; normalizations and gains with the identity.

    Embeddings get standard normal vectors, as in torch.
    """
    if isinstance(module, (nn.Linear, _ConvNd)):
        limit = 1 / math.sqrt(module.weight[0].numel())
        for name, parameter in module.named_parameters(recurse=False):
            if name == "gain":
                parameter.fill_(1.0)
            else:
                parameter.uniform_(-limit, limit, generator=generator)
    elif isinstance(module, nn.Embedding):
        module.weight.normal_(generator=generator)
        if module.padding_idx is not None:
            module.weight[module.padding_idx] = 0
    elif isinstance(module, (nn.GroupNorm, nn.LayerNorm)):
        for name, parameter in module.named_parameters(recurse=False):
            parameter.fill_(1.0 if name == "weight" else 0.0)


_SEED = 20260519


@dataclass(frozen=True, kw_only=True)
class WeightDelta:
    """The digests of a model's tensors before training: frozen ones by name, and those that are trained."""

    frozen: Mapping[str, str]
    trained: Mapping[str, str]

    @classmethod
    def from_untrained_model(cls, model: nn.Module, fixed: tuple[Tensor, ...] | None = None) -> WeightDelta:
        """The digests of a model that is about to be trained.

        `fixed` are the frozen tensors of a checkpoint, which replace the model's own when it is resumed.
        """
        names = [name for name, _ in _frozen_tensors(model)]
        tensors = [tensor for _, tensor in _frozen_tensors(model)] if fixed is None else fixed
        return cls(
            frozen={name: _tensor_sha256(tensor) for name, tensor in zip(names, tensors, strict=True)},
            trained={name: _tensor_sha256(parameter) for name, parameter in _named_trainable_parameters(model)},
        )

    def check_weight_changes_and_saved_file(
        self, model: nn.Module, folder: Path, *, noisy: bool, moved: Sequence[bool] = ()
    ) -> tuple[str, ...]:
        """Raises `ContractBroken` unless training changed these weights alone and the file in `folder` has the change.

        With `noisy` each trained tensor must have changed, since it received noise in every step, unless `moved` says
        that its updates were too small to change a number of its precision. Returns the names of those.
        """
        frozen = {name: _tensor_sha256(tensor) for name, tensor in _frozen_tensors(model)}
        for name, digest in self.frozen.items():
            if frozen.get(name) != digest:
                raise ContractBroken(f"Training changed {name}, which is frozen: it is no part of what was charged.")
        trained = {name: _tensor_sha256(parameter) for name, parameter in _named_trainable_parameters(model)}
        unchanged = [place for place, (name, digest) in enumerate(self.trained.items()) if trained.get(name) == digest]
        names, small = [*self.trained], [place for place in unchanged if moved and not moved[place]]
        for place in unchanged:
            if noisy and place not in small:
                raise ContractBroken(f"Training did not change {names[place]}, which was declared to be trained.")
        loaded = load_weights_into_model(_copy_with_random_weights(model), folder)
        for name, parameter in _named_trainable_parameters(loaded):
            if _tensor_sha256(parameter) != trained.get(name):
                raise ContractBroken(f"The file of weights lacks the training of {name}: it has other numbers.")
        return tuple(names[place] for place in small)


def check_saved_weights_reload(model: nn.Module) -> None:
    """Raises ValueError if weights that are saved from a copy of the model and loaded into another are not the same."""
    saved, loaded = _copy_with_random_weights(model), _copy_with_random_weights(model, seed=_SEED + 1)
    try:
        loaded.load_state_dict(named_tensors_to_save(saved))
    except (RuntimeError, KeyError, TypeError) as cause:
        line = " ".join(str(cause).split())
        raise ValueError(
            f"Expected model={type(model).__name__} to load the state that it saves: {line:.200}."
        ) from cause
    expected = dict(_named_trainable_parameters(saved))
    for name, parameter in _named_trainable_parameters(loaded):
        if not torch.equal(parameter, expected[name]):
            raise ValueError(
                f"Expected model={type(model).__name__} to save the weights that are trained: its state_dict lacks "
                f"those of {name}."
            )


def _copy_with_random_weights(model: nn.Module, seed: int = _SEED) -> nn.Module:
    """A copy of the model on the CPU, whose trainable parameters are random numbers."""
    twin = copy.deepcopy(model).cpu()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in _named_trainable_parameters(twin):
            parameter.copy_(torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    return twin


def _named_trainable_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _frozen_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The frozen parameters, then the buffers, in the order of a checkpoint's."""
    yield from ((name, parameter) for name, parameter in model.named_parameters() if not parameter.requires_grad)
    yield from model.named_buffers()


def _tensor_sha256(tensor: Tensor) -> str:
    """The SHA-256 of a tensor's numbers."""
    return sha256(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
