"""A causal language model's architecture of Hugging Face's, with its own head to the words; it reads no file.

Dropout is set to zero, as in our other models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dpsweep.trainers.models.pretrained.architecture import CAUSAL, network_of

TRAINED = ("none", "head", "decoder")
_PROBE = 4
"""The longest text on which a model is tried."""
_ROUNDING = 1e-6


def causal_model(
    shape: tuple[int, ...],
    classes: int,
    *,
    architecture: Mapping[str, Any],
    padding: int,
    trained: str = "none",
    **_: object,
) -> CausalModel:
    """The same model with random weights, for a file of weights to replace: it reads nothing.

    `trained` selects the trainable parameters: none, the head, or the whole decoder but the tables of embeddings. A
    head that shares the weights of the embeddings (tied weights) stays frozen with them.
    """
    if trained not in TRAINED:
        raise ValueError(f"Expected model.trained={trained} to be one of {', '.join(TRAINED)}.")
    network, config = _network(architecture)
    words, longest = int(config.vocab_size), getattr(config, "max_position_embeddings", None)
    if len(shape) != 1 or (longest is not None and not 1 <= shape[0] <= longest):
        raise ValueError(f"Expected dataset.shape={list(shape)} to be [length], at most {longest} tokens.")
    if classes != words:
        raise ValueError(f"Expected dataset.classes={classes} == {words}, the words of the language model.")
    if not (isinstance(padding, int) and 0 <= padding < words):
        raise ValueError(f"Expected 0 <= model.padding={padding} < {words}.")
    model = CausalModel(network, words=words, padding=padding)
    _require_causal(model, min(_PROBE, shape[0]))
    head: nn.Module | None = network.get_output_embeddings()  # type: ignore[operator]
    model.requires_grad_(trained == "decoder")
    if head is not None:
        head.requires_grad_(trained != "none")
    for module in model.modules():
        if isinstance(module, nn.Embedding):  # frozen, as Yang, Zhang, Chen, Liu 2022 have them
            module.requires_grad_(False)
    if trained == "head" and not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("Expected model.trained=head to be none: this head shares the weights of the embeddings.")
    return model


class CausalModel(nn.Module):
    """Token numbers [n, length] to logits of the next token [n, words, length].

    The logits at a position depend on the tokens up to this position alone. So padding, which follows a text's last
    token, changes no logits of the text, and needs no mask.
    """

    def __init__(self, network: nn.Module, *, words: int, padding: int) -> None:
        super().__init__()
        self.network = network
        self.token_count, self.padding_token = words, padding

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits; invalid numbers count as padding: no record may raise."""
        tokens = tokens.long()
        tokens = tokens.where((tokens >= 0) & (tokens < self.token_count), self.padding_token)
        logits: Tensor = self.network(input_ids=tokens, use_cache=False).logits
        return logits.transpose(1, 2)


def _require_causal(model: CausalModel, length: int) -> None:
    """Raises ValueError if the logits at a position depend on a later token."""
    first = torch.arange(length)[None] % model.token_count
    with torch.no_grad():
        logits = model(first)
        for place in range(1, length):
            other = first.clone()
            other[:, place:] = (other[:, place:] + 1) % model.token_count
            difference = (model(other) - logits)[:, :, :place].abs().max()
            if not difference <= _ROUNDING * logits.abs().max():
                kind = type(model.network).__name__
                raise ValueError(f"Expected model.path to be a causal language model: {kind} reads later tokens.")


def _network(architecture: Mapping[str, Any]) -> tuple[nn.Module, Any]:
    """A published architecture with random weights, and its configuration."""
    network, config = network_of(architecture, CAUSAL)
    if not hasattr(config, "vocab_size"):
        raise ValueError(f"Expected model.path to be a language model, got {type(network).__name__}.")
    network.config.pad_token_id = None  # type: ignore[union-attr]  # padding needs no mask in a causal model, and transformers warns of its lack
    return network, config
