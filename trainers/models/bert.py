"""A classifier of texts: BERT's encoder, of published weights, and one linear layer on the mean of what it makes.

Written out in layers that the fused engine knows, so that one pass has each example's gradient, by any part of it.
Dropout is left out: it would draw from torch's global generator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import gelu

from trainers.models.published import Weights
from trainers.validation import positive_int

_EPS = 1e-12
_PADDING = 0
_TRAINED = ("all", "encoder", "head")
_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "mixed": "attention.output.dense",
    "norm": "attention.output.LayerNorm",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
    "last_norm": "output.LayerNorm",
}
"""What a layer's parts are called in published files."""


def bert(
    shape: tuple[int, ...], classes: int, *, weights: Mapping[str, str], heads: int = 12, trained: str = "encoder"
) -> nn.Module:
    """The encoder of a file of weights, and a linear layer from the mean over an example's words to the classes.

    Shapes: token numbers [n, length], whole numbers of any dtype, 0 for padding. `trained` says what training changes:
    all, the encoder and the head but no embeddings, or the head alone.
    Source: Devlin, Chang, Lee, Toutanova 2019 (BERT); Yang, Zhang, Chen, Liu 2022 (embeddings frozen).
    """
    if trained not in _TRAINED:
        raise ValueError(f"Expected trained={trained} to be one of {', '.join(_TRAINED)}.")
    source = Weights(**weights)
    sizes = _sizes_of(source, heads)
    if len(shape) != 1 or not 1 <= shape[0] <= sizes.positions:
        raise ValueError(f"Expected shape={list(shape)} to be (length,), at most {sizes.positions} words.")
    encoder = Encoder(sizes, length=shape[0], source=source)
    encoder.layers.requires_grad_(trained != "head")
    for embedding in (encoder.words, encoder.places, encoder.norm):
        embedding.requires_grad_(trained == "all")
    return nn.Sequential(encoder, nn.Linear(sizes.width, classes))


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers of an encoder: of words, of places, of a word's vector, of its middle, of heads and of layers."""

    words: int
    positions: int
    width: int
    middle: int
    heads: int
    layers: int

    def __post_init__(self) -> None:
        positive_int("heads", self.heads)
        if self.width % self.heads:
            raise ValueError(f"Expected heads={self.heads} to divide {self.width}.")


class Encoder(nn.Module):
    """BERT's encoder of single texts: token numbers [n, length] to the mean [n, width] over what is no padding."""

    def __init__(self, sizes: Sizes, *, length: int, source: Weights | None = None) -> None:
        super().__init__()
        self.source = source
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.places = nn.Embedding(length, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, eps=_EPS)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """The means; zero for a text of padding alone."""
        tokens = tokens.long()
        there = tokens != _PADDING
        places = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        now = self.norm(self.words(tokens) + self.places(places))
        for layer in self.layers:
            now = layer(now, there)
        counted = there[:, :, None].to(now.dtype)
        mean: Tensor = (now * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        return mean

    def published(self) -> Mapping[str, Tensor] | None:
        """The source's parameters by the names that they have here."""
        if self.source is None:
            return None
        found, names = load_file(self.source.path()), {"words.weight": "embeddings.word_embeddings.weight"}
        for kind in ("weight", "bias"):
            names[f"norm.{kind}"] = f"embeddings.LayerNorm.{kind}"
            for layer in range(len(self.layers)):
                for ours, theirs in _NAMES.items():
                    names[f"layers.{layer}.{ours}.{kind}"] = f"encoder.layer.{layer}.{theirs}.{kind}"
        places = found["embeddings.position_embeddings.weight"][: self.places.num_embeddings]
        single_text = found["embeddings.token_type_embeddings.weight"][0]
        return {"places.weight": places + single_text} | {ours: found[theirs] for ours, theirs in names.items()}


class Layer(nn.Module):
    """Attention among the words of a text, then two linear maps of each; sums with what came in, normalized.

    Shapes: [n, length, width] and which words are there [n, length] -> [n, length, width].
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.query, self.key, self.value, self.mixed = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, sizes.middle), nn.Linear(sizes.middle, width)
        self.norm, self.last_norm = (nn.LayerNorm(width, eps=_EPS) for _ in range(2))

    def forward(self, now: Tensor, there: Tensor) -> Tensor:
        """What enters the next layer."""
        now = self.norm(now + self.mixed(self._attended(now, there)))
        out: Tensor = self.last_norm(now + self.narrow(gelu(self.wide(now))))
        return out

    def _attended(self, now: Tensor, there: Tensor) -> Tensor:
        """Each head's means of values, weighed by how well keys fit a query; nobody looks at padding."""
        query, key, value = (
            layer(now).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        fit = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
        fit = fit.masked_fill(~there[:, None, None, :], torch.finfo(fit.dtype).min)
        attended: Tensor = (fit.softmax(dim=3) @ value).transpose(1, 2).flatten(2)
        return attended


def _sizes_of(source: Weights, heads: int) -> Sizes:
    """What the shapes of a file's tensors say."""
    with safe_open(source.path(), "pt") as tensors:
        words, width = tensors.get_slice("embeddings.word_embeddings.weight").get_shape()
        positions, _ = tensors.get_slice("embeddings.position_embeddings.weight").get_shape()
        middle, _ = tensors.get_slice("encoder.layer.0.intermediate.dense.weight").get_shape()
        layers = sum(name.endswith(".intermediate.dense.weight") for name in tensors.keys())  # noqa: SIM118
    return Sizes(words=words, positions=positions, width=width, middle=middle, heads=heads, layers=layers)
