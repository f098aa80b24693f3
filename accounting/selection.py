"""Selection rules: which points are run, what that costs, and what may be shown, answered by one object.

All honesty of a sweep comes from keeping the three answers together. Planner, runner and reporter ask the rule; none
of them knows one by name. What holds for every rule:

* `event` prices the whole search, including whatever `draw` may choose; it never depends on what was drawn.
* `discloses` lists all that may leave the curator's hands. What is not listed is not covered by the price.
* `draw` takes its randomness from the generator it is given, and is stored before the first run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from random import Random
from typing import Any, Protocol

from accounting.errors import BadInput
from accounting.events import PlanEvent


class Disclosure(StrEnum):
    """A kind of fact about a finished sweep."""

    WINNER = "winner"
    WINNER_SCORE = "winner_score"
    ALL_SCORES = "all_scores"
    NUMBER_OF_TRIES = "number_of_tries"


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The points to run, as indices into the plan's points, in the order in which they are tried."""

    tries: tuple[int, ...]


class SelectionRule(Protocol):
    """How a search spends its budget."""

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        ...

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """All that the price covers the release of."""
        ...

    def draw(self, n_points: int, rng: Random) -> Draw:
        """Chooses the tries among `n_points` points."""
        ...

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The privacy event of the whole search over points with these events."""
        ...


def rule_from_config(config: Mapping[str, Any]) -> SelectionRule:
    """The rule that a plan stores as `{"_target_": "module.Class", **parameters}`.

    Raises `BadInput` where it names no rule or parameters that the rule does not have.
    """
    module, _, name = str(config.get("_target_", "")).rpartition(".")
    parameters = {key: value for key, value in config.items() if key != "_target_"}
    try:
        rule: SelectionRule = getattr(import_module(module), name)(**parameters)
    except (ImportError, AttributeError, ValueError, TypeError) as cause:
        raise BadInput(f"Expected tuning={dict(config)} to name a selection rule: {cause}.") from cause
    return rule
