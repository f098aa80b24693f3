"""Text classifiers on a pretrained encoder of Hugging Face's, from a folder on disk.

The encoder is built from the architecture in the plan, and its weights are those of the folder whose checksum is in the
plan. Nothing is downloaded, and no code of the folder is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from dpsweep.trainers.models.pretrained.folder_weights import checked_folder, fill
from dpsweep.trainers.models.pretrained.text_classifier import classifier


def hf(
    shape: tuple[int, ...],
    classes: int,
    *,
    path: str,
    sha256: str,
    architecture: Mapping[str, Any],
    padding: int,
    pooling: str = "mean",
    trained: str = "head",
    name: str = "",
    licence: str = "",
) -> nn.Module:
    """The encoder in the folder `path`, and a linear layer from the mean over a text's words to the classes.

    Shapes: token numbers [n, length]; `padding` follows a text's last word. `pooling` is mean, first or last (word).
    `trained` selects the trainable parameters: head, to which adapter=lora adds its own, or encoder: all but the tables
    of embeddings. `name` and `licence` are stated on the page.
    Errors: ValueError if the folder has other weights than the plan states.
    """
    folder = checked_folder(path, sha256)
    model = classifier(shape, classes, architecture=architecture, padding=padding, pooling=pooling, trained=trained)
    fill(model.encoder, folder)
    return model
