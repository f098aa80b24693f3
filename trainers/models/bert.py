"""A classifier of texts: BERT's or RoBERTa's encoder, of published weights, and a linear layer on the mean of it.

Written out in layers that the fused engine knows, so that one pass has each example's gradient, by any part of it.
Dropout is left out: it would draw from torch's global generator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import gelu

from dpsweep.accounting.numbers import positive, positive_int
from dpsweep.trainers.pretrained_files import Published

_WORDS = "embeddings.word_embeddings.weight"
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
    shape: tuple[int, ...],
    classes: int,
    *,
    weights: Mapping[str, str],
    heads: int = 12,
    padding: int = 0,
    first_place: int = 0,
    eps: float = 1e-12,
    trained: str = "encoder",
) -> nn.Module:
    """The encoder of a file of weights, and a linear layer from the mean over an example's words to the classes.

    Shapes: token numbers [n, length], whole numbers of any dtype; after a text's last word, `padding`. The file does
    not tell its `heads`, the row of its table of places that is the first word's, and the `eps` of its normalizations.
    `trained` says what training changes: all, the encoder and the head but no embeddings, or the head alone.
    Source: Devlin, Chang, Lee, Toutanova 2019 (BERT); Liu et al. 2019 (RoBERTa); Yang, Zhang, Chen, Liu 2022
    (embeddings frozen).
    """
    if trained not in _TRAINED:
        raise ValueError(f"Expected trained={trained} to be one of {', '.join(_TRAINED)}.")
    source = Published(**weights)
    form = Form(**_sizes_of(source), heads=heads, padding=padding, first_place=first_place, eps=eps)
    if len(shape) != 1 or not 1 <= shape[0] <= form.longest:
        raise ValueError(f"Expected shape={list(shape)} to be (length,), at most {form.longest} words.")
    encoder = Encoder(form, length=shape[0], source=source)
    encoder.layers.requires_grad_(trained != "head")
    for embedding in (encoder.words, encoder.places, encoder.norm):
        embedding.requires_grad_(trained == "all")
    return nn.Sequential(encoder, nn.Linear(form.width, classes))


@dataclass(frozen=True, kw_only=True)
class Form:
    """What an encoder is, beside its weights; `middle` is the width between a layer's last two linear maps."""

    words: int
    places: int
    width: int
    middle: int
    layers: int
    heads: int
    padding: int
    first_place: int
    eps: float

    def __post_init__(self) -> None:
        positive_int("heads", self.heads)
        positive("eps", self.eps)
        if self.width % self.heads:
            raise ValueError(f"Expected heads={self.heads} to divide {self.width}.")
        for name, value, bound in (
            ("padding", self.padding, self.words),
            ("first_place", self.first_place, self.places),
        ):
            if not (isinstance(value, int) and 0 <= value < bound):
                raise ValueError(f"Expected 0 <= {name}={value} < {bound}.")

    @property
    def longest(self) -> int:
        """The most words of a text."""
        return self.places - self.first_place


class Encoder(nn.Module):
    """BERT's encoder of single texts: token numbers [n, length] to the mean [n, width] over what is no padding."""

    def __init__(self, form: Form, *, length: int, source: Published) -> None:
        super().__init__()
        self.form, self.source = form, source
        self.words = nn.Embedding(form.words, form.width)
        self.places = nn.Embedding(length, form.width)
        self.norm = nn.LayerNorm(form.width, eps=form.eps)
        self.layers = nn.ModuleList(BertLayer(form) for _ in range(form.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """The means; zero for a text of padding alone. Numbers of no word count as padding: no record may end a run."""
        tokens, padding = tokens.long(), self.form.padding
        tokens = tokens.where((tokens >= 0) & (tokens < self.form.words), padding)
        there = tokens != padding
        places = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        now = self.norm(self.words(tokens) + self.places(places))
        for layer in self.layers:
            now = layer(now, there)
        counted = there[:, :, None].to(now.dtype)
        mean: Tensor = (now * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        return mean

    def published(self) -> Mapping[str, Tensor]:
        """The source's parameters by the names that they have here; every text is of the first type."""
        found = load_file(self.source.path())
        start = _start_of(found)
        names = {"words.weight": _WORDS}
        for kind in ("weight", "bias"):
            names[f"norm.{kind}"] = f"embeddings.LayerNorm.{kind}"
            for layer in range(self.form.layers):
                for ours, theirs in _NAMES.items():
                    names[f"layers.{layer}.{ours}.{kind}"] = f"encoder.layer.{layer}.{theirs}.{kind}"
        places = found[f"{start}embeddings.position_embeddings.weight"][self.form.first_place :]
        places = places[: self.places.num_embeddings] + found[f"{start}embeddings.token_type_embeddings.weight"][0]
        return {"places.weight": places} | {ours: found[start + theirs] for ours, theirs in names.items()}


class BertLayer(nn.Module):
    """Attention among the words of a text, then two linear maps of each; sums with what came in, normalized.

    Shapes: [n, length, width] and which words are there [n, length] -> [n, length, width].
    """

    def __init__(self, form: Form) -> None:
        super().__init__()
        width = form.width
        self.heads = form.heads
        self.query, self.key, self.value, self.mixed = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, form.middle), nn.Linear(form.middle, width)
        self.norm, self.last_norm = (nn.LayerNorm(width, eps=form.eps) for _ in range(2))

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


def _sizes_of(source: Published) -> dict[str, int]:
    """What the shapes of a file's tensors say."""
    with safe_open(source.path(), "pt") as tensors:
        names = list(tensors.keys())
        start = _start_of(names)
        words, width = tensors.get_slice(f"{start}{_WORDS}").get_shape()
        places, _ = tensors.get_slice(f"{start}embeddings.position_embeddings.weight").get_shape()
        middle, _ = tensors.get_slice(f"{start}encoder.layer.0.intermediate.dense.weight").get_shape()
    layers = sum(name.endswith(".intermediate.dense.weight") for name in names)
    return {"words": words, "places": places, "width": width, "middle": middle, "layers": layers}


def _start_of(names: Iterable[str]) -> str:
    """What stands before the names of an encoder that was published as part of something larger."""
    word_tables = [name for name in names if name.endswith(_WORDS)]
    if len(word_tables) != 1:
        raise ValueError(f"Expected one tensor of weights to be called {_WORDS}, found {len(word_tables)}.")
    return word_tables[0].removesuffix(_WORDS)
