"""Features of texts: the mean over a text's words of an encoder with published weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpsweep.accounting.codec import positive, positive_int
from dpsweep.accounting.stored_names.format_defaults import PlacedFile
from dpsweep.trainers.data.published_files import Published
from dpsweep.trainers.features.interface import InputForm, check_extractor_settings

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class SentenceEncoder:
    """An encoder of the BERT family (`trainers/models/bert.py`), all of it frozen.

    `weights` is a file of safetensors, in an installed package or at an absolute path, as in a Hugging Face folder;
    `size` is the encoder's width. The data set's vocabulary must be the encoder's.
    Source: Reimers and Gurevych, Sentence-BERT, EMNLP 2019.
    """

    weights: PlacedFile
    size: int
    heads: int
    padding: int
    first_place: int
    eps: float
    norm: float
    trained_on: str
    fallback: ClassVar[str] = "Without it: dataset=sst2_words, bags of words, or your own counts."
    """What runs without the extractor."""

    def __post_init__(self) -> None:
        for name in ("size", "heads"):
            positive_int(f"features.{name}", getattr(self, name))
        positive("features.eps", self.eps)
        check_extractor_settings(self)
        self._weights_file_and_checksum()

    def check(self, form: InputForm) -> None:
        """Refuse inputs other than token numbers with the same padding."""
        if form.preprocessing is None or form.raw_record_kind != "tokens":
            raise ValueError("Expected a data set of token numbers with an encoder of texts, such as dataset=sst2.")
        if form.preprocessing["padding"] != self.padding:
            raise ValueError(
                f"Expected features.padding={self.padding} == {form.preprocessing['padding']}, the vocabulary's."
            )

    def locate(self) -> None:
        """Find the encoder's weights."""
        self._weights_file_and_checksum().verified_path()

    def module(self, form: InputForm) -> nn.Module:
        """The encoder on each text without its padding."""
        from dpsweep.trainers.features.scaled_rows import ScaledRows
        from dpsweep.trainers.models.bert import frozen_encoder

        settings = {name: getattr(self, name) for name in ("heads", "padding", "first_place", "eps")}
        frozen = frozen_encoder(form.shape, weights=self.weights, **settings)
        words = (form.preprocessing or {})["words"]
        if frozen.form.width != self.size or frozen.form.words < words:
            raise ValueError(
                f"Expected an encoder of width features.size={self.size} with at least the vocabulary's {words} words, "
                f"got width {frozen.form.width} and {frozen.form.words} words."
            )

        def encode_without_padding(tokens: Tensor) -> Tensor:
            rows: Tensor = frozen(without_common_padding(tokens, self.padding))
            return rows

        return ScaledRows(frozen, self.norm, encode_without_padding)

    def _weights_file_and_checksum(self) -> Published:
        return Published(**self.weights)


def without_common_padding(tokens: Tensor, padding: int) -> Tensor:
    """Token numbers [n, length] without the last columns that are padding in every text: an encoder's means stay."""
    used = (tokens != padding).any(dim=0).nonzero()
    return tokens[:, : int(used.max()) + 1 if len(used) else 1]
