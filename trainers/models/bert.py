"""Text classifiers: a BERT or RoBERTa encoder with published weights, mean pooling and a linear layer.

The encoder consists of layers that the fused engine supports, so one backward pass gives per-example gradients for all
parameters. Dropout is left out: it would draw from torch's global generator.
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

from dpsweep.accounting.codec import positive, positive_int
from dpsweep.accounting.stored_names.format_defaults import PlacedFile
from dpsweep.trainers.data.published_files import Published

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
"""The names of a layer's modules in published files, by their names here."""


def bert(
    shape: tuple[int, ...],
    classes: int,
    *,
    weights: PlacedFile,
    heads: int = 12,
    padding: int = 0,
    first_place: int = 0,
    eps: float = 1e-12,
    trained: str = "encoder",
) -> nn.Module:
    """An encoder with published weights, and a linear layer from the mean over an example's words to the classes.

    Shapes: token numbers [n, length], whole numbers of any dtype; `padding` follows a text's last word. Three settings
    are not in the file of weights: `heads`, `first_place` (the row of the position table for the first word) and `eps`
    of the normalizations. `trained` selects the trainable parameters: all; encoder and head; or head.
    Source: Devlin, Chang, Lee, Toutanova 2019 (BERT); Liu et al. 2019 (RoBERTa); Yang, Zhang, Chen, Liu 2022
    (embeddings frozen).
    """
    if trained not in _TRAINED:
        raise ValueError(f"Expected trained={trained} to be one of {', '.join(_TRAINED)}.")
    encoder = _build_encoder_of_published_sizes(
        shape, Published(**weights), heads=heads, padding=padding, first_place=first_place, eps=eps
    )
    encoder.layers.requires_grad_(trained != "head")
    for embedding in (encoder.words, encoder.places, encoder.norm):
        embedding.requires_grad_(trained == "all")
    return nn.Sequential(encoder, nn.Linear(encoder.form.width, classes))


def frozen_encoder(
    shape: tuple[int, ...], *, weights: Mapping[str, str], heads: int, padding: int, first_place: int, eps: float
) -> Encoder:
    """The encoder of `bert` with its published weights, none of which is trained."""
    with torch.random.fork_rng(devices=[]):  # torch draws weights, which are replaced
        encoder = _build_encoder_of_published_sizes(
            shape, Published(**weights), heads=heads, padding=padding, first_place=first_place, eps=eps
        )
    encoder.load_state_dict(encoder.published_parameters())
    return encoder.requires_grad_(False)


def _build_encoder_of_published_sizes(
    shape: tuple[int, ...], source: Published, *, heads: int, padding: int, first_place: int, eps: float
) -> Encoder:
    form = Form(**_encoder_sizes_from_file(source), heads=heads, padding=padding, first_place=first_place, eps=eps)
    if len(shape) != 1 or not 1 <= shape[0] <= form.max_words_per_text:
        raise ValueError(f"Expected shape={list(shape)} to be (length,), at most {form.max_words_per_text} words.")
    return Encoder(form, length=shape[0], source=source)


@dataclass(frozen=True, kw_only=True)
class Form:
    """The architecture of an encoder; `middle` is the width between the last two linear maps of a layer."""

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
    def max_words_per_text(self) -> int:
        """The largest number of words in a text."""
        return self.places - self.first_place


