"""Methods are a transform and an update: published ones by name, any other by its two parts."""

from __future__ import annotations

import inspect
import itertools
import math
from dataclasses import fields
from functools import partial
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import (
    build_from_stored_form,
    identity_form_of_config_part,
    stored_form_of_config_part,
)
from dpsweep.accounting.stored_names.tags import FAMILY_OF, class_of_tag
from dpsweep.trainers.declarations.lr_schedules import Constant, Cosine
from dpsweep.trainers.methods.method import Method
from dpsweep.trainers.methods.named_methods import DpAdam, NamedMethod, PlainSgd
from dpsweep.trainers.methods.transforms import Clip, Normalize, Unbounded
from dpsweep.trainers.methods.updates import Adam, AdamWithoutSecondMoments, Sgd

TRAINERS = {tag: class_of_tag(tag, family) for tag, family in FAMILY_OF.items() if family == "trainer"}
NAMED = {tag: kind for tag, kind in TRAINERS.items() if isinstance(kind, NamedMethod)}
PARTS = {family: [tag for tag, own in FAMILY_OF.items() if own == family] for family in ("transform", "update")}
NUMBERS = {"clip_norm": 1.5, "regularizer": 0.25, "lr": 0.5}
COMPOSED = {
    "_target_": "dpsweep.trainers.methods.method.Method",
    "lr": 0.001,
    "transform": {"_target_": "dpsweep.trainers.methods.transforms.Normalize", "regularizer": 0.01},
    "update": {"_target_": "dpsweep.trainers.methods.updates.AdamWithoutSecondMoments", "beta1": 0.8},
}
"""Normalized gradients, Adam's steps without second moments: a method without a name."""


def numbers_of(kind: Any) -> dict[str, float]:
    """A value for each number that has no default."""
    needed = [name for name, one in inspect.signature(kind).parameters.items() if one.default is one.empty]
    return {name: NUMBERS[name] for name in needed}


def test_all_but_three_methods_are_rows() -> None:
    """One keeps its weights in a ball, one takes no steps, one is a program of the user's: more than two parts."""
    assert TRAINERS.keys() - NAMED.keys() == {"method", "projected_dp_sgd", "output_perturbation", "script"}


@pytest.mark.parametrize("tag", NAMED)
def test_a_named_method_is_the_method_of_its_parts(tag: str) -> None:
    kind = NAMED[tag]
    numbers = numbers_of(kind)
    made = build_from_stored_form({"kind": tag, **numbers}, "trainer")
    parts = [
        part(**{one.name: numbers[one.name] for one in fields(part) if one.name in numbers})
        for part in (kind.transform, kind.update)
    ]
    assert made == Method(lr=0.5, transform=parts[0], update=parts[1], noiseless=made.noiseless, label=made.label)
    assert hash(made) == hash(kind(**numbers))
    assert made.noiseless != ("DP" in made.label)


@pytest.mark.parametrize(("transform", "update"), [*itertools.product(*PARTS.values())])
def test_every_transform_goes_with_every_update(transform: str, update: str) -> None:
    """A tag of a transform and one of an update are a method, without any Python."""
    family = dict(zip(PARTS, (transform, update), strict=True))
    config = {name: {"kind": tag, **numbers_of(class_of_tag(tag, name))} for name, tag in family.items()}
    made = build_from_stored_form(
        {"kind": "method", "lr": 0.5, "noiseless": transform == "unbounded", **config}, "trainer"
    )
    assert made.transform == build_from_stored_form(config["transform"], "transform")
    assert made.update == build_from_stored_form(config["update"], "update")


def test_a_composed_method_is_stored_by_tags_and_hashed_with_all_of_its_numbers() -> None:
    form = stored_form_of_config_part(COMPOSED, "trainer")
    assert form == {
        "kind": "method",
        "lr": 0.001,
        "transform": {"kind": "normalize", "regularizer": 0.01},
        "update": {"kind": "adam_wosm_update", "beta1": 0.8},
    }
    assert stored_form_of_config_part(form, "trainer") == form
    assert identity_form_of_config_part(form, "trainer")["update"] == {"kind": "adam_wosm_update", "beta1": 0.8}
    assert build_from_stored_form(form, "trainer") == Method(
        lr=0.001, transform=Normalize(regularizer=0.01), update=AdamWithoutSecondMoments(beta1=0.8)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transform": {"_target_": COMPOSED["update"]["_target_"]}}, "transform=adam_wosm_update to be one of clip"),  # type: ignore[index]
        ({"update": {"kind": "clip"}}, "update=clip to be one of adam_bc_update, adam_update"),
        ({"update": {"kind": "sgd_update", "momentum": 1}}, "update.momentum to be left out"),
        ({"transform": {"kind": "clip", "clip": 1}}, "transform.clip to be one of clip_norm"),
        ({"clip_norm": 1.0}, "trainer.clip_norm to be one of label, lr, noiseless, transform, update, weight_decay"),
    ],
)
def test_a_part_of_another_family_or_a_number_of_nobody_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build_from_stored_form(COMPOSED | change, "trainer")


def test_a_number_that_a_named_method_does_not_take_is_refused() -> None:
    with pytest.raises(BadInput, match=r"Expected trainer\.regularizer to be one of beta1, beta2, clip_norm, eps, lr"):
        build_from_stored_form({"kind": "dp_adam", "lr": 1.0, "clip_norm": 1.0, "regularizer": 1.0}, "trainer")
    with pytest.raises(TypeError, match="missing a required argument: 'clip_norm'"):
        DpAdam(lr=1.0)


MAKE = partial(Method, lr=0.5, transform=Clip(clip_norm=1.0), update=Sgd())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transform": {"clip_norm": 1.0}}, "Expected transform={'clip_norm': 1.0} to be a gradient transform"),
        ({"update": Clip(clip_norm=1.0)}, "Expected update=.* to be an update"),
        ({"noiseless": "no"}, "Expected noiseless='no' to be true or false"),
        ({"transform": Unbounded()}, "Expected noiseless=False to be True with gradients that nothing bounds"),
        ({"lr": 0.0}, "Expected lr=0.0 > 0"),
        ({"update": class_of_tag("half_steps_update", "update")(lr=2.0)}, "Expected update.lr=2.0 to be lr=0.5"),
    ],
)
def test_parts_that_make_no_method_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        MAKE(**change)


def test_only_gradients_without_a_bound_are_unbounded() -> None:
    assert math.isinf(PlainSgd(lr=1.0).transform.norm_bound)
    assert math.isfinite(MAKE().transform.norm_bound)


def test_what_an_update_asks_of_a_run_its_method_asks() -> None:
    steps = MAKE(update=class_of_tag("half_steps_update", "update")(lr=0.5))
    steps.check(4, Constant())
    for count, schedule in ((3, Constant()), (4, Cosine(final=0.1))):
        with pytest.raises(ValueError, match="ADADP"):
            steps.check(count, schedule)
    MAKE(update=Adam()).check(3, Cosine(final=0.1))
