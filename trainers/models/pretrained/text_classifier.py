"""A pretrained encoder's architecture of Hugging Face's, pooling, and a linear layer to the classes; it reads no file.

Dropout is set to zero, as in our other models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dpsweep.trainers.models.pretrained.architecture import ENCODER, network_of

TRAINED = ("head", "encoder")
_UNUSED = ("pooler",)
"""Parts of published encoders that the pooling here does not need."""


def classifier(
    shape: tuple[int, ...],
    classes: int,
    *,
    architecture: Mapping[str, Any],
    padding: int,
    pooling: str = "mean",
    trained: str = "head",
    **_: object,
) -> TextClassifier:
    """The same model with random weights, for a file of weights to replace: it reads nothing."""
    if trained not in TRAINED:
        raise ValueError(f"Expected model.trained={trained} to be one of {', '.join(TRAINED)}.")
    if pooling not in POOLINGS:
        raise ValueError(f"Expected model.pooling={pooling} to be one of {', '.join(POOLINGS)}.")
    encoder, config = _encoder(architecture)
    words, longest = int(config.vocab_size), getattr(config, "max_position_embeddings", None)
    if len(shape) != 1 or (longest is not None and not 1 <= shape[0] <= longest):
        raise ValueError(f"Expected shape={list(shape)} to be (length,), at most {longest} words.")
    if not (isinstance(padding, int) and 0 <= padding < words):
        raise ValueError(f"Expected 0 <= model.padding={padding} < {words}.")
    head = nn.Linear(int(config.hidden_size), classes)
    model = TextClassifier(encoder, head, words=words, padding=padding, pooling=pooling)
    model.encoder.requires_grad_(trained == "encoder")
    for module in model.encoder.modules():
        if isinstance(module, nn.Embedding):  # frozen, as Yang, Zhang, Chen, Liu 2022 have them
            module.requires_grad_(False)
    return model


class TextClassifier(nn.Module):
    """Token numbers [n, length] to outputs [n, classes]."""

    def __init__(self, encoder: nn.Module, head: nn.Linear, *, words: int, padding: int, pooling: str) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.token_count, self.padding_token = words, padding
        self.pool = POOLINGS[pooling]

    def forward(self, tokens: Tensor) -> Tensor:
        """The outputs; invalid numbers count as padding, and the first place as a word: no record may raise."""
        tokens = tokens.long()
        tokens = tokens.where((tokens >= 0) & (tokens < self.token_count), self.padding_token)
        is_word = tokens != self.padding_token
        is_word = torch.cat([torch.ones_like(is_word[:, :1]), is_word[:, 1:]], dim=1)
        values = self.encoder(input_ids=tokens, attention_mask=is_word.long()).last_hidden_state
        outputs: Tensor = self.head(self.pool(values, is_word))
        return outputs


def _mean(values: Tensor, is_word: Tensor) -> Tensor:
    """The mean over a text's words."""
    weights = is_word[:, :, None].to(values.dtype)
    return (values * weights).sum(dim=1) / weights.sum(dim=1)


def _first(values: Tensor, is_word: Tensor) -> Tensor:
    """The first word, BERT's mark of a text."""
    return values[:, 0]


def _last(values: Tensor, is_word: Tensor) -> Tensor:
    """The last word that is not padding, which has read all others in a model that reads from left to right."""
    places = torch.arange(is_word.shape[1], device=is_word.device)
    last = (is_word * places).amax(dim=1)
    return values[torch.arange(len(values), device=values.device), last]


POOLINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"mean": _mean, "first": _first, "last": _last}
"""From the vectors of words [n, length, width] and a mask of words [n, length] to one vector [n, width] a text."""


def _encoder(architecture: Mapping[str, Any]) -> tuple[nn.Module, Any]:
    """A published architecture with random weights, without dropout, and its configuration."""
    encoder, config = network_of(architecture, ENCODER)
    for part in _UNUSED:
        if getattr(encoder, part, None) is not None:
            setattr(encoder, part, None)
    if not hasattr(config, "vocab_size") or not hasattr(config, "hidden_size"):
        raise ValueError(f"Expected model.path to be an encoder of texts, got {type(encoder).__name__}.")
    return encoder, config
