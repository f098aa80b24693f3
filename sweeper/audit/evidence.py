"""Evidence of an attack, and the findings from it.

Evidence is a score for each canary, and whether it was there. A finding has bounds and tests at one joint confidence,
beside what an ideal audit would have found.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpsweep.accounting.audit_record import (
    Attack,
    AuditFinding,
    NoiseFinding,
    Scope,
    false_alarm_of_attack_and_noise_tests,
)
from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.canary_attack import CanarySteps
from dpsweep.accounting.lower_bounds.ideal_audit import NOISE_HALVED, IdealAudit, Mistake
from dpsweep.accounting.lower_bounds.noise_law import ReleasedNoise
from dpsweep.accounting.lower_bounds.one_run import (
    Claim,
    GuessCounts,
    epsilon_lower_bound,
    guesses_from_scores_and_coins,
    p_value,
)
from dpsweep.accounting.pricing.panel import Panel

Scores = NDArray[np.float64]
Coins = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackEvidence:
    """The scores and coins [n] of all trainings of one attack on one scope.

    Trainings with coins of their own are one mechanism on disjoint canaries, so their canaries count as one set.
    """

    attack: Attack
    scope: Scope
    scores: Scores
    coins: Coins


@dataclass(frozen=True, kw_only=True, eq=False)
class Collected:
    """Scores as they come, training by training."""

    parts: dict[tuple[Attack, Scope], list[tuple[Scores, Coins]]] = field(default_factory=lambda: defaultdict(list))

    def add_training_scores(self, scope: Scope, scores: Mapping[Attack, Scores], coins: Coins) -> None:
        """Adds the scores of one training, or of one search, for some attacks."""
        for attack, values in scores.items():
            self.parts[attack, scope].append((values, coins))

    def evidence_per_attack_and_scope(self) -> tuple[AttackEvidence, ...]:
        """One piece of evidence for each attack on each scope."""
        return tuple(
            AttackEvidence(
                attack=attack,
                scope=scope,
                scores=np.concatenate([scores for scores, _ in parts]),
                coins=np.concatenate([coins for _, coins in parts]),
            )
            for (attack, scope), parts in self.parts.items()
        )


def secret_coins(count: int, rng: np.random.Generator) -> Coins:
    """A fair coin for each canary."""
    return rng.random(count) < 0.5


def scale_to_unit_mean_square(scores: Scores) -> Scores:
    """The scores with mean square 1, so that those of different models may be added; zeros stay zeros."""
    finite = np.nan_to_num(scores, posinf=0.0, neginf=0.0)
    size = float(np.sqrt(np.mean(finite**2))) if len(finite) else 0.0
    return finite / size if size else finite


DELTAS = tuple(float(delta) for delta in np.geomspace(1e-6, 0.6, 12))
"""Where the privacy curve of a price is tested, beside the plan's delta."""

UNCLIPPED = Mistake(share=1000.0)


