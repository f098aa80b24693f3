"""What makes a raw record into a model's input, as plain values that leave with a released model.

Every constant in it is the declaration's own or the code's: nothing is ever computed from records. `kind` says what a
raw record is: `columns`, a value by the name of each; `array`, numbers; `words`, a text; `tokens`, the numbers of a
text's words in a published vocabulary. `labels` are the names of the classes in order, None where they are numbers.
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


def of_columns(
    columns: Iterable[str],
    bounds: Mapping[str, tuple[float, float]],
    labels: Sequence[str],
    categories: Mapping[str, Sequence[str]] | None = None,
) -> Form:
    """Columns in order: numbers clamped to `bounds` and scaled to [0, 1], others as ones and zeros over a list."""
    listed = categories or {}
    return {
        "kind": "columns",
        "columns": [
            {"name": name, "values": list(listed[name])}
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
    """Numbers of a shape, clamped to `bounds`, averaged over squares, and scaled to (x / scale - mean) / std."""
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
    """Numbers of a shape, clamped to `bounds` and scaled to [0, 1]."""
    low, high = bounds
    scaling = Scaling(scale=high - low, mean=low / (high - low))
    return of_array(shape, scaling, bounds=(low, high))


def of_words(buckets: int, most: int, labels: Sequence[str], encoding: str) -> Form:
    """A text's words, counted by a public keyed hash, at most `most` of each bucket, over `most`."""
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


def of_tokens(vocabulary: Vocabulary, length: int, labels: Sequence[str]) -> Form:
    """The numbers of a text's words, at most `length` of them with the marks of begin and end, then padding."""
    file, digest = getattr(vocabulary, "file", None), getattr(vocabulary, "sha256", None)
    return {
        "kind": "tokens",
        "length": length,
        "padding": vocabulary.padding,
        "words": vocabulary.words,
        "vocabulary": {"file": None if file is None else PurePath(str(file)).name, "sha256": digest},
        "labels": list(labels),
    }
