"""The preprocessing of raw records into model inputs, as plain values that are released together with a model.

Every constant in it comes from the declaration or from the code; none is computed from records. `kind` names the form
of a raw record: `columns`, one value per named column; `array`, numbers; `words`, a text; `tokens`, the numbers of a
text's words in a published vocabulary. `labels` are the names of the classes in order, None if the classes have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dpsweep.trainers.data.records import Scaling
from dpsweep.trainers.data.text.hashed_words import DIGEST_BYTES, KEY, WORD

if TYPE_CHECKING:
    from dpsweep.trainers.data.text.vocabulary import Vocabulary

Form = dict[str, Any]

NEXT_TOKEN = "next_token"
"""The `output` of a language model; other forms state none."""


def of_columns(
    columns: Iterable[str],
    bounds: Mapping[str, tuple[float, float]],
    labels: Sequence[str],
    categories: Mapping[str, Sequence[str]] | None = None,
    unlisted: str = "refused",
) -> Form:
    """Columns in order: numbers clamped to `bounds` and scaled to [0, 1], categories one-hot over a public list.

    `unlisted` says what a category that is not in its list becomes: `refused`, or `zeros` in place of a one.
    """
    listed = categories or {}
    values: dict[str, Form] = {name: {"values": list(listed[name])} for name in listed}
    if unlisted != "refused":
        values = {name: {**form, "unlisted": unlisted} for name, form in values.items()}
    return {
        "kind": "columns",
        "columns": [
            {"name": name, **values[name]}
            if name in listed
            else {"name": name, "low": bounds[name][0], "high": bounds[name][1]}
            for name in columns
        ],
        "labels": list(labels),
    }


def of_array(
    shape: Sequence[int],
    scaling: Scaling | None = None,
    *,
    bounds: tuple[float, float] | None = None,
    pool: int = 1,
    labels: Sequence[str] | None = None,
) -> Form:
    """An array of numbers, clamped to `bounds`, averaged over squares, and scaled to (x / scale - mean) / std."""
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
    }


def of_bounded_array(shape: Sequence[int], bounds: Sequence[float]) -> Form:
    """An array of numbers, clamped to `bounds` and scaled to [0, 1]."""
    low, high = bounds
    scaling = Scaling(scale=high - low, mean=low / (high - low))
    return of_array(shape, scaling, bounds=(low, high))


def of_words(buckets: int, most: int, labels: Sequence[str], encoding: str) -> Form:
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


def of_sequences(vocabulary: Vocabulary, length: int) -> Form:
    """Token numbers of a text, at most `length`, then padding; a model gives the logits of the next token at each."""
    return {**of_tokens(vocabulary, length, ()), "labels": None, "output": NEXT_TOKEN}


def of_tokens(vocabulary: Vocabulary, length: int, labels: Sequence[str]) -> Form:
    """Token numbers of a text, at most `length` including the begin and end marks, then padding."""
    file, digest = getattr(vocabulary, "file", None), getattr(vocabulary, "sha256", None)
    return {
        "kind": "tokens",
        "length": length,
        "padding": vocabulary.padding,
        "words": vocabulary.words,
        "vocabulary": {"file": None if file is None else PurePath(str(file)).name, "sha256": digest},
        "labels": list(labels),
    }
