"""The record of an audit in a sweep's folder: what was compared with what was declared, and an attack's lower bound.

Invariant: over the noise, batches and coins of its trainings, a right program is contradicted with a probability of at
most `FALSE_ALARM`, which is divided among all tests that have one; the other comparisons are exact, up to rounding.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dpsweep.accounting.codec import (
    Amount,
    Count,
    Stored,
    fraction,
    non_negative,
    probability,
    require_finite_number,
)
from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import turn_read_errors_into_refusal
from dpsweep.accounting.files import FORMAT, require_and_remove_format_number

FALSE_ALARM = 1e-6
"""The probability that an audit contradicts a right program."""

SMALL_DELTA = 1e-12
"""Where the attack may contradict the price: what has a probability of delta refutes nothing at a false alarm below."""

DERIVED = ("contradicted",)
"""What a stored record also says, and what follows from the rest: it is not read."""

Probability = Annotated[float, probability]


@dataclass(frozen=True, kw_only=True)
class Compared(Stored):
    """A comparison of `compared` numbers of what ran with what was declared; `value` is the farthest, at `place`.

    `expected` says in words what it should be. `p_value`, corrected for all that were compared, tells how likely so
    far a value is; None where chance has no part: then `holds` says whether it is as expected.
    """

    name: str
    compared: Count
    value: Annotated[float, require_finite_number]
    expected: str
    place: str = ""
    p_value: Probability | None = None
    holds: bool = True

    def contradicts(self, false_alarm: float) -> bool:
        """Whether it contradicts what was declared, as a test with this false alarm where chance has a part."""
        return not self.holds if self.p_value is None else self.p_value < false_alarm


@dataclass(frozen=True, kw_only=True)
class AuditRecord(Stored):
    """An audit of a plan whose search is charged `charge` at `delta`.

    An attack on one training, whose price alone is `price`, guessed `right` of `made` coins of `canaries` canaries:
    with `confidence` its true epsilon is at least `epsilon`. At `SMALL_DELTA` it is at least `sure`, but for the
    attack's part of `FALSE_ALARM`, and priced at `sure_price`. Without canaries there was no attack. `notes` say what
    was not compared.
    """

    plan: str
    charge: Amount
    delta: Annotated[float, fraction]
    comparisons: tuple[Compared, ...]
    confidence: Annotated[float, fraction]
    price: Amount
    canaries: Count = 0
    made: Count = 0
    right: Count = 0
    epsilon: Annotated[float, non_negative] = 0.0
    sure: Annotated[float, non_negative] = 0.0
    sure_price: Amount = math.inf
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.right <= self.made <= self.canaries:
            raise ValueError(f"Expected right={self.right} <= made={self.made} <= canaries={self.canaries}.")

    @property
    def contradictions(self) -> tuple[str, ...]:
        """What contradicts the declaration or the price, a sentence each; empty if nothing does."""
        level = false_alarm_of_each(self.comparisons)
        wrong = [one for one in self.comparisons if one.contradicts(level)]
        sentences = [
            f"{one.name}: {one.value:.4g}{f' at {one.place}' if one.place else ''}, expected {one.expected}"
            for one in wrong
        ]
        if self.sure > self.sure_price:
            found = f"at delta {SMALL_DELTA:.0e} epsilon is above {self.sure:.4g}, expected {self.sure_price:.4g}"
            sentences.append(f"an attack on one training: {found}")
        return tuple(sentences)

    def write(self, path: Path) -> None:
        """Stores the record, atomically."""
        write_json(path, {"format": FORMAT} | self.to_json() | {DERIVED[0]: bool(self.contradictions)})


def false_alarm_of_each(comparisons: tuple[Compared, ...]) -> float:
    """The false alarm of each test, and of the attack."""
    return FALSE_ALARM / (1 + sum(one.p_value is not None for one in comparisons))


def read_audit_of_plan_or_none(path: Path, plan: str) -> AuditRecord | None:
    """The audit of this plan in a file; None if there is no file, or if it is of another plan.

    Raises `BadInput` if the file cannot be read.
    """
    if not path.is_file():
        return None
    with turn_read_errors_into_refusal(f"the audit in {path}"):
        form = require_and_remove_format_number("the audit", json.loads(path.read_text()))
        record = AuditRecord.from_json({name: value for name, value in form.items() if name not in DERIVED})
    return record if record.plan == plan else None
