"""Randomness of a trial: a generator for each use, and Gaussian noise that is safe in floating point.

Random generators of a trial: one for each use of randomness, never a library's global generator.

Subsampling, noise, the score's noise, augmentation and the order in batches each have a cryptographic generator: AES in
counter mode with a 128-bit key. Nobody who sees some of its numbers can compute the others. In normal use the keys come
from the operating system and are never recorded, because the keys would let a reader subtract the noise. Reproducible
streams are derived from a public seed and give no privacy against anyone who knows the seed; they are for tests and
teaching. Initial weights are public and depend on the trial's identity alone.

Source: FIPS 197 (AES), NIST SP 800-38A (counter mode); `randomgen.AESCounter`, which this module alone imports.

Gaussian noise that is safe in floating point: drawn in float64, added, and rounded to a lattice.

Why this module exists: the noise of a floating-point generator takes only some of the real values, so the values that a
noisy sum can take depend on the sum (Mironov 2012). One release with float32 noise can distinguish two neighbours.

Invariant: every released noisy number is a multiple of `spacing(noise_std)`, a power of two that depends on the
declared noise alone. Each multiple stands for a cell, which is an interval of that width. Its probability is within a
factor exp(+-2**-41) of the probability that exact Gaussian noise on the same sum falls into this cell. Rounding exact
noise is post-processing, so a release of k noisy numbers costs the proven cost of exact noise, plus what
`accounting/profiles` adds to every price. A coarse lattice makes that cost small: cells are 2**-5 to 2**-4 standard
deviations wide. The rounding itself adds at most (2**-4)**2 / 12 = 3.3e-4 of the variance. Counts are few, and their
intervals take the noise as normal: their cells are 32 times finer, with a factor exp(+-2**-36).

The argument for 2**-41, in units of the standard deviation; a cell is 2**-5 < h <= 2**-4 wide and may lie anywhere:

* Adding in float64 and rounding to the lattice is one monotone function of the exact sum of two float64 numbers. It is
  the same for neighbours, hence post-processing. Only the number of noise values in an interval of width h matters.
* Below R, numpy's ziggurat draws from 256 layers of equal weight; in a layer of width x <= 3.92 the values are
  2**-52 * x apart. An interval holds h / (2**-52 * x) of them, at most one more or fewer. Two roundings, of the layer's
  product and of the product with noise_std, move each end by at most one value. So the relative error is at most
  3 * 3.92 * 2**-47 < 2**-43. Rejections compare a number of 53 random bits, scaled to the heights of a layer, with the
  density. A layer's upper height is at most 2.1 times its lower one, so they move the density by less than 2**-50 of
  itself.
* Above R, where numpy's own values become sparse (2**-53 / density apart), magnitudes are drawn again by Marsaglia's
  method from exponentials with 53 random bits below their leading bit. Up to 16 standard deviations, an exponential is
  at most 46, and the roundings of its two terms, of ln 2 and of their difference are below 2.8 * 2**-48. Divided by R,
  and with the roundings of the quotient, the sum and the product with noise_std, an end of the interval moves by less
  than 2**-47.1. The density at both ends is at most 65.4 times the mean density of a cell there, which makes 2**-41.1;
  the rejections compare numbers of at most 77 and add 2**-45. Beyond, exact noise has a probability of 2**-188.

2**-41 is more than the largest of these errors. Not covered: a processor that does not round as IEEE 754 says; the time
that a draw takes; randomness other than Gaussian noise. A coin of a sample is priced at its rate rounded up to a
multiple of 2**-53.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from randomgen import AESCounter

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor


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
    return Streams(
        subsampling=_secret_generator(),
        noise=_secret_generator(),
        score=_secret_generator(),
        augmentation=_secret_generator(),
        order=_secret_generator(),
    )


def reproducible_streams(seed: int, identity: str) -> Streams:
    """The same streams for the same seed and trial, unrelated streams for any other; never secret."""
    return Streams(
        subsampling=_derived_generator(seed, identity, "subsampling"),
        noise=_derived_generator(seed, identity, "noise"),
        score=_derived_generator(seed, identity, "score"),
        augmentation=_derived_generator(seed, identity, "augmentation"),
        order=_derived_generator(seed, identity, "order"),
    )


def public_seed_of_initial_weights(identity: str) -> int:
    """The public seed of a trial's initial weights, of 32 bits: torch's CPU generator uses no more."""
    return int.from_bytes(_digest_of_texts(_SEED_BYTES, "initial weights", identity), "big")


def _secret_generator() -> np.random.Generator:
    return _aes_generator(secrets.randbits(_KEY_BITS), secrets.randbits(_COUNTER_BITS))


def _derived_generator(seed: int, identity: str, use: str) -> np.random.Generator:
    return _aes_generator(int.from_bytes(_digest_of_texts(_KEY_BITS // 8, use, str(seed), identity), "big"), 0)


def _aes_generator(key: int, counter: int) -> np.random.Generator:
    return np.random.Generator(AESCounter(key=key, counter=counter))


def _digest_of_texts(size: int, *parts: str) -> bytes:
    """A digest of the parts; two different lists of parts never form the same text."""
    return blake2b("".join(f"{len(part)}:{part}" for part in parts).encode(), digest_size=size).digest()


COARSE = 4
"""A cell of a step's noise is at most 2**-4 standard deviations wide: rounding adds at most 3.3e-4 of its variance."""

