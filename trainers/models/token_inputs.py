"""The check that a model fits the inputs of a data set: token numbers of the same vocabulary, or quantities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from dpsweep.trainers.models.checks.probe_inputs import TokenReader, takes_quantities

if TYPE_CHECKING:
    from dpsweep.trainers.data.text.vocabulary import Vocabulary


def check_words(model: nn.Module, vocabulary: Vocabulary | None, shape: tuple[int, ...]) -> None:
    """Raises ValueError if only one of model and data set uses tokens, or if vocabulary size or padding do not fit."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    tables = [layer.num_embeddings for layer in model.modules() if isinstance(layer, kinds)]
    if vocabulary is None:
        if tables and not takes_quantities(model, shape):
            raise ValueError("Expected dataset.vocabulary for a model of words: this data set gives quantities.")
        return
    if not tables:
        raise ValueError("Expected a model of words for dataset.vocabulary, such as minilm: this one takes quantities.")
    if max(tables) < vocabulary.words:
        raise ValueError(f"Expected dataset.vocabulary.words={vocabulary.words} <= {max(tables)}, those of the model.")
    for module in model.modules():
        if isinstance(module, TokenReader) and module.padding_token != vocabulary.padding:
            raise ValueError(
                f"Expected dataset.vocabulary.padding={vocabulary.padding} == {module.padding_token}, the model's."
            )