@dataclass(frozen=True, kw_only=True)
class PricedScope:
    """The event and the steps of what is released: `claimed` is its epsilon at the plan's delta.

    `curve` has its epsilons at other deltas too; None if they are infinite.
    """

    steps: tuple[CanarySteps, ...]
    claimed: float
    curve: Claim | None

    @classmethod
    def from_event(
        cls, event: DpEvent, steps: Sequence[CanarySteps], panel: Panel, delta: float, adjacency: Adjacency
    ) -> PricedScope:
        """The price of this event of the training records."""
        points: dict[float, float] = {}
        for at in (delta, *DELTAS):
            with suppress(DpsweepError, ValueError):
                points[at] = panel.epsilon(PlanEvent(training=event), at, adjacency)
        finite = {at: epsilon for at, epsilon in points.items() if math.isfinite(epsilon)}
        curve = Claim(epsilons=tuple(finite.values()), deltas=tuple(finite)) if finite else None
        return cls(steps=tuple(steps), claimed=points.get(delta, math.inf), curve=curve)


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """Judges all evidence of one audit, each test of an attack and of the noise at its own false alarm."""

    scopes: Mapping[Scope, PricedScope]
    delta: float
    false_alarm: float
    noise_false_alarm: float
    _splits: dict[tuple[Scope, int], tuple[GuessCounts, GuessCounts]] = field(default_factory=dict)

    @classmethod
    def for_number_of_findings(
        cls, scopes: Mapping[Scope, PricedScope], delta: float, confidence: float, findings: int, *, noise: bool
    ) -> Judge:
        """The judge of so many findings of attacks, and of the noise if there is any."""
        for_guesses, for_noise = false_alarm_of_attack_and_noise_tests(confidence, findings, noise=noise)
        return cls(scopes=scopes, delta=delta, false_alarm=for_guesses, noise_false_alarm=for_noise)

    def noise_findings(self, seen: Sequence[ReleasedNoise]) -> tuple[NoiseFinding, ...]:
        """What the noise of all layouts shows: for each test the least likely layout, corrected for all of them."""
        outcomes = zip(*(one.findings(self.noise_false_alarm / len(seen)) for one in seen), strict=True)
        return tuple(_least_likely_noise_finding(findings) for findings in outcomes)

    def finding_from_evidence(self, evidence: AttackEvidence) -> AuditFinding:
        """What the evidence proves; the numbers of guesses do not depend on it."""
        scope = self.scopes[evidence.scope]
        for_bound, for_claim = self._guess_counts_for_bound_and_claim_test(evidence.scope, len(evidence.coins))
        bound = guesses_from_scores_and_coins(evidence.scores, evidence.coins, for_bound)
        tested = guesses_from_scores_and_coins(evidence.scores, evidence.coins, for_claim)
        return AuditFinding(
            attack=evidence.attack,
            scope=evidence.scope,
            canaries=bound.canaries,
            made=bound.made,
            right=bound.right,
            epsilon=epsilon_lower_bound(bound, self.delta, self.false_alarm),
            claimed=scope.claimed,
            claim_made=tested.made,
            claim_right=tested.right,
            p_value=None if scope.curve is None else p_value(tested, scope.curve),
            **(self._power_of_ideal_audits(evidence) if evidence.attack is Attack.GRADIENTS else {}),
        )

    def _power_of_ideal_audits(self, evidence: AttackEvidence) -> dict[str, float | None]:
        """What ideal audits of this size find of mistakes."""
        scope, canaries = self.scopes[evidence.scope], len(evidence.coins)
        ideal = IdealAudit(steps=scope.steps, canaries=canaries)
        for_bound, for_claim = self._guess_counts_for_bound_and_claim_test(evidence.scope, canaries)
        seen = [
            None
            if scope.curve is None
            else ideal.share_of_refuting_audits(mistake, for_claim, scope.curve, self.false_alarm)
            for mistake in (NOISE_HALVED, UNCLIPPED)
        ]
        return {
            "halved_epsilon": ideal.median_epsilon_bound(NOISE_HALVED, for_bound, self.delta, self.false_alarm),
            "halved_seen": seen[0],
            "unclipped_seen": seen[1],
        }

    def _guess_counts_for_bound_and_claim_test(self, scope: Scope, canaries: int) -> tuple[GuessCounts, GuessCounts]:
        """The numbers of guesses for the bound and for the test of the curve, from simulated audits alone."""
        if (scope, canaries) not in self._splits:
            priced, rng = self.scopes[scope], np.random.Generator(np.random.Philox(canaries))
            ideal = IdealAudit(steps=priced.steps, canaries=canaries)
            for_bound = ideal.guess_counts_for_largest_bound(self.delta, self.false_alarm, rng)
            curve = priced.curve
            for_claim = for_bound if curve is None else ideal.guess_counts_for_claim(curve, self.false_alarm, rng)
            self._splits[scope, canaries] = for_bound, for_claim
        return self._splits[scope, canaries]


def _least_likely_noise_finding(findings: Sequence[NoiseFinding]) -> NoiseFinding:
    least = min(findings, key=lambda finding: finding.p_value)
    powers = [finding.halved_seen for finding in findings if finding.halved_seen is not None]
    return replace(
        least,
        tested=sum(finding.tested for finding in findings),
        draws=min(finding.draws for finding in findings),
        p_value=min(1.0, len(findings) * least.p_value),
        halved_seen=min(powers, default=None),
    )
