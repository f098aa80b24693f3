"""Files of trained models: named tensors and nothing else, the same bytes for the same weights.

The weights are the charged output of training. If the selection rule hides losers, only the winner's file may be
released.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save
from torch import Tensor

from dpsweep.accounting.group_commit import Flushing, alone
from dpsweep.accounting.records.trial_result import MODEL_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


def save_model(model: nn.Module, folder: Path) -> str:
    """Writes the model's parameters and buffers into a folder, readable by the owner alone, by one atomic rename.

    Returns the SHA-256 of the file.
    """
    return alone(saving_model(model, folder))


def saving_model(model: nn.Module, folder: Path) -> Flushing[str]:
    """Does what `save_model` does, as a part of a group commit."""
    partial = folder / f".{MODEL_FILE}.{os.getpid()}.partial"
    content = save(tensors_of(model))
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(content)
    yield partial
    partial.replace(folder / MODEL_FILE)
    return sha256(content).hexdigest()


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
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


def load_model(model: nn.Module, folder: Path) -> nn.Module:
    """The same model with the weights that `save_model` wrote; raises RuntimeError if they do not fit the model."""
    model.load_state_dict(load_file(folder / MODEL_FILE))
    return model
