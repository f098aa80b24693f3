"""The outcome of an attack before it is judged: a score for each canary, and whether it was there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpsweep.accounting.audit_record import Attack, Scope

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

    def add(self, scope: Scope, scores: Mapping[Attack, Scores], coins: Coins) -> None:
        """Adds the scores of one training, or of one search, for some attacks."""
        for attack, values in scores.items():
            self.parts[attack, scope].append((values, coins))

    def evidence(self) -> tuple[AttackEvidence, ...]:
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


def scaled(scores: Scores) -> Scores:
    """The scores with mean square 1, so that those of different models may be added; zeros stay zeros."""
    finite = np.nan_to_num(scores, posinf=0.0, neginf=0.0)
    size = float(np.sqrt(np.mean(finite**2))) if len(finite) else 0.0
    return finite / size if size else finite
