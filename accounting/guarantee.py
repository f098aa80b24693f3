"""The parts of a privacy claim: its numbers, and the neighbours that it protects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from dpsweep.accounting.codec import Amount, Stored, below_one


class Adjacency(StrEnum):
    """The condition under which two data sets are neighbours."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"


@dataclass(frozen=True, kw_only=True)
class Guarantee(Stored):
    """(epsilon, delta)-differential privacy of one unit: upper bounds, infinity for what is not private."""

    epsilon: Amount
    delta: Annotated[float, below_one]
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
    unit: str = "record"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    def is_within_budget(self, budget: Guarantee) -> bool:
        """Whether this claim lies within `budget`; raises ValueError for another adjacency or unit."""
        if (self.adjacency, self.unit) != (budget.adjacency, budget.unit):
            raise ValueError(
                f"Expected adjacency={self.adjacency}, unit={self.unit} to equal the budget's "
                f"{budget.adjacency}, {budget.unit}: guarantees of different neighbours are not comparable."
            )
        return self.epsilon <= budget.epsilon and self.delta <= budget.delta

    @property
    def promises_nothing(self) -> bool:
        """Whether it promises nothing, as for data that were declared public."""
        return math.isinf(self.epsilon)
