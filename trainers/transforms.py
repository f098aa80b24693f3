"""How one example's gradient is bounded before it enters the sum; one unit's, where units have several examples.

A transform sees only the norms of the per-example gradients and answers with one factor each; the engine
forms sum_i factor_i * gradient_i. The noise is scaled to `bound`, so privacy rests on one law, which holds
for every transform and every norm, also 0, subnormal, huge, infinite and nan:

    factor >= 0 is finite, and factor * norm <= bound;  factor == 0 where the norm is not finite.

Factors are computed in float64 and lowered by a few units of float32 rounding, so that the law also holds for
the float32 product and for a norm that was itself rounded to float32. Lowering a factor is always sound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from trainers.validation import positive

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDING = 1 - 2**-21


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
        """The factors [n] for gradients of these norms [n], in the dtype of the norms; n may be 0."""
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
        return _lowered((self.bound * _ROUNDING / norms.double()).clamp(max=1), norms)


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
        return _lowered(_ROUNDING / (norms.double() + float(self.regularizer)), norms)


def _lowered(factors: Tensor, norms: Tensor) -> Tensor:
    """The factors in the dtype of the norms, and 0 where subnormal there or the norm is not finite."""
    import torch

    limits = torch.finfo(norms.dtype)
    sound = norms.isfinite() & (factors >= limits.tiny)
    return factors.where(sound, 0).clamp(max=limits.max).to(norms.dtype)
