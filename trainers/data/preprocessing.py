"""The preprocessing of raw records into model inputs, as plain values that are released together with a model.

Every constant in it comes from the declaration or from the code; none is computed from records. `kind` names the form
of a raw record: `columns`, one value per named column; `array`, numbers; `words`, a text; `tokens`, the numbers of a
text's words in a published vocabulary. `orientation` says what became of the orientation in pictures' EXIF data; it is
left out where they were stored upright. `labels` are the names of the classes in order, None if the classes have none.
`target` is the range from which a number was scaled to [0, 1], where there is one (`trainers/data/targets.py`).
Texts become bounded counts of hashed words; no vocabulary is computed from the records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsweep.accounting.codec import positive_int
from dpsweep.trainers.data.records import Scaling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.trainers.data.vocabularies import Vocabulary


KEY = b"dpsweep words 1"
DIGEST_BYTES = 8
WORD = re.compile(r"\w+")
LARGEST_COUNT = 255
"""The largest count that one stored byte can represent."""


def check_bound_fits_one_byte(most: int) -> None:
    """Refuse a bound that one byte cannot represent."""
    positive_int("dataset.most", most)
    if most > LARGEST_COUNT:
        raise ValueError(f"Expected dataset.most={most} <= {LARGEST_COUNT}.")


def hashed_word_counts_of_texts(texts: Sequence[str], width: int, most: int) -> NDArray[np.uint8]:
    """The number of words of each text in each of `width` buckets, clamped to `most`: uint8 [n, width].

    Guarantee: a word's bucket is a public keyed hash of its lower-case letters, the same on every machine; a row is a
    function of its own text and of public constants alone.
    """
    counts = np.empty((len(texts), width), dtype=np.uint8)
    cache: dict[str, int] = {}  # it saves time and does not change the result
    for row, text in zip(counts, texts, strict=True):
        buckets = [
            cache[word] if word in cache else cache.setdefault(word, hash_bucket_of_word(word, width))
            for word in split_into_words(text)
        ]
        row[:] = np.minimum(np.bincount(np.array(buckets, dtype=np.int64), minlength=width), most)
    return counts


def split_into_words(text: str) -> list[str]:
    """The maximal sequences of letters and digits, in lower case."""
    return WORD.findall(text.lower())


def hash_bucket_of_word(word: str, width: int) -> int:
    """The bucket in 0..width-1 that the public hash assigns to a word."""
    digest = blake2b(word.encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES, key=KEY).digest()
    return int.from_bytes(digest, "big") % width


Form = dict[str, Any]

UPRIGHT = "stored"
"""The orientation of pictures that a form leaves out: they were stored upright."""

NEXT_TOKEN = "next_token"
"""The `output` of a language model; other forms state none."""


def preprocessing_form_of_feature_columns(columns: Sequence[Form], labels: Sequence[str] | None) -> Form:
    """Columns in order, each by the form of its own (`trainers/data/feature_columns.py`)."""
    return {"kind": "columns", "columns": list(columns), "labels": None if labels is None else list(labels)}


def preprocessing_form_of_array(
    shape: Sequence[int],
    scaling: Scaling | None = None,
    *,
    bounds: tuple[float, float] | None = None,
    pool: int = 1,
    labels: Sequence[str] | None = None,
    orientation: str = UPRIGHT,
) -> Form:
    """An array of numbers, clamped to `bounds`, averaged over squares, and scaled to (x / scale - mean) / std.

    `orientation` is that of pictures (`trainers/data/pictures.py`).
    """
    scaling = scaling or Scaling()
    return {
        "kind": "array",
        "raw_shape": [*shape[:-2], *(size * pool for size in shape[-2:])],
        "bounds": None if bounds is None else list(bounds),
        "pool": pool,
        "scale": scaling.scale,
        "mean": scaling.mean,
        "std": scaling.std,
        "labels": None if labels is None else list(labels),
        **({} if orientation == UPRIGHT else {"orientation": orientation}),
    }


def of_bounded_array(shape: Sequence[int], bounds: Sequence[float], *, orientation: str = UPRIGHT) -> Form:
    """An array of numbers, clamped to `bounds` and scaled to [0, 1]."""
    low, high = bounds
    scaling = Scaling(scale=high - low, mean=low / (high - low))
    return preprocessing_form_of_array(shape, scaling, bounds=(low, high), orientation=orientation)


def preprocessing_form_of_word_counts(buckets: int, most: int, labels: Sequence[str], encoding: str) -> Form:
    """Word counts of a text in the buckets of a public keyed hash, clamped to `most` and divided by `most`."""
    return {
        "kind": "words",
        "buckets": buckets,
        "most": most,
        "pattern": WORD.pattern,
        "key": KEY.decode(),
        "digest_bytes": DIGEST_BYTES,
        "encoding": encoding,
        "labels": list(labels),
    }


def preprocessing_form_for_language_model(vocabulary: Vocabulary, length: int) -> Form:
    """Token numbers of a text, at most `length`, then padding; a model gives the logits of the next token at each."""
    return {**preprocessing_form_of_labelled_tokens(vocabulary, length, ()), "labels": None, "output": NEXT_TOKEN}


def preprocessing_form_of_labelled_tokens(vocabulary: Vocabulary, length: int, labels: Sequence[str]) -> Form:
    """Token numbers of a text, at most `length` including the begin and end marks, then padding."""
    file = None if vocabulary.file is None else PurePath(vocabulary.file).name
    return {
        "kind": "tokens",
        "length": length,
        "padding": vocabulary.padding,
        "words": vocabulary.words,
        "vocabulary": {"file": file, "sha256": vocabulary.sha256},
        "labels": list(labels),
    }
