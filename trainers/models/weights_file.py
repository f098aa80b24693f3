"""A trained model as a file: named tensors and nothing else, the same bytes for the same weights.

The weights are what training was paid for; where a rule hides losers, only the winner's may leave.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save
from torch import Tensor

from dpsweep.accounting.records.trial_result import MODEL_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


def save_model(model: nn.Module, folder: Path) -> str:
    """Puts the model's parameters and buffers into a folder, for its owner alone, in one rename.

    Returns the SHA-256 of the file.
    """
    partial = folder / f".{MODEL_FILE}.{os.getpid()}.partial"
    content = save(tensors_of(model))
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(folder / MODEL_FILE)
    return sha256(content).hexdigest()


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """All that a model's file holds; a tensor that has several names is there once for each.

    Errors: ValueError that names what is no tensor: it would be found out when training was paid for.
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
    """The same model with the weights that `save_model` put there; raises RuntimeError where they do not fit it."""
    model.load_state_dict(load_file(folder / MODEL_FILE))
    return model
