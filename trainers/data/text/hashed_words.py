"""Texts as bounded counts of hashed words; no vocabulary is computed from the records."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.numbers import positive_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KEY = b"dpsweep words 1"
DIGEST_BYTES = 8
WORD = re.compile(r"\w+")
LARGEST_COUNT = 255
"""The largest count that one stored byte can represent."""


def check_most(most: int) -> None:
    """Refuse a bound that one byte cannot represent."""
    positive_int("dataset.most", most)
    if most > LARGEST_COUNT:
        raise ValueError(f"Expected dataset.most={most} <= {LARGEST_COUNT}.")


def hashed_counts(texts: Sequence[str], width: int, most: int) -> NDArray[np.uint8]:
    """The number of words of each text in each of `width` buckets, clamped to `most`: uint8 [n, width].

    Guarantee: a word's bucket is a public keyed hash of its lower-case letters, the same on every machine; a row is a
    function of its own text and of public constants alone.
    """
    counts = np.empty((len(texts), width), dtype=np.uint8)
    cache: dict[str, int] = {}  # it saves time and does not change the result
    for row, text in zip(counts, texts, strict=True):
        buckets = [
            cache[word] if word in cache else cache.setdefault(word, bucket(word, width)) for word in words(text)
        ]
        row[:] = np.minimum(np.bincount(np.array(buckets, dtype=np.int64), minlength=width), most)
    return counts


def words(text: str) -> list[str]:
    """The maximal sequences of letters and digits, in lower case."""
    return WORD.findall(text.lower())


def bucket(word: str, width: int) -> int:
    """The bucket in 0..width-1 that the public hash assigns to a word."""
    digest = blake2b(word.encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES, key=KEY).digest()
    return int.from_bytes(digest, "big") % width
