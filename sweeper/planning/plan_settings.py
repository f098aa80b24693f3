"""Settings of a plan other than its points: plain values as they were typed, which planning checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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

    `keys` are the keys that the command line names; `offered` are the rules that `tuning=auto` may choose.
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
    final: object
    solve: str
    show: str
    keys: frozenset[str]
    offered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
