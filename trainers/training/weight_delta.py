"""The guard on what training changed: the trainable weights and no others, and the file of weights has the same change.

Adapters can be lost silently: they are trained in a wrapped copy of a model and saved from the unwrapped one, losses
fall, the privacy price grows, and the saved model is the initial one (Opacus, issue 820). So two laws are checked.

* Before the charge, `check_saving`: weights that are written to a file and read into another copy are the same weights.
* After training, `WeightDelta.check`: frozen weights are the initial ones bit by bit, each trained tensor has changed
  unless its updates were too small for its precision, and the file that was written, read into another copy, gives the
  weights that were trained.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dpsweep.accounting.errors import ContractBroken
from dpsweep.trainers.models.weights_file import load_model, tensors_of

if TYPE_CHECKING:
    from pathlib import Path

_SEED = 20260519


@dataclass(frozen=True, kw_only=True)
class WeightDelta:
    """The digests of a model's tensors before training: frozen ones by name, and those that are trained."""

    frozen: Mapping[str, str]
    trained: Mapping[str, str]

    @classmethod
    def before(cls, model: nn.Module, fixed: tuple[Tensor, ...] | None = None) -> WeightDelta:
        """The digests of a model that is about to be trained.

        `fixed` are the frozen tensors of a checkpoint, which replace the model's own when it is resumed.
        """
        names = [name for name, _ in _frozen(model)]
        tensors = [tensor for _, tensor in _frozen(model)] if fixed is None else fixed
        return cls(
            frozen={name: _digest(tensor) for name, tensor in zip(names, tensors, strict=True)},
            trained={name: _digest(parameter) for name, parameter in _trained(model)},
        )

    def check(self, model: nn.Module, folder: Path, *, noisy: bool, moved: Sequence[bool] = ()) -> tuple[str, ...]:
        """Raises `ContractBroken` unless training changed these weights alone and the file in `folder` has the change.

        With `noisy` each trained tensor must have changed, since it received noise in every step, unless `moved` says
        that its updates were too small to change a number of its precision. Returns the names of those.
        """
        frozen = {name: _digest(tensor) for name, tensor in _frozen(model)}
        for name, digest in self.frozen.items():
            if frozen.get(name) != digest:
                raise ContractBroken(f"Training changed {name}, which is frozen: it is no part of what was charged.")
        trained = {name: _digest(parameter) for name, parameter in _trained(model)}
        unchanged = [place for place, (name, digest) in enumerate(self.trained.items()) if trained.get(name) == digest]
        names, small = [*self.trained], [place for place in unchanged if moved and not moved[place]]
        for place in unchanged:
            if noisy and place not in small:
                raise ContractBroken(f"Training did not change {names[place]}, which was declared to be trained.")
        loaded = load_model(_other(model), folder)
        for name, parameter in _trained(loaded):
            if _digest(parameter) != trained.get(name):
                raise ContractBroken(f"The file of weights lacks the training of {name}: it has other numbers.")
        return tuple(names[place] for place in small)


def check_saving(model: nn.Module) -> None:
    """Raises ValueError if weights that are saved from a copy of the model and loaded into another are not the same."""
    saved, loaded = _other(model), _other(model, seed=_SEED + 1)
    try:
        loaded.load_state_dict(tensors_of(saved))
    except (RuntimeError, KeyError, TypeError) as cause:
        line = " ".join(str(cause).split())
        raise ValueError(
            f"Expected model={type(model).__name__} to load the state that it saves: {line:.200}."
        ) from cause
    expected = dict(_trained(saved))
    for name, parameter in _trained(loaded):
        if not torch.equal(parameter, expected[name]):
            raise ValueError(
                f"Expected model={type(model).__name__} to save the weights that are trained: its state_dict lacks "
                f"those of {name}."
            )


def _other(model: nn.Module, seed: int = _SEED) -> nn.Module:
    """A copy of the model on the CPU, whose trainable parameters are random numbers."""
    twin = copy.deepcopy(model).cpu()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in _trained(twin):
            parameter.copy_(torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    return twin


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _frozen(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The frozen parameters, then the buffers, in the order of a checkpoint's."""
    yield from ((name, parameter) for name, parameter in model.named_parameters() if not parameter.requires_grad)
    yield from model.named_buffers()


def _digest(tensor: Tensor) -> str:
    """The SHA-256 of a tensor's numbers."""
    return sha256(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
