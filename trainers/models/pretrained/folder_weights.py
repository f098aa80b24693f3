"""The weights in a pretrained folder, read into a network of the same architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from dpsweep.trainers.pretrained_folder import WEIGHTS, PretrainedFolder, require_extra


def checked_folder(path: str, sha256: str) -> Path:
    """The folder; raises ValueError if its weights have another checksum than the plan states."""
    require_extra("transformers")
    if (digest := PretrainedFolder(path=path).checksum()) != sha256:
        raise ValueError(f"Expected model.path={path} to have weights with sha256={sha256}, got {digest}.")
    return Path(path).expanduser()


def fill(network: nn.Module, folder: Path) -> None:
    """Reads the network's weights; raises ValueError that names the first that the folder lacks.

    The body of a network may have been published as part of a larger model, or without the head that it has here. A
    tensor with several names (tied weights) is read once, by the first.
    """
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob(WEIGHTS)):
        try:
            tensors.update(load_file(file))
        except SafetensorError as cause:
            raise ValueError(f"Expected {file} to be a whole file of weights, got: {cause}.") from cause
    own = network.state_dict()
    first = {name: next(other for other in own if own[other].data_ptr() == own[name].data_ptr()) for name in own}
    places = _places(network, own, tensors)
    missing = [
        name
        for name in own
        if name == first[name] and (places[name] not in tensors or tensors[places[name]].shape != own[name].shape)
    ]
    if missing:
        raise ValueError(
            f"Expected the weights in {folder} to have {missing[0]} of shape {list(own[missing[0]].shape)}, "
            f"as {type(network).__name__} needs."
        )
    network.load_state_dict({name: tensors[places[first[name]]] for name in own})


def _places(network: nn.Module, own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The name in the files of each of the network's tensors: those of its body may have another prefix there."""
    body = str(getattr(network, "base_model_prefix", ""))
    inner = f"{body}." if body and any(name.startswith(f"{body}.") for name in own) else ""
    bare = {name: name.removeprefix(inner) for name in own}
    first = next(bare[name] for name in own if name.startswith(inner))
    names = [name for name in tensors if name == first or name.endswith(f".{first}")]
    prefix = names[0].removesuffix(first) if len(names) == 1 else inner
    return {name: prefix + bare[name] if name.startswith(inner) else name for name in own}
