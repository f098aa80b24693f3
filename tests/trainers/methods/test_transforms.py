"""Laws that every gradient transform obeys, for every norm that float32 or float64 can hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsweep.trainers.methods.transforms import (
    LENGTH_SHARE,
    Clip,
    GradientTransform,
    Normalize,
    Unbounded,
    require_bounded_lengths,
)

PARAMETERS = (1e-300, 1e-30, 1e-4, 0.1, 1.0, 12.8, 1e30)
TRANSFORMS = (
    [Clip(clip_norm=c) for c in PARAMETERS[2:]] + [Normalize(regularizer=r) for r in PARAMETERS] + [Unbounded()]
)
NORMS = [0.0, 1e-45, 1e-38, 1e-20, 0.1, math.nextafter(0.1, 1), 1.0, 1 + 2**-23, 12.8, 1e20, 3.4e38]


def check(transform: GradientTransform, norms: torch.Tensor) -> None:
    factors = transform.factors(norms)
    assert factors.shape == norms.shape
    assert factors.dtype == norms.dtype
    assert bool(factors.isfinite().all())
    assert bool((factors >= 0).all())
    finite = norms.isfinite()
    assert bool((factors[~finite] == 0).all())
    exact = factors[finite].double() * norms[finite].double()
    most = LENGTH_SHARE * (1 + 2.0**-22) * transform.norm_bound
    """Four units of float32 rounding are a factor's own."""
    assert bool((exact <= most).all())
    for sign in (1, -1):
        along = transform.transformed_signed_lengths(sign * norms)
        assert (along.shape, along.dtype) == (norms.shape, norms.dtype)
        assert bool((along[~finite] == 0).all())
        assert bool((along.double().abs() <= most).all())
        found, wanted = sign * along[finite].double(), exact
        ordinary = (wanted > 1e-30) & (norms[finite] > 1e-30)
        assert torch.allclose(found[ordinary], wanted[ordinary], rtol=1e-6, atol=0)
        assert bool((found >= 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_the_bound_holds_at_the_edges(transform, dtype) -> None:
    check(transform, torch.tensor([*NORMS, math.inf, math.nan], dtype=dtype))
    check(transform, torch.zeros(0, dtype=dtype))


@dataclass(frozen=True, kw_only=True)
class Careless:
    """A clip of a user's that leaves no room for rounding, or lets non-finite gradients through."""

    norm_bound: float = 1.0
    share: float = 1.0
    of_non_finite: float = 0.0

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        factors = (self.share * self.norm_bound / norms).clamp(max=1)
        return factors.where(norms.isfinite(), torch.tensor(self.of_non_finite))


@pytest.mark.parametrize("careless", [Careless(), Careless(share=LENGTH_SHARE, of_non_finite=0.5)], ids=repr)
def test_a_transform_that_breaks_the_law_is_refused_before_the_charge(careless: Any) -> None:
    """Float32 blocks would add to a whole bound, and the price would be that of a shorter gradient."""
    with pytest.raises(ValueError, match=r"no longer than 0\.99902\d times its norm_bound"):
        require_bounded_lengths(careless)
    require_bounded_lengths(Careless(share=LENGTH_SHARE))  # type: ignore[arg-type]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_no_transform_of_ours_is_refused(transform: GradientTransform) -> None:
    require_bounded_lengths(transform)


@settings(deadline=None, max_examples=300)
@given(
    parameter=st.floats(1e-18, 1e30),
    norms=st.lists(st.floats(min_value=0, width=32) | st.just(math.nan), max_size=20),
)
@example(parameter=0.1, norms=[0.10000000149011612])
@example(parameter=1e-5, norms=[3e38])
def test_the_bound_holds_everywhere(parameter, norms) -> None:
    for transform in (Clip(clip_norm=parameter), Normalize(regularizer=parameter)):
        check(transform, torch.tensor(norms, dtype=torch.float32))


@settings(deadline=None, max_examples=100)
@given(clip_norm=st.floats(1e-3, 1e3), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 10**6))
def test_the_scaled_float32_vector_stays_within_the_bound(clip_norm, scale, seed) -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(seed)) * scale
    norm = torch.linalg.vector_norm(vector, dtype=torch.float64).to(torch.float32)[None]
    for transform in (Clip(clip_norm=clip_norm), Normalize(regularizer=clip_norm)):
        scaled = transform.factors(norm) * vector
        assert float(torch.linalg.vector_norm(scaled, dtype=torch.float64)) <= transform.norm_bound


def test_clip_leaves_short_gradients_alone_and_shortens_long_ones() -> None:
    factors = Clip(clip_norm=2).factors(torch.tensor([0.0, 1.0, 1.99, 4.0, 20.0]))
    assert factors[:3].tolist() == [1.0, 1.0, 1.0]
    assert factors[3:].tolist() == pytest.approx([0.5 * LENGTH_SHARE, 0.1 * LENGTH_SHARE], rel=1e-6)


@pytest.mark.parametrize("clip_norm", [2.0**-65, 2.0**121])
def test_clip_norms_at_which_float32_sums_would_overflow_or_underflow_are_refused(clip_norm: float) -> None:
    with pytest.raises(ValueError, match=r"^Expected 5\.42e-20 <= clip_norm=.* <= 1\.33e\+36 for float32 sums\.$"):
        Clip(clip_norm=clip_norm)


def test_normalize_has_sensitivity_one_whatever_the_regularizer() -> None:
    assert {Normalize(regularizer=r).norm_bound for r in PARAMETERS} == {1.0}
    factors = Normalize(regularizer=0.5).factors(torch.tensor([0.0, 0.5, 9.5]))
    assert factors.tolist() == pytest.approx([2.0 * LENGTH_SHARE, LENGTH_SHARE, 0.1 * LENGTH_SHARE], rel=1e-6)