class Encoder(nn.Module):
    """BERT's encoder of single texts: token numbers [n, length] to the mean [n, width] over words without padding."""

    def __init__(self, form: Form, *, length: int, source: Published) -> None:
        super().__init__()
        self.form, self.source = form, source
        self.token_count, self.padding_token = form.words, form.padding
        self.words = nn.Embedding(form.words, form.width)
        self.places = nn.Embedding(length, form.width)
        self.norm = nn.LayerNorm(form.width, eps=form.eps)
        self.layers = nn.ModuleList(BertLayer(form) for _ in range(form.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """The means; zero for a text of padding alone. Invalid token numbers count as padding: no record may raise."""
        tokens, padding = tokens.long(), self.form.padding
        tokens = tokens.where((tokens >= 0) & (tokens < self.form.words), padding)
        is_word = tokens != padding
        places = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        values = self.norm(self.words(tokens) + self.places(places))
        for layer in self.layers:
            values = layer(values, is_word)
        weights = is_word[:, :, None].to(values.dtype)
        mean: Tensor = (values * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        return mean

    def published_parameters(self) -> Mapping[str, Tensor]:
        """The source's parameters by their names here; every text has token type 0."""
        tensors = load_file(self.source.verified_path())
        prefix = _tensor_name_prefix(tensors)
        names = {"words.weight": _WORDS}
        for kind in ("weight", "bias"):
            names[f"norm.{kind}"] = f"embeddings.LayerNorm.{kind}"
            for layer in range(self.form.layers):
                for ours, theirs in _NAMES.items():
                    names[f"layers.{layer}.{ours}.{kind}"] = f"encoder.layer.{layer}.{theirs}.{kind}"
        places = tensors[f"{prefix}embeddings.position_embeddings.weight"][self.form.first_place :]
        places = places[: self.places.num_embeddings] + tensors[f"{prefix}embeddings.token_type_embeddings.weight"][0]
        return {"places.weight": places} | {ours: tensors[prefix + theirs] for ours, theirs in names.items()}


class BertLayer(nn.Module):
    """Self-attention over the words of a text, then two linear maps of each word; both with residuals and LayerNorm.

    Shapes: values [n, length, width] and a mask of words [n, length] -> [n, length, width].
    """

    def __init__(self, form: Form) -> None:
        super().__init__()
        width = form.width
        self.heads = form.heads
        self.query, self.key, self.value, self.mixed = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, form.middle), nn.Linear(form.middle, width)
        self.norm, self.last_norm = (nn.LayerNorm(width, eps=form.eps) for _ in range(2))

    def forward(self, values: Tensor, is_word: Tensor) -> Tensor:
        """The input of the next layer."""
        values = self.norm(values + self.mixed(self._attention(values, is_word)))
        out: Tensor = self.last_norm(values + self.narrow(gelu(self.wide(values))))
        return out

    def _attention(self, values: Tensor, is_word: Tensor) -> Tensor:
        """Scaled dot-product attention of each head; padding gets no weight."""
        query, key, value = (
            layer(values).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
        scores = scores.masked_fill(~is_word[:, None, None, :], torch.finfo(scores.dtype).min)
        outputs: Tensor = (scores.softmax(dim=3) @ value).transpose(1, 2).flatten(2)
        return outputs


def _encoder_sizes_from_file(source: Published) -> dict[str, int]:
    """The sizes of an encoder, from the shapes of a file's tensors."""
    with safe_open(source.verified_path(), "pt") as tensors:
        names = list(tensors.keys())
        prefix = _tensor_name_prefix(names)
        words, width = tensors.get_slice(f"{prefix}{_WORDS}").get_shape()
        places, _ = tensors.get_slice(f"{prefix}embeddings.position_embeddings.weight").get_shape()
        middle, _ = tensors.get_slice(f"{prefix}encoder.layer.0.intermediate.dense.weight").get_shape()
    layers = sum(name.endswith(".intermediate.dense.weight") for name in names)
    return {"words": words, "places": places, "width": width, "middle": middle, "layers": layers}


def _tensor_name_prefix(names: Iterable[str]) -> str:
    """The common prefix of tensor names, for an encoder that was published as part of a larger model."""
    word_tables = [name for name in names if name.endswith(_WORDS)]
    if len(word_tables) != 1:
        raise ValueError(f"Expected one tensor of weights to be called {_WORDS}, found {len(word_tables)}.")
    return word_tables[0].removesuffix(_WORDS)
