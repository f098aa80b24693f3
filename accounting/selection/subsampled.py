"""Tuning on a secret random part of the records, then one training run with the winning hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpsweep.accounting.codec import Fraction, NonNegative
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.selection.final_run import Final
from dpsweep.accounting.selection.interface import FinalRunTerms


class TrainOn(StrEnum):
    """The records of the winner's final training run."""

    ALL = "all"
    REST = "rest"


@dataclass(frozen=True, kw_only=True)
class Subsampled(Final):
    """A search by a rule that hides losers, on a secret random part of the records, then the winner's run on others.

    Each record (each unit) joins the part with probability `rate`, by a coin of its own; the final run reads all
    records, or the rest (`train_on`). `carry` is the exponent by which the final run's learning rate grows with the
    ratio of the noise per example, as under disjoint parts.

    *Guarantee*: the composition of the sampled search and one final run. Held-out records join the part by the same
    coins. The part is secret; the final model and the results that `rule` releases, of the runs on the part, may be
    released. Without declared final runs, a point's own event is that of its final run.

    The rest costs no more than all. Let r_A be the likelihood ratio of the search with the record in the part, r_B that
    of the final run given the search's outcome. On the rest the ratio is X = (1 - q) r_B + q r_A, on all it is
    Y = (1 - q + q r_A) r_B. Given the outcome both have mean m = 1 - q + q r_A, and X - m = (1 - q) (r_B - 1) while
    Y - m = m (r_B - 1) with m >= 1 - q: Y is larger in convex order, and so is its every hockey-stick, both ways.
    *Source*: Koskela and Kulkarni 2023 (Practical Differentially Private Hyperparameter Tuning with Subsampling).
    """

    rate: Fraction
    train_on: TrainOn = TrainOn.REST
    carry: NonNegative = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "train_on", TrainOn(self.train_on))
        if not self.rule.draws_in_secret:
            raise BadInput(
                f"Expected the rule on the part, {self.rule.name}, to hide its losers and show its winner's score: "
                "what shows all costs less on a part of its own (tuning=disjoint)."
            )

    @property
    def works(self) -> tuple[str, ...]:
        """The works on sampling the part, and those of the search."""
        return ("koskela2023practical", "balle2018privacy", *getattr(self.rule, "works", ()))

    @property
    def name(self) -> str:
        """The rule's name in commands and reports."""
        return f"subsampled {self.rule.name}"

    @property
    def final_run_terms(self) -> FinalRunTerms:
        """The winning point on all records, or on those that the search does not read."""
        reads_all = self.train_on is TrainOn.ALL
        return FinalRunTerms(share=self.rate, is_secret=True, reads_all=reads_all, carry=self.carry)