FINE = 9
"""A cell of a count's noise is 32 times finer: a tail of the count and its noise rises by less than 1 % in its log."""

_R = 3.6541528853610088  # where the tail of numpy's ziggurat begins
_BITS = 53
_LEAST, _MOST = 2.0**-900, 2.0**900  # standard deviations at which noise and lattice neither underflow nor overflow


def lattice_spacing(noise_std: float, fineness: int = COARSE) -> float:
    """The lattice's spacing: the largest power of two that is no more than noise_std * 2**-fineness; 0 without noise.

    Errors: ValueError where noise_std is so small or so large that float64 cannot divide exactly by the spacing.

    >>> lattice_spacing(1.0) == 2.0**-4, lattice_spacing(3.0) == 2.0**-3, lattice_spacing(0.0)
    (True, True, 0.0)
    """
    if not noise_std:
        return 0.0
    if not _LEAST <= noise_std <= _MOST:
        raise ValueError(f"Expected noise_std={noise_std} to be 0, or in [{_LEAST:.3g}, {_MOST:.3g}].")
    return math.ldexp(1.0, math.frexp(noise_std)[1] - 1 - fineness)


def standard_normal(rng: np.random.Generator, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Independent standard normal noise in float64, with full resolution in the tail too."""
    noise = rng.standard_normal(shape)
    flat = noise.reshape(-1)
    tail = np.flatnonzero((flat >= _R) | (flat <= -_R))
    if tail.size:
        flat[tail] = np.copysign(_draw_normal_tail_magnitudes(rng, tail.size), flat[tail])
    return noise


def add_gaussian_noise_on_lattice(
    exact: NDArray[np.float64], noise_std: float, rng: np.random.Generator, fineness: int = COARSE
) -> NDArray[np.float64]:
    """The exact numbers plus Gaussian noise, rounded to the lattice."""
    if not noise_std:
        return exact
    cell = lattice_spacing(noise_std, fineness)
    noisy: NDArray[np.float64] = np.rint((exact + noise_std * standard_normal(rng, exact.shape)) / cell) * cell
    return noisy


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattices:
    """The noise of K vectors that are released together: standard deviations [K, 1] and lattice spacings [K, 1]."""

    stds: Tensor
    cells: Tensor
    silent: bool

    @classmethod
    def from_noise_stds(cls, stds: Sequence[float], device: torch.device | str) -> Lattices:
        """The lattices for these standard deviations; some of them may be 0."""
        import torch

        columns = torch.tensor([[std, lattice_spacing(std) or 1.0] for std in stds], dtype=torch.float64).to(device)
        return cls(stds=columns[:, :1], cells=columns[:, 1:], silent=not all(stds))

    def add_noise_to_sums(self, sums: Tensor, noise: Tensor) -> Tensor:
        """Sums [K, P] plus their noise, in float64 on the lattices; rows without noise stay exact.

        `noise` [K, P] is standard normal in float64, and this call overwrites it.
        """
        # division by a power of two is exact, so the result is a function of the exact sum
        noisy = noise.mul_(self.stds / self.cells).add_(sums / self.cells).round_().mul_(self.cells)
        return noisy.where(self.stds > 0, sums.double()) if self.silent else noisy


def _draw_normal_tail_magnitudes(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Magnitudes of standard normal numbers that are at least R. Source: Marsaglia 1964."""
    magnitudes: NDArray[np.float64] = np.empty(0)
    while (missing := count - len(magnitudes)) > 0:
        excess, height = _draw_exponential(rng, missing) / _R, _draw_exponential(rng, missing)
        magnitudes = np.concatenate([magnitudes, _R + excess[2 * height > excess**2]])
    return magnitudes


def _draw_exponential(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Exponential numbers -ln(u), where u = 2**-zeros * (1 + v) / 2 has 53 random bits even where u is tiny."""
    first, second = rng.integers(2**_BITS, size=(2, count)).astype(np.float64)
    zeros = np.where(first > 0, _BITS - np.frexp(first)[1], 2 * _BITS - np.frexp(second)[1])
    exponential: NDArray[np.float64] = (zeros + 1) * math.log(2) - np.log1p(rng.random(count))
    return exponential
