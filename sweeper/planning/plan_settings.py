"""What is planned, as plain values: the settings of a plan as they were typed, a point of its grid, and limits on
amounts.

A value beyond the limits is refused as a typo before it is priced. They are wide: a hundred thousand times any paper's
values and more, and do not say which values are wise. Rules for changing them: `docs/ledger.md` lists the limits, and a
test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.notation import text_with_all_digits

NOISE, RATE = "privacy.noise_multiplier", "trainer.lr"

LIMITS: Mapping[str, tuple[float, float]] = {
    "trainer.lr": (1e-9, 1e6),
    "trainer.clip_norm": (1e-6, 1e6),
    "trainer.regularizer": (1e-9, 1e6),
    NOISE: (1e-4, 1e6),
    "score.noise_std": (1e-4, 1e9),
    "privacy.epsilon": (1e-6, 1e6),
    "privacy.delta": (1e-30, 1.0),
    "budget.epsilon": (1e-6, 1e12),
    "budget.delta": (1e-30, 1.0),
}
"""The smallest and the largest accepted value of each key."""


def require_settings_within_limits(points: Iterable[Point]) -> None:
    """Raises `BadInput` if a setting of a point lies beyond its limits.

    Other functions check values that are null, 0 or not numbers.
    """
    for point in points:
        for key in LIMITS:
            group, _, name = key.partition(".")
            for place, value in _values_with_name(point.config.get(group), name, group):
                if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                    _require_within_limits(key, float(value), place)


def _values_with_name(part: object, name: str, place: str) -> Iterator[tuple[str, object]]:
    """The values with this name in a part of a configuration, at any depth, with their full keys."""
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key == name:
                yield f"{place}.{key}", value
            yield from _values_with_name(value, name, f"{place}.{key}")


def require_valid_epsilon_or_delta(key: str, value: object) -> float:
    """An epsilon or a delta that the user gave: a number above 0, within its limits."""
    number = require_positive_number(key, value)
    _require_within_limits(key, number)
    return number


def require_positive_number(name: str, value: object) -> float:
    """The value as a finite number above 0; otherwise raises `BadInput` with its name."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(f"Expected {name}={value!r} to be a number.")
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"Expected {name}={value} > 0 and finite.")
    return float(value)


def require_below_upper_limit(key: str, value: float, name: str) -> None:
    """Raises `BadInput` if an amount called `name` is above the upper limit of this key."""
    most = LIMITS[key][1]
    if value > most:
        raise BadInput(
            f"Expected {name}={text_with_all_digits(value)} <= {text_with_all_digits(most)}: anything above is taken "
            "for a typo."
        )


def _require_within_limits(key: str, value: float, name: str = "") -> None:
    """Raises `BadInput` if a value is beyond the limits of a key; messages use `name`, if given, instead of the key."""
    least, most = LIMITS[key]
    if value > 1 == most:
        raise BadInput(f"{name or key} is a probability; yours, {text_with_all_digits(value)}, is above 1.")
    if not least <= value <= most:
        limits = f"{text_with_all_digits(least)} to {text_with_all_digits(most)}"
        raise BadInput(
            f"Expected {name or key}={text_with_all_digits(value)} in {limits}: anything else is taken for a typo."
        )


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the grid: its method, its swept values, its resolved configuration.

    `final` is the run that follows the search if this point wins. `default_axes` says that the grid has no axes for
    the method, so that it runs over default ones. `rate_factor` is the factor on the learning rate that follows from
    the noise, and stands in its place in `config`; None where the rate was given.
    """

    method: str
    axes: Mapping[str, Any]
    config: Mapping[str, Any]
    final: Point | None = None
    default_axes: bool = False
    rate_factor: float | None = None

    def with_settings(self, **parts: Any) -> Point:
        """The point and its final run with these parts of their configurations."""
        final = None if self.final is None else self.final.with_settings(**parts)
        return replace(self, config={**self.config, **parts}, final=final)


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """The budget, adjacency and privacy unit that a configuration declares for its data set's account.

    `epsilon` and `delta` belong to the budget; `unit_column` and `column_unit` are the data set's declarations of
    units above records.
    """

    epsilon: object
    delta: object
    adjacency: object
    unit: object
    public: bool
    unit_column: object
    column_unit: object


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """The configuration of a plan: groups that name classes as mappings, single values as they were typed.

    `sealed` are the sealed parts that a new account sets aside. `keys` are the keys that the command line names;
    `offered` are the rules that `tuning=auto` may choose. `is_sampler_open` says that prices choose the sampler.
    `limit` is the number of multiplications that `auto` allows.
    """

    account: object
    budget: BudgetSettings
    privacy: Mapping[str, Any]
    tuning: Mapping[str, Any]
    search: Mapping[str, Any]
    accountant: Mapping[str, Any]
    looks_every: object
    checkpoint_every: object
    subsample: object
    repeats: object
    spare_attempts: object
    sealed: object
    card: object
    about: object
    final: object
    solve: str
    show: str
    limit: object
    keys: frozenset[str]
    offered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    is_sampler_open: bool = False
