"""The parts of a privacy claim: its numbers, and the neighbours that it protects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from dpsweep.accounting.codec import Amount, Stored
from dpsweep.accounting.notation import epsilon_text_rounded_up, text_with_all_digits
from dpsweep.accounting.validation import failure_probability


class Adjacency(StrEnum):
    """The condition under which two data sets are neighbours."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"


@dataclass(frozen=True, kw_only=True)
class Guarantee(Stored):
    """(epsilon, delta)-differential privacy of one unit under one adjacency.

    *Guarantee*: epsilon is an upper bound; it is infinity for a mechanism that is not private.
    Guarantees of different adjacencies or units are never compared: `fits` refuses them.
    """

    epsilon: Amount
    delta: Annotated[float, failure_probability]
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
    unit: str = "record"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    def is_within_budget(self, budget: Guarantee) -> bool:
        """Whether this claim lies within `budget`; both must have the same adjacency and unit."""
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

    def __str__(self) -> str:
        if self.promises_nothing:
            return f"no promise to any {self.unit}, as the data were declared public"
        claim = f"epsilon {epsilon_text_rounded_up(self.epsilon)} at delta {text_with_all_digits(self.delta)}"
        return f"{claim} per {self.unit}, {self.adjacency.value}"
