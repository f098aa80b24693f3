"""`auto` for steps, the batch size, the learning-rate schedule and the average of weights: a law of declared numbers.

mu is that of one release of all records at which the plan costs its epsilon, so its rule, its number of runs and its
delta are in it. A run takes T steps of q n of n records, q = min(1, max(2 mu / sqrt(T), 200 / n)). There the noise
multiplier is 2 or more, and the noise in the mean of a step is sqrt(T) / (n mu) whatever q, so a larger batch buys
nothing (Sander, Stock, Sablayrolles 2023). T is `STEPS`, or fewer where `plan.limit` multiplications do not suffice.
Rates fall along half a cosine, and the average is over the last steps (De et al. 2022). `benchmarks/recipes.py` has
measured it, for methods with a law for their rate (`averaged_rate_law`) and losses of classes. Where it was not
measured, the words stand for fixed numbers.

Records, weights, epsilon and delta are declared, so this costs no privacy, and no time or machine is in it: the same
words make the same plan everywhere. Identities have the numbers, as if they had been typed, so that no trial stands for
two runs that access the data otherwise; beside them the limit and the law's version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.stored_names.stored_classes import AUTO, KIND, RECIPE, tag_or_path_of_class
from dpsweep.accounting.stored_names.tags import class_of_tag
from dpsweep.sweeper.planning.plan_settings import Point
from dpsweep.sweeper.trial.spec import WEIGHTS, records_from_config

VERSION = 1
STEPS, LEAST_STEPS = 2000, 100
LEAST_BATCH = 200
LAST_STEPS = 5
"""The weights are averaged with the decay 1 - `LAST_STEPS` / T: over about that part of all steps."""

MOST_MU = 3.0
"""More is taken for this: nobody measured the law beyond epsilon 8, and public data have no mu."""

UNMEASURED: Mapping[str, Any] = {
    "steps": 100,
    "sampler.batch_size": 250,
    "lr_schedule": {KIND: "constant_lr"},
    "ema": None,
}
"""What the words stand for where no law was measured."""

_SCHEDULES = {"constant_lr": "constant", "cosine_lr": "cosine"}

LOSSES = ("cross_entropy", "binary_cross_entropy")


def automatic_keys(point: Point) -> tuple[str, ...]:
    """The keys whose value is the word, among those of `UNMEASURED`."""
    config = point.config
    values = {
        "steps": config["steps"],
        "sampler.batch_size": config["sampler"].get("batch_size"),
        "lr_schedule": config["lr_schedule"].get("word"),
        "ema": config.get("ema"),
    }
    return tuple(key for key, value in values.items() if value == AUTO)


def with_unmeasured_numbers(point: Point) -> Point:
    """The point with the fixed numbers in place of the words."""
    return _point_with_numbers(point, {key: _unmeasured(point)[0][key] for key in automatic_keys(point)})


def points_with_recipe(
    points: Sequence[Point], limit: float, plan_of: Callable[[Sequence[Point]], Plan]
) -> tuple[list[Point], tuple[str, ...]]:
    """The points with numbers in place of the words, and a note that says which.

    `plan_of` prices points, and solves for their noise where it is not given.
    """
    mu = _mu_of_one_run(plan_of([_one_release(point) for point in points])) if any(map(_is_measured, points)) else 0.0
    found, notes = [], []
    for point in points:
        if not (keys := automatic_keys(point)):
            found.append(point)
            continue
        numbers, more = _numbers_of_law(point, mu, limit, len(points)) if _is_measured(point) else _unmeasured(point)
        own = {key: numbers[key] for key in keys}
        recipe = {"law": VERSION, "limit": limit, "keys": list(keys)}
        found.append(_point_with_numbers(point, own).with_settings(**{RECIPE: recipe}))
        said = {**own, **({"lr_schedule": _SCHEDULES[numbers["lr_schedule"][KIND]]} if "lr_schedule" in own else {})}
        words = ", ".join(f"{key}={'null' if value is None else value}" for key, value in said.items())
        unit = records_from_config(point.config).dataset.unit
        notes.append(f"{words} for {_training_units(point)} training {unit}s ({point.method}{more})")
    return found, (f"auto stands for {'; '.join(dict.fromkeys(notes))}.",)


def _unmeasured(point: Point) -> tuple[dict[str, Any], str]:
    """The fixed numbers by key, and why they stand there."""
    batch = min(_training_units(point), UNMEASURED["sampler.batch_size"])
    return {**UNMEASURED, "sampler.batch_size": batch}, ": no law was measured for it"


def _is_measured(point: Point) -> bool:
    """Whether a law was measured for the method and the loss of a point whose noise is not given."""
    config = point.config
    known = KIND in config["trainer"] and class_of_tag(config["trainer"][KIND], "trainer")
    law = getattr(known, "averaged_rate_law", None)
    given = config["privacy"]["noise_multiplier"] is not None
    return law is not None and tag_or_path_of_class(config["loss"]) in LOSSES and not given


def _one_release(point: Point) -> Point:
    """The point with one step on all of its records, without curves and checkpoints."""
    return point.with_settings(
        steps=1,
        sampler={KIND: "poisson", "batch_size": _training_units(point)},
        lr_schedule=UNMEASURED["lr_schedule"],
        ema=None,
        score={key: value for key, value in point.config["score"].items() if key != "every"},
        checkpoint={**point.config["checkpoint"], "every": None},
    )


def _mu_of_one_run(plan: Plan) -> float:
    """The largest mu of a run of one release."""
    if plan.has_public_data:
        return MOST_MU
    return min(MOST_MU, 1 / min(float(trial.config["privacy"]["noise_multiplier"]) for trial in plan.trials))


def _numbers_of_law(point: Point, mu: float, limit: float, runs: int) -> tuple[dict[str, Any], str]:
    """The numbers by key, and what a limit of multiplications in so many runs has changed."""
    units, weights = _training_units(point), max(1, int(point.config.get(WEIGHTS, 1)))
    steps, more = point.config["steps"], ""

    def multiplications(many: int) -> int:
        return many * _batch(units, mu, many) * weights * runs

    if steps == AUTO:
        steps = next((many for many in range(STEPS, LEAST_STEPS, -1) if multiplications(many) <= limit), LEAST_STEPS)
        if steps < STEPS:
            more = f"; {STEPS} steps need plan.limit={1.05 * multiplications(STEPS):.2g}"
    return {
        "steps": steps,
        "sampler.batch_size": _batch(units, mu, steps),
        "lr_schedule": {KIND: "cosine_lr", "final": 0.01},
        "ema": max(0.5, 1 - LAST_STEPS / steps),
    }, more


def _batch(units: int, mu: float, steps: int) -> int:
    """The batch size, to two digits; all units where the share is 1."""
    share = min(1.0, max(2 * mu / math.sqrt(steps), LEAST_BATCH / units))
    return min(units, int(float(f"{share * units:.2g}"))) if share < 1 else units


def _training_units(point: Point) -> int:
    return records_from_config(point.config).nominal_training_units


def _point_with_numbers(point: Point, numbers: Mapping[str, Any]) -> Point:
    """The point with these values of dotted keys, in its axes too."""
    parts: dict[str, Any] = {}
    for key, value in numbers.items():
        part, _, name = key.partition(".")
        parts[part] = {**point.config[part], name: value} if name else value
    axes = {key: numbers[key] if key in numbers and key != "lr_schedule" else own for key, own in point.axes.items()}
    return replace(point.with_settings(**parts), axes=axes)
