"""Text classifiers on a pretrained encoder of Hugging Face's, from a folder on disk.

The encoder is built from the architecture in the plan, and its weights are those of the folder whose checksum is in the
plan. Nothing is downloaded, and no code of the folder is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from dpsweep.trainers.models.pretrained.text_classifier import classifier
from dpsweep.trainers.pretrained_folder import WEIGHTS, PretrainedFolder, require_extra


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
    require_extra("transformers")
    if (digest := PretrainedFolder(path=path).checksum()) != sha256:
        raise ValueError(f"Expected model.path={path} to have weights with sha256={sha256}, got {digest}.")
    model = classifier(shape, classes, architecture=architecture, padding=padding, pooling=pooling, trained=trained)
    _fill(model.encoder, Path(path).expanduser())
    return model


def _fill(encoder: nn.Module, folder: Path) -> None:
    """Reads the encoder's weights; raises ValueError that names the first that the folder lacks."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob(WEIGHTS)):
        tensors.update(load_file(file))
    own = encoder.state_dict()
    prefix = _prefix(own, tensors)
    missing = [key for key in own if prefix + key not in tensors or tensors[prefix + key].shape != own[key].shape]
    if missing:
        raise ValueError(
            f"Expected the weights in {folder} to have {missing[0]} of shape {list(own[missing[0]].shape)}, "
            f"as {type(encoder).__name__} needs."
        )
    encoder.load_state_dict({key: tensors[prefix + key] for key in own})


def _prefix(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """The common prefix of an encoder that was published as part of a larger model."""
    first = next(iter(own))
    names = [name for name in tensors if name == first or name.endswith(f".{first}")]
    return names[0].removesuffix(first) if len(names) == 1 else ""
