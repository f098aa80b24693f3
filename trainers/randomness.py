"""Random generators of a trial: one for each use of randomness, never a library's global generator.

Subsampling, noise, the score's noise, augmentation and the order in batches each have a cryptographic generator: AES in
counter mode with a 128-bit key. Nobody who sees some of its numbers can compute the others. In normal use the keys come
from the operating system and are never recorded, because the keys would let a reader subtract the noise. Reproducible
streams are derived from a public seed and give no privacy against anyone who knows the seed; they are for tests and
teaching. Initial weights are public and depend on the trial's identity alone.

Source: FIPS 197 (AES), NIST SP 800-38A (counter mode); `randomgen.AESCounter`, which this module alone imports.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from randomgen import AESCounter

_KEY_BITS = 128
_COUNTER_BITS = 128
_SEED_BYTES = 4


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Streams:
    """A trial's independent generators, one for each use of secret randomness."""

    subsampling: np.random.Generator
    noise: np.random.Generator
    score: np.random.Generator
    augmentation: np.random.Generator
    order: np.random.Generator


def secret_streams() -> Streams:
    """Fresh streams, each with a key of 128 bits and a starting point from the operating system's entropy."""
    return Streams(subsampling=_secret(), noise=_secret(), score=_secret(), augmentation=_secret(), order=_secret())


def reproducible_streams(seed: int, identity: str) -> Streams:
    """The same streams for the same seed and trial, unrelated streams for any other; never secret."""
    return Streams(
        subsampling=_derived(seed, identity, "subsampling"),
        noise=_derived(seed, identity, "noise"),
        score=_derived(seed, identity, "score"),
        augmentation=_derived(seed, identity, "augmentation"),
        order=_derived(seed, identity, "order"),
    )


def initial_seed(identity: str) -> int:
    """The public seed of a trial's initial weights, of 32 bits: torch's CPU generator uses no more."""
    return int.from_bytes(_digest(_SEED_BYTES, "initial weights", identity), "big")


def _secret() -> np.random.Generator:
    return _aes(secrets.randbits(_KEY_BITS), secrets.randbits(_COUNTER_BITS))


def _derived(seed: int, identity: str, use: str) -> np.random.Generator:
    return _aes(int.from_bytes(_digest(_KEY_BITS // 8, use, str(seed), identity), "big"), 0)


def _aes(key: int, counter: int) -> np.random.Generator:
    return np.random.Generator(AESCounter(key=key, counter=counter))


def _digest(size: int, *parts: str) -> bytes:
    """A digest of the parts; two different lists of parts never form the same text."""
    return blake2b("".join(f"{len(part)}:{part}" for part in parts).encode(), digest_size=size).digest()
