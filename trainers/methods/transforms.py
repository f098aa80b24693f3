"""Gradient transforms: they bound each example's gradient (each unit's, if units have several examples) for the sum.

A transform receives only the norms of the per-example gradients and returns one factor for each; the engine
forms sum_i factor_i * gradient_i. The noise is scaled to `bound`, so privacy depends on one law, which holds
for every transform and every norm, also 0, subnormal, huge, infinite and nan:

    factor >= 0 is finite, and factor * norm <= LENGTH_SHARE * bound;  factor == 0 where the norm is not finite.

Rounding alone may add four units u = 2**-24 of float32 to the factor.

If all possible gradients of an example lie on one line, as in a model with one linear output, a signed length
describes a gradient, and `transformed_signed_lengths` returns the signed length after the transform: |length| <=
LENGTH_SHARE * bound, and 0 if the length was not finite.

LENGTH_SHARE is below 1 by all that rounding may add. Lowering is always sound.

* Ten units for a gradient's own length: four in a factor (its constant or its sum, the quotient, their product), three
  in a norm (two factors and their product), one in the product of factor and gradient, two for a class weight (itself,
  its product with the factor).
* Eight units for the float64 sum: n terms of norm `bound` add up with an error of at most n**2 * 2**-53 of it, with a
  record and without it, so that sums of up to 46,340 units move by at most `bound`.
* 4 m**2 units for float32 products of blocks of m = EXAMPLES_PER_BLOCK examples, whose results are added in float64. An
  entry of a product is a sum of m products of two numbers. In whatever order it is formed, with fused additions or
  without, each of the m goes through at most m roundings, so the entry is wrong by at most (1 + u)**m - 1 of the sum of
  their magnitudes. By the triangle inequality the block is wrong by at most m ((1 + u)**m - 1) times the largest length
  of a gradient, in Euclidean norm and over all layers together, which is below m**2 u of `bound`. A record that is
  added takes a place that was blank (`dpsweep.trainers.data.places`): its block changes, which is wrong once with the
  record and once without it, and half of these units is not needed. All other blocks have the same factors at the same
  place, and so the same result. Blank places, which are zero, round nothing.

The last argument needs products that neither overflow nor lose digits to underflow, and clip norms have limits
accordingly. A number that is flushed to 0 is wrong by less than 2**-126: in a block of up to 2**40 weights, with the
record and without it, together by less than 2**-97, far below u of the smallest clip norm.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from dpsweep.accounting.codec import positive

if TYPE_CHECKING:
    from torch import Tensor

EXAMPLES_PER_BLOCK = 64
"""The examples whose gradients are added up in float32."""

LENGTH_SHARE = 1 - (18 + 4 * EXAMPLES_PER_BLOCK**2) * 2**-24
"""The share of its bound that a transformed gradient may have; rounding may add the rest to a sum."""

_LEAST, _MOST = 2.0**-64, 2.0**120
"""The limits of clip norms."""


class GradientTransform(Protocol):
    """Bounds per-example gradients by scaling them.

    *Guarantee*: `factors` obeys the law above with this `bound`, so the sum over examples has sensitivity
    `bound` when a record is added or removed, and at most twice that when one is replaced.
    """

    @property
    def norm_bound(self) -> float:
        """The largest possible norm of a transformed gradient."""

    def factors(self, norms: Tensor) -> Tensor:
        """The factors [..., n] for gradients of these norms [..., n], in the dtype of the norms; n may be 0."""

    def transformed_signed_lengths(self, lengths: Tensor) -> Tensor:
        """The signed lengths [..., n] after the transform of these [..., n]: lengths * factors(|lengths|)."""

    def with_smaller_bound(self, factor: float) -> GradientTransform:
        """The same transform with `factor` in (0, 1] times the bound; ValueError if that makes no sense."""


def require_bounded_lengths(transform: GradientTransform) -> None:
    """Raises ValueError if a transform breaks its law at one of many norms from 2**-60 to 2**60, or at infinity or nan.

    The charge is for gradients of length LENGTH_SHARE * bound, and engines do not look at lengths again.
    """
    import torch

    norms = torch.tensor([0.0, *(m * 2.0**e for e in range(-60, 61) for m in (1, 1.3, 1.7)), math.inf, math.nan])
    factors = transform.factors(norms)
    lengths = factors.double() * norms.double().nan_to_num(posinf=0.0)
    lawful = (factors >= 0) & (lengths <= LENGTH_SHARE * (1 + 2.0**-22) * transform.norm_bound)
    if not bool(lawful.all()) or bool(factors[~norms.isfinite()].any()):
        raise ValueError(
            f"Expected transform={transform!r} to make gradients no longer than {LENGTH_SHARE:.6f} times its "
            "norm_bound, to which rounding may add the rest, and 0 where a norm is not finite."
        )


@dataclass(frozen=True, kw_only=True)
class Clip:
    """Scales a gradient g to norm at most `clip_norm`: the factor min(1, clip_norm / ||g||).

    Source: Abadi et al. 2016, Algorithm 1.
    """

    works: ClassVar[tuple[str, ...]] = ("abadi2016deep",)

    clip_norm: float

    def __post_init__(self) -> None:
        positive("clip_norm", self.clip_norm)
        if not _LEAST <= self.clip_norm <= _MOST:
            raise ValueError(f"Expected {_LEAST:.3g} <= clip_norm={self.clip_norm} <= {_MOST:.3g} for float32 sums.")

    @property
    def norm_bound(self) -> float:
        """The clip norm."""
        return float(self.clip_norm)

    def factors(self, norms: Tensor) -> Tensor:
        """min(1, clip_norm / norm)."""
        return _zero_invalid_factors((self.clip_norm * LENGTH_SHARE / norms).clamp_(max=1))

    def transformed_signed_lengths(self, lengths: Tensor) -> Tensor:
        """The lengths clamped to [-clip_norm, clip_norm]; 0 if not finite."""
        import torch

        bound = _zero_subnormal_numbers(
            torch.as_tensor(self.clip_norm * LENGTH_SHARE, dtype=lengths.dtype, device=lengths.device)
        )
        finite = lengths.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return torch.maximum(torch.minimum(finite, bound, out=finite), -bound, out=finite)

    def with_smaller_bound(self, factor: float) -> Clip:
        """Clipping to `factor` times the clip norm."""
        return self if factor == 1 else replace(self, clip_norm=self.clip_norm * factor)


@dataclass(frozen=True, kw_only=True)
class Normalize:
    """Scales a gradient g to norm ||g|| / (regularizer + ||g||) < 1: the factor 1 / (regularizer + ||g||).

    The bound is 1 for every regularizer, so the choice of the regularizer does not change the privacy cost.
    Source: Yang, Zhang, Chen, Liu 2022, Algorithm 1 (DP-NSGD).
    """

    works: ClassVar[tuple[str, ...]] = ("yang2022normalized",)

    regularizer: float

    def __post_init__(self) -> None:
        positive("regularizer", self.regularizer)

    @property
    def norm_bound(self) -> float:
        """1, the limit for long gradients."""
        return 1.0

    def factors(self, norms: Tensor) -> Tensor:
        """1 / (regularizer + norm)."""
        factors = LENGTH_SHARE / (norms + self.regularizer)
        return _zero_invalid_factors(factors.clamp_(max=_largest_number_of_dtype(norms)))

    def transformed_signed_lengths(self, lengths: Tensor) -> Tensor:
        """length / (regularizer + |length|)."""
        return _zero_subnormal_numbers(lengths / (lengths.abs() + self.regularizer) * LENGTH_SHARE).nan_to_num_(nan=0.0)

    def with_smaller_bound(self, factor: float) -> Normalize:
        """Itself; the factor must be 1, since a smaller bound would only be a smaller learning rate."""
        if factor == 1:
            return self
        raise ValueError("Expected clip_schedule=constant with normalized gradients: they have no clip norm to lower.")


@dataclass(frozen=True, kw_only=True)
class Unbounded:
    """Leaves gradients unchanged; only for records declared public, since no noise would be enough."""

    @property
    def norm_bound(self) -> float:
        """Infinite."""
        return math.inf

    def factors(self, norms: Tensor) -> Tensor:
        """1, or 0 if the norm is not finite."""
        return norms.isfinite().to(norms.dtype)

    def transformed_signed_lengths(self, lengths: Tensor) -> Tensor:
        """The lengths, or 0 if not finite."""
        return lengths.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    def with_smaller_bound(self, factor: float) -> Unbounded:
        """Itself; the factor must be 1, since there is no bound to lower."""
        if factor == 1:
            return self
        raise ValueError("Expected clip_schedule=constant with gradients that nothing bounds.")


def join_transforms_of_runs(transforms: Sequence[GradientTransform], like: Tensor) -> GradientTransform:
    """One transform for the norms [K, n] of K runs, row k by transform k: numbers that differ become columns [K, 1].

    Do not use its `bound`. Raises ValueError if the transforms differ in more than numbers.
    """
    import torch

    first = transforms[0]
    if all(one == first for one in transforms):
        return first
    joined = copy.copy(first)
    for field in fields(first):  # type: ignore[arg-type]
        values = [getattr(one, field.name, None) for one in transforms]
        if any(type(one) is not type(first) for one in transforms) or not all(
            isinstance(value, (int, float)) for value in values
        ):
            raise ValueError(f"Expected transforms={[*transforms]} to differ in numbers alone.")
        object.__setattr__(joined, field.name, torch.tensor(values, dtype=torch.float64)[:, None].to(like))
    return joined


def _zero_invalid_factors(factors: Tensor) -> Tensor:
    """The factors, with subnormal and nan entries, which come from norms that are not finite, set to 0."""
    return _zero_subnormal_numbers(factors).nan_to_num_(nan=0.0)


def _zero_subnormal_numbers(numbers: Tensor) -> Tensor:
    """Sets subnormal entries to 0; the rounding margin does not cover them."""
    import torch

    return torch.nn.functional.hardshrink(numbers, torch.finfo(numbers.dtype).tiny)


def _largest_number_of_dtype(norms: Tensor) -> float:
    import torch

    return float(torch.finfo(norms.dtype).max)
