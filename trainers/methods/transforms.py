"""How one example's gradient is bounded before it enters the sum; one unit's, where units have several examples.

A transform sees only the norms of the per-example gradients and answers with one factor each; the engine
forms sum_i factor_i * gradient_i. The noise is scaled to `bound`, so privacy rests on one law, which holds
for every transform and every norm, also 0, subnormal, huge, infinite and nan:

    factor >= 0 is finite, and factor * norm <= bound;  factor == 0 where the norm is not finite.

Where all gradients of an example lie along one line, as those of a model with one linear output do, a signed length
says all of one, and `along` gives the signed length that is left of it: |length| <= bound, and 0 where it was not
finite.

Factors are lowered by eight units u = 2**-24 of float32 rounding. What follows takes at most as many: three or four u
in a factor (its constant or its sum, the quotient, their product), three in a norm (two factors and their product), one
in the product of factor and gradient. They are lowered by eight units more, which are for the float64 sum: n terms of
norm `bound` add up with an error of n**2 * 2**-53 of it at most, with a record and without it, so that sums of up to
46,340 units move by no more than `bound`. Lowering is always sound.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Protocol

from dpsweep.accounting.numbers import positive

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDING = 1 - 2**-20


class GradientTransform(Protocol):
    """Bounds per-example gradients by scaling them.

    *Guarantee*: `factors` obeys the law above with this `bound`, so the sum over examples has sensitivity
    `bound` when a record is added or removed, and at most twice that when one is replaced.
    """

    @property
    def bound(self) -> float:
        """The largest norm that a transformed gradient can have."""
        ...

    def factors(self, norms: Tensor) -> Tensor:
        """The factors [..., n] for gradients of these norms [..., n], in the dtype of the norms; n may be 0."""
        ...

    def along(self, lengths: Tensor) -> Tensor:
        """The signed lengths [..., n] that transforms leave of these [..., n]: lengths * factors(|lengths|)."""
        ...

    def shrunk(self, factor: float) -> GradientTransform:
        """The same with `factor` in (0, 1] times the bound; ValueError where that makes no sense."""
        ...


@dataclass(frozen=True, kw_only=True)
class Clip:
    """Shortens a gradient g to norm `clip_norm` where it is longer: min(1, clip_norm / ||g||).

    Source: Abadi et al. 2016, Algorithm 1.
    """

    clip_norm: float

    def __post_init__(self) -> None:
        positive("clip_norm", self.clip_norm)

    @property
    def bound(self) -> float:
        """The clip norm."""
        return float(self.clip_norm)

    def factors(self, norms: Tensor) -> Tensor:
        """min(1, clip_norm / norm)."""
        return _sound((self.clip_norm * _ROUNDING / norms).clamp_(max=1))

    def along(self, lengths: Tensor) -> Tensor:
        """No longer than clip_norm."""
        import torch

        bound = _normal(torch.as_tensor(self.clip_norm * _ROUNDING, dtype=lengths.dtype, device=lengths.device))
        finite = lengths.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return torch.maximum(torch.minimum(finite, bound, out=finite), -bound, out=finite)

    def shrunk(self, factor: float) -> Clip:
        """Clipping to a shorter norm."""
        return self if factor == 1 else replace(self, clip_norm=self.clip_norm * factor)


@dataclass(frozen=True, kw_only=True)
class Normalize:
    """Brings a gradient g to norm ||g|| / (regularizer + ||g||) < 1: the factor 1 / (regularizer + ||g||).

    The bound is 1 whatever the regularizer, which therefore costs no privacy.
    Source: Yang, Zhang, Chen, Liu 2022, Algorithm 1 (DP-NSGD).
    """

    regularizer: float

    def __post_init__(self) -> None:
        positive("regularizer", self.regularizer)

    @property
    def bound(self) -> float:
        """1, approached by long gradients."""
        return 1.0

    def factors(self, norms: Tensor) -> Tensor:
        """1 / (regularizer + norm)."""
        factors = _ROUNDING / (norms + self.regularizer)
        return _sound(factors.clamp_(max=_largest(norms)))

    def along(self, lengths: Tensor) -> Tensor:
        """length / (regularizer + |length|)."""
        return _normal(lengths / (lengths.abs() + self.regularizer) * _ROUNDING).nan_to_num_(nan=0.0)

    def shrunk(self, factor: float) -> Normalize:
        """Itself at a factor of 1, the only one: a shorter bound would be a smaller learning rate and nothing else."""
        if factor == 1:
            return self
        raise ValueError("Expected clip_schedule=constant with normalized gradients: they have no clip norm to lower.")


@dataclass(frozen=True, kw_only=True)
class Unbounded:
    """Leaves gradients as they are, for records that nobody has to protect: no noise would be enough."""

    @property
    def bound(self) -> float:
        """Infinite."""
        return math.inf

    def factors(self, norms: Tensor) -> Tensor:
        """1, and 0 where the norm is not finite."""
        return norms.isfinite().to(norms.dtype)

    def along(self, lengths: Tensor) -> Tensor:
        """The same, where they are finite."""
        return lengths.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    def shrunk(self, factor: float) -> Unbounded:
        """Itself at a factor of 1, the only one: there is no bound."""
        if factor == 1:
            return self
        raise ValueError("Expected clip_schedule=constant with gradients that nothing bounds.")


def side_by_side(transforms: Sequence[GradientTransform], like: Tensor) -> GradientTransform:
    """One transform for the norms [K, n] of K runs, each row by its own: numbers that differ become columns [K, 1].

    Its `bound` is not to be asked for. Raises ValueError where the transforms differ in more than numbers.
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


def _sound(factors: Tensor) -> Tensor:
    """The finite factors, and 0 where they are subnormal or no numbers, as those of norms that are not finite are."""
    return _normal(factors).nan_to_num_(nan=0.0)


def _normal(numbers: Tensor) -> Tensor:
    """The same, with 0 for subnormal ones, whose rounding no margin covers."""
    import torch

    return torch.nn.functional.hardshrink(numbers, torch.finfo(numbers.dtype).tiny)


def _largest(norms: Tensor) -> float:
    import torch

    return float(torch.finfo(norms.dtype).max)
