"""Numbers that nobody means: beyond these limits a setting or an amount is refused as a typo, before it is priced.

The limits are wide: a hundred thousand times what any paper uses and more. They say nothing about what is wise.
Rules for changing this file: `docs/ledger.md` lists the limits, and a test compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.notation import typed
from dpsweep.sweeper.planning.point import Point

NOISE = "privacy.noise_multiplier"

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
"""The least and the largest value that is taken at its word."""


def require_meant(points: Iterable[Point]) -> None:
    """Raises `BadInput` where a setting of a point lies beyond its limits.

    What is null, 0 or no number is for others to judge.
    """
    for point in points:
        for key in LIMITS:
            group, _, name = key.partition(".")
            for place, value in _named(point.config.get(group), name, group):
                if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                    _require_within(key, float(value), place)


def _named(part: object, name: str, place: str) -> Iterator[tuple[str, object]]:
    """The values of this name in a part of a configuration, at any depth, with their whole keys."""
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key == name:
                yield f"{place}.{key}", value
            yield from _named(value, name, f"{place}.{key}")


def amount(key: str, value: object) -> float:
    """An epsilon or a delta that somebody typed: a number above 0, within its limits."""
    number = positive(key, value)
    _require_within(key, number)
    return number


def positive(name: str, value: object) -> float:
    """A number above 0 and finite, or one sentence that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(f"Expected {name}={value!r} to be a number.")
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"Expected {name}={value} > 0 and finite.")
    return float(value)


def require_no_typo(key: str, value: float, name: str) -> None:
    """Raises `BadInput` where an amount called `name` is above the limit of this key."""
    most = LIMITS[key][1]
    if value > most:
        raise BadInput(f"Expected {name}={typed(value)} <= {typed(most)}: anything above is taken for a typo.")


def _require_within(key: str, value: float, name: str = "") -> None:
    """Raises `BadInput` beyond the limits of a key, which messages call by `name` where it stands elsewhere."""
    least, most = LIMITS[key]
    if not least <= value <= most:
        limits = f"{typed(least)} to {typed(most)}"
        raise BadInput(f"Expected {name or key}={typed(value)} in {limits}: anything else is taken for a typo.")
