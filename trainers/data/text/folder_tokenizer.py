"""The tokenizer of a Hugging Face model's folder, `tokenizer.json`, as it was published with the model."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.numbers import positive_int
from dpsweep.trainers.data.text.vocabulary import padded
from dpsweep.trainers.pretrained_folder import TOKENIZER, PretrainedFolder, require_extra, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class FolderTokenizer:
    """The tokenizer in the folder `path`; `words` is the number of entries, `padding` follows a text's last word.

    Planning fills in what is null: `sha256` of tokenizer.json, `words` and `padding`.
    """

    path: str
    sha256: str
    words: int
    padding: int

    def __post_init__(self) -> None:
        positive_int("dataset.vocabulary.words", self.words)

    @property
    def file(self) -> str:
        """The name of the file, which a model card states."""
        return TOKENIZER

    def check(self) -> None:
        """Read the file; see `Vocabulary`."""
        require_extra("tokenizers")
        content = self._content()
        if (words := words_of(content, self.path)) != self.words:
            raise BadInput(f"Expected dataset.vocabulary.words={self.words} == {words}, as in {self.path}.")
        if not 0 <= self.padding < self.words:
            raise BadInput(f"Expected 0 <= dataset.vocabulary.padding={self.padding} < {self.words}.")
        _tokenizer(content)

    def numbers(self, texts: Iterable[str], length: int) -> NDArray[np.float32]:
        """The numbers of each text [n, length]; see `Vocabulary`."""
        tokenizer = _tokenizer(self._content())
        tokenizer.enable_truncation(length)
        valid = [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in texts]
        rows = (encoding.ids for encoding in tokenizer.encode_batch_fast(valid))
        return padded(rows, length, self.padding)

    def _content(self) -> bytes:
        content = PretrainedFolder(path=self.path).tokenizer()
        if (digest := hashlib.sha256(content).hexdigest()) != self.sha256:
            raise BadInput(f"Expected {TOKENIZER} in {self.path} to have sha256={self.sha256}, got {digest}.")
        return content


@lru_cache(maxsize=2)
def _tokenizer(content: bytes) -> Any:
    """The tokenizer in a file, without padding."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as cause:  # the library raises Exception itself
        raise BadInput(f"Expected {TOKENIZER} to be a tokenizer: {' '.join(str(cause).split())}.") from cause
    tokenizer.no_padding()
    return tokenizer
