"""The record of an audit in a sweep's folder: attacks, their lower bounds, and how much their silence means.

Invariant: every bound of one record holds at once with probability `confidence`, over the attacker's coins and the
noise of the trainings: the rest is divided among all tests as their false alarms
(`false_alarm_of_attack_and_noise_tests`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from dpsweep.accounting.codec import Amount, Count, PositiveInt, Stored, check_fields
from dpsweep.accounting.durable_files import FORMAT, require_and_remove_format_number, write_json
from dpsweep.accounting.validation import (
    fraction,
    non_negative,
    probability,
    require_finite_number,
    turn_read_errors_into_refusal,
)

AUDIT_FILE = "audit.json"

NOISE_SHARE = 0.01
"""The share of an audit's false alarm that the tests of the noise have."""


DERIVED = ("epsilon", "refuted")
"""What a stored record also says, and what follows from the rest: it is not read."""

Probability = Annotated[float, probability]


class Data(StrEnum):
    """The records that canaries are put among: made up, or of a data set that was declared public."""

    GENERATED = "generated"
    OWN = "own"


class Attack(StrEnum):
    """The canaries, and the statistic that the attacker makes of what is released.

    Of gradients: their sum over the steps, their variance over the steps, or the difference of two trainings' sums. Of
    records: the sum of their inner products with the steps, or the loss that the final model has less on them.
    """

    GRADIENTS = "gradients, sum"
    STEPS = "gradients, variance"
    TRAININGS = "gradients, difference"
    RECORDS = "records, steps"
    LOSSES = "records, loss"


class NoiseTest(StrEnum):
    """What is tested of released noise: its variance by number and by tensor, and its independence.

    `STEPS` is that of the steps and runs, `PAIRS` that of any two numbers.
    """

    NUMBERS = "each number"
    TENSORS = "each tensor"
    STEPS = "steps"
    PAIRS = "pairs"


class Scope(StrEnum):
    """What is released to the attacker: one training, or what the rule releases of the whole search."""

    TRAINING = "training"
    SEARCH = "search"


@dataclass(frozen=True, kw_only=True)
class AuditFinding(Stored):
    """One attack on one scope: its guesses about `canaries` coins, and what they say.

    `right` of `made` guesses give the lower bound `epsilon` at the plan's delta; `claimed` is the scope's price.
    `claim_right` of `claim_made` guesses test the whole privacy curve of the price, with the p-value `p_value`, None
    without a curve. If the noise were half the declared, an ideal audit of this size would find the bound
    `halved_epsilon` and refute the curve with probability `halved_seen`; `unclipped_seen` is this probability if
    nothing bounded the canaries. All three are None for an attack without a model of its power.
    """

    attack: Attack
    scope: Scope
    canaries: Count
    made: Count
    right: Count
    epsilon: Annotated[float, non_negative]
    claimed: Amount
    claim_made: Count
    claim_right: Count
    p_value: Probability | None
    halved_epsilon: float | None = None
    halved_seen: Probability | None = None
    unclipped_seen: Probability | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        counts = (self.made, self.right, self.claim_made, self.claim_right)
        if max(counts) > self.canaries:
            raise ValueError(f"Expected counts={counts} to be integers from 0 to canaries={self.canaries}.")

    def refutes_charged_epsilon(self, false_alarm: float) -> bool:
        """Whether it contradicts the price, as one test with this false alarm or both of them say."""
        return self.epsilon > self.claimed or (self.p_value is not None and self.p_value < false_alarm)


@dataclass(frozen=True, kw_only=True)
class NoiseFinding(Stored):
    """One test of the released noise, by `tested` numbers, tensors, sums or pairs with at least `draws` draws each.

    `value` is the one that is least likely under the declared noise, at `place`: a standard deviation as a multiple of
    the declared one, or the correlation of a pair. `p_value` is corrected for all that were tested. `halved_seen` is
    the probability that half the noise at one place alone would have been found; None where variance is not tested.
    """

    test: NoiseTest
    tested: Count
    draws: Count
    place: str
    value: Annotated[float, require_finite_number]
    p_value: Probability
    halved_seen: Probability | None = None

    def refutes_declared_noise(self, false_alarm: float) -> bool:
        """Whether it contradicts the declared noise, as a test with this false alarm."""
        return self.p_value < false_alarm


@dataclass(frozen=True, kw_only=True)
class AuditRecord(Stored):
    """An audit of a plan: `charge` is the price of the whole search at `delta`, `records` what canaries were put among.

    `trainings` is the number of trainings of each point, each with coins of its own. `floating_point` is the number of
    noisy numbers of which none was off the lattice of the noise, or None if one was. `noise` are the tests of the noise
    itself, empty if there was none or no gradients were attacked. `notes` say what was not attacked.
    """

    plan: str
    confidence: Annotated[float, fraction]
    charge: Amount
    delta: Annotated[float, fraction]
    records: Data
    trainings: PositiveInt
    findings: tuple[AuditFinding, ...]
    floating_point: Count | None
    noise: tuple[NoiseFinding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def false_alarm_of_each_attack_test(self) -> float:
        """That of each of the two tests of each finding of an attack."""
        return false_alarm_of_attack_and_noise_tests(self.confidence, len(self.findings), noise=bool(self.noise))[0]

    @property
    def false_alarm_of_each_noise_test(self) -> float:
        """That of each test of the noise."""
        return false_alarm_of_attack_and_noise_tests(self.confidence, len(self.findings), noise=bool(self.noise))[1]

    @property
    def epsilon(self) -> float:
        """The largest lower bound: with probability `confidence` the search's true epsilon is at least this."""
        return max((finding.epsilon for finding in self.findings), default=0.0)

    @property
    def attack_findings_refuting_charge(self) -> tuple[AuditFinding, ...]:
        """The findings that contradict the price."""
        return tuple(
            finding
            for finding in self.findings
            if finding.refutes_charged_epsilon(self.false_alarm_of_each_attack_test)
        )

    @property
    def noise_findings_refuting_declaration(self) -> tuple[NoiseFinding, ...]:
        """The tests that contradict the declared noise."""
        return tuple(
            finding for finding in self.noise if finding.refutes_declared_noise(self.false_alarm_of_each_noise_test)
        )

    @property
    def is_charge_or_noise_refuted(self) -> bool:
        """Whether an attack found more than was charged, or noise that is not the declared one."""
        return (
            bool(self.attack_findings_refuting_charge or self.noise_findings_refuting_declaration)
            or self.floating_point is None
        )

    def write(self, path: Path) -> None:
        """Stores the record, atomically."""
        derived = (self.epsilon, self.is_charge_or_noise_refuted)
        write_json(path, {"format": FORMAT} | self.to_json() | dict(zip(DERIVED, derived, strict=True)))


def false_alarm_of_attack_and_noise_tests(confidence: float, findings: int, *, noise: bool) -> tuple[float, float]:
    """The false alarms of each of the two tests of so many findings, and of each test of the noise if there is any.

    They add up to 1 - `confidence`. The noise takes 1 % of it: it is seen so often that its tests need no more.
    """
    total = 1 - confidence
    return total * (1 - NOISE_SHARE * noise) / (2 * max(1, findings)), total * NOISE_SHARE / len(NoiseTest)


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
