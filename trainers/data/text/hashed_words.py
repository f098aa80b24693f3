"""Texts as bounded counts of hashed words, so that no vocabulary is taken from the records."""

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
"""What a byte holds."""


def check_most(most: int) -> None:
    """Refuse a bound that a stored count cannot reach."""
    positive_int("dataset.most", most)
    if most > LARGEST_COUNT:
        raise ValueError(f"Expected dataset.most={most} <= {LARGEST_COUNT}.")


def hashed_counts(texts: Sequence[str], width: int, most: int) -> NDArray[np.uint8]:
    """How often each text has words of each of `width` buckets, at most `most`: uint8 [n, width].

    Guarantee: a word's bucket is a public keyed hash of its lower-case letters, the same on every machine; a row is a
    function of its own text and of public constants alone.
    """
    counts = np.empty((len(texts), width), dtype=np.uint8)
    known: dict[str, int] = {}  # saves time alone: what it holds does not depend on who asked before
    for row, text in zip(counts, texts, strict=True):
        buckets = [
            known[word] if word in known else known.setdefault(word, bucket(word, width)) for word in words(text)
        ]
        row[:] = np.minimum(np.bincount(np.array(buckets, dtype=np.int64), minlength=width), most)
    return counts


def words(text: str) -> list[str]:
    """The runs of letters and digits, in lower case."""
    return WORD.findall(text.lower())


def bucket(word: str, width: int) -> int:
    """The place in 0..width-1 that the public hash gives a word."""
    digest = blake2b(word.encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES, key=KEY).digest()
    return int.from_bytes(digest, "big") % width
