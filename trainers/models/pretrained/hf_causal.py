"""Causal language models of Hugging Face's, from a folder on disk.

The network is built from the architecture in the plan, and its weights are those of the folder whose checksum is in the
plan. Nothing is downloaded, and no code of the folder is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.models.pretrained.causal_model import causal_model
from dpsweep.trainers.models.pretrained.folder_weights import checked_folder, fill


def hf_causal(
    shape: tuple[int, ...],
    classes: int,
    *,
    path: str,
    sha256: str,
    architecture: Mapping[str, Any],
    padding: int,
    trained: str = "none",
    name: str = "",
    licence: str = "",
) -> nn.Module:
    """The language model in the folder `path`, from token numbers to the logits of the next token at each position.

    Shapes: token numbers [n, length] to [n, classes, length]; `classes` is the model's number of words, and `padding`
    follows a text's last token. `trained` selects the trainable parameters: none, to which adapter=lora adds its own,
    head, or decoder: all but the tables of embeddings. `name` and `licence` are stated on the page.
    Errors: `BadInput` if the folder has other weights than the plan states, or is no causal language model.
    """
    try:
        folder = checked_folder(path, sha256)
        model = causal_model(shape, classes, architecture=architecture, padding=padding, trained=trained)
        fill(model.network, folder)
    except ValueError as cause:
        raise BadInput(str(cause)) from cause
    return model
