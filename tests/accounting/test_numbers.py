"""Every declaration refuses a wrong type, a wrong number and a wrong range, in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from dpsweep.accounting.codec import (
    fraction,
    positive,
    positive_int,
    require_finite_number,
    require_integer,
    require_real,
    share,
)
from dpsweep.reports.content.trial_config import require_stored_integer
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant, StepDecay
from dpsweep.trainers.declarations.scores import PrivateHoldout
from dpsweep.trainers.methods.named_methods import (
    DpAdam,
    DpAdamWosm,
    DpMomentum,
    DpNadam,
    DpNsgd,
    DpSgd,
    ProjectedDpSgd,
)
from dpsweep.trainers.methods.transforms import Clip, Normalize
from dpsweep.trainers.methods.updates import Adam, AdamWithoutSecondMoments, Momentum
from dpsweep.trainers.models.convolutional import resnet20
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.training.run import Run

SGD = partial(DpSgd, lr=0.1, clip_norm=1.0)
NSGD = partial(DpNsgd, lr=0.1, regularizer=0.01)
ADAM = partial(DpAdam, lr=0.1, clip_norm=1.0)
MOMENTUM = partial(DpMomentum, lr=0.1, clip_norm=1.0)
NADAM = partial(DpNadam, lr=0.1, regularizer=0.01)
WOSM = partial(DpAdamWosm, lr=0.1, clip_norm=1.0)
PROJECTED = partial(ProjectedDpSgd, lr=0.1, clip_norm=1.0, radius=1.0)
RUN = partial(
    Run,
    trainer=SGD(),
    sampler=Poisson(batch_size=10),
    schedule=Constant(),
    noise_multiplier=1.0,
    steps=5,
    train_records=100,
)
POSITIVE = [
    (SGD, "lr"),
    (SGD, "clip_norm"),
    (NSGD, "lr"),
    (NSGD, "regularizer"),
    (ADAM, "lr"),
    (ADAM, "clip_norm"),
    (ADAM, "eps"),
    (MOMENTUM, "lr"),
    (MOMENTUM, "clip_norm"),
    (NADAM, "lr"),
    (NADAM, "regularizer"),
    (NADAM, "eps"),
    (PROJECTED, "lr"),
    (PROJECTED, "clip_norm"),
    (PROJECTED, "radius"),
    (WOSM, "lr"),
    (WOSM, "clip_norm"),
    (WOSM, "eps"),
    (AdamWithoutSecondMoments, "eps"),
    (Clip, "clip_norm"),
    (Normalize, "regularizer"),
    (Adam, "eps"),
    (partial(PrivateHoldout, fraction=0.2), "noise_std"),
]
POSITIVE_INTEGER = [(Poisson, "batch_size"), (RUN, "steps"), (RUN, "train_records")]
BELOW_ONE = [
    (ADAM, "beta1"),
    (ADAM, "beta2"),
    (Adam, "beta1"),
    (Adam, "beta2"),
    (MOMENTUM, "momentum"),
    (NADAM, "beta1"),
    (NADAM, "beta2"),
    (WOSM, "beta1"),
    (AdamWithoutSecondMoments, "beta1"),
    (Momentum, "momentum"),
]


@pytest.mark.parametrize(("make", "field"), POSITIVE + BELOW_ONE + [(PrivateHoldout, "fraction")])
@pytest.mark.parametrize("value", ["abc", "0.1", True, [0.1], 1j])
def test_a_wrong_type_is_named(make, field, value) -> None:
    with pytest.raises(TypeError) as refusal:
        make(**{field: value})
    assert str(refusal.value) == f"Expected {field}={value!r} to be a number."


@pytest.mark.parametrize(("make", "field"), POSITIVE)
@pytest.mark.parametrize("value", [0, -1, -1e-300])
def test_what_must_be_positive_is(make, field, value) -> None:
    with pytest.raises(ValueError) as refusal:
        make(**{field: value})
    assert str(refusal.value) == f"Expected {field}={value} > 0."


@pytest.mark.parametrize(
    ("make", "field"), POSITIVE + BELOW_ONE + [(PrivateHoldout, "fraction"), (RUN, "noise_multiplier")]
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_what_is_not_finite_is_refused(make, field, value) -> None:
    with pytest.raises(ValueError, match=f"^Expected {field}=.* to be finite.$"):
        make(**{field: value})


@pytest.mark.parametrize(("make", "field"), POSITIVE)
def test_integers_and_numpy_numbers_are_numbers(make, field) -> None:
    for value in (2, np.float32(0.5)):
        made = make(**{field: value})
        parts = [part for part in (made, getattr(made, "transform", None), getattr(made, "update", None)) if part]
        assert {getattr(part, field) for part in parts if hasattr(part, field)} == {value}


@pytest.mark.parametrize(("make", "field"), BELOW_ONE)
@pytest.mark.parametrize("value", [-0.1, 1, 1.5])
def test_averages_forget(make, field, value) -> None:
    with pytest.raises(ValueError) as refusal:
        make(**{field: value})
    assert str(refusal.value) == f"Expected 0 <= {field}={value} < 1."


@pytest.mark.parametrize(("make", "field"), POSITIVE_INTEGER)
def test_counts_are_positive_integers(make, field) -> None:
    for value in ("5", 2.0, True, None):
        with pytest.raises(TypeError, match=f"^Expected {field}=.* to be an integer.$"):
            make(**{field: value})
    for value in (0, -3):
        with pytest.raises(ValueError, match=f"^Expected {field}={value} >= 1.$"):
            make(**{field: value})
    assert getattr(make(**{field: np.int64(7)}), field) == 7


@pytest.mark.parametrize("value", [0, 1, -0.5, 2])
def test_a_fraction_is_proper(value) -> None:
    with pytest.raises(ValueError, match=f"^Expected 0 < share={value} < 1.$"):
        fraction("share", value)


def test_a_run_refuses_negative_noise_but_takes_none() -> None:
    with pytest.raises(ValueError, match=r"^Expected noise_multiplier=-1 >= 0.$"):
        RUN(noise_multiplier=-1)
    assert RUN(noise_multiplier=0).noise_multiplier == 0


def test_a_schedule_refuses_lists_that_make_no_sense() -> None:
    with pytest.raises(TypeError, match=r"milestones='0.5' to be a list of numbers"):
        StepDecay(milestones="0.5", factors=[0.1])
    with pytest.raises(TypeError, match=r"factors\[0\]='a' to be a number"):
        StepDecay(milestones=[0.5], factors=["a"])
    with pytest.raises(ValueError, match=r"milestones\[0\]=50 < 1"):
        StepDecay(milestones=[50], factors=[0.1])
    with pytest.raises(ValueError, match="one for each"):
        StepDecay(milestones=[0.5, 0.75], factors=[0.1])
    with pytest.raises(ValueError, match="to increase"):
        StepDecay(milestones=[0.75, 0.5], factors=[0.1, 0.01])


def test_models_validate_their_sizes() -> None:
    with pytest.raises(ValueError, match=r"^Expected width=0 >= 1.$"):
        one_hidden((4,), 2, width=0)
    with pytest.raises(ValueError, match=r"^Expected groups=3 to divide 16.$"):
        resnet20((3, 32, 32), 10, groups=3)


HUGE = 10**400


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (share, (1, 1.0, 1e-300), (0, -1.0, 1.0000001, math.nan, math.inf, HUGE, -HUGE)),
        (positive, (1e-300, 5, 1e300), (0, math.inf, math.nan, HUGE, -HUGE)),
        (fraction, (0.5,), (0, 1, 1.0, -HUGE, math.nan)),
        (positive_int, (1, np.int64(3)), (0, -1)),
        (partial(require_stored_integer, least=2), (2, HUGE), (1, True, 2.0, "2", None)),
    ],
)
def test_a_range_of_numbers_has_its_ends_where_it_says(
    check: Callable[[str, object], object], good: tuple[object, ...], bad: tuple[object, ...]
) -> None:
    for value in good:
        check("x", value)
    for value in bad:
        with pytest.raises(ValueError, match="x="):
            check("x", value)


@pytest.mark.parametrize(
    "check",
    [
        require_real,
        require_finite_number,
        share,
        positive_int,
        require_integer,
        positive,
    ],
)
@pytest.mark.parametrize("value", [True, "1", None, [1], 1j])
def test_what_is_no_number_is_a_type_error(check: Callable[[str, object], object], value: object) -> None:
    with pytest.raises(TypeError, match="Expected x="):
        check("x", value)
