"""The attack by gradients: on sampler, bound, noise, divisor and loop of a plan's runs, for any model and method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.audit_record import Attack, Scope
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.noise_law import ReleasedNoise, TensorLayout
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.interface import kind_of
from dpsweep.sweeper.audit.evidence import Coins, Collected, Scores, secret_coins
from dpsweep.sweeper.trial.build import make_run
from dpsweep.sweeper.trial.spec import declare

if TYPE_CHECKING:
    from dpsweep.trainers.auditing.gradient_canaries import GradientScores

LEAST_NOISE = 1e-6
"""A smaller noise multiplier counts as this in the weight of a run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientAttack:
    """Trainings of a plan's runs with canaries in place of gradients; `layouts` are the tensors of each point's model.

    A model with fewer numbers than `canaries`, or fewer records that they may replace, is trained several times in
    place of once, with its share of them each time. `noise` collects the noise of all steps, by layout.
    """

    plan: Plan
    layouts: Mapping[str, TensorLayout]
    canaries: int
    rng: np.random.Generator
    noise: dict[TensorLayout, ReleasedNoise] = field(default_factory=dict)

    def scores(self, alone: Trial, trainings: int, *, search: bool) -> tuple[Collected, int | None]:
        """The scores of so many trainings of the run `alone`, and of the whole search if `search` says so.

        Also the number of noisy numbers that were on the lattice of their noise; None if one was not.
        """
        collected, totals, all_coins, numbers, off = Collected(), [], [], 0, 0
        rounds = -(-self.canaries // self._most(alone))
        count = trainings * rounds
        for _ in range(count):
            coins = secret_coins(self.canaries // rounds, self.rng)
            (one,) = self._trained([alone], coins, shared=False)
            collected.add(Scope.TRAINING, {Attack.GRADIENTS: one.total, Attack.STEPS: one.variation}, coins)
            totals.append(one.total)
            all_coins.append(coins)
            numbers, off = numbers + one.numbers, off + one.off_lattice
            if search:
                collected.add(Scope.SEARCH, {Attack.GRADIENTS: self._of_search(coins)}, coins)
        for place in range(count if count > 1 else 0):
            differences = totals[place] - totals[(place + 1) % count]
            collected.add(Scope.TRAINING, {Attack.TRAININGS: differences}, all_coins[place])
        return collected, None if off else numbers

    def _most(self, alone: Trial) -> int:
        """The most canaries of one training: a coordinate of its own for each, and a record that it may replace."""
        trials = (alone, *self.plan.trials)
        most = min(self.layouts[trial.id].numbers for trial in trials)
        if Adjacency(self.plan.adjacency) is Adjacency.REPLACE_ONE:
            return min(most, *(declare(trial.config).train_records for trial in trials))
        return most

    def _of_search(self, coins: Coins) -> Scores:
        """The scores from what the rule releases of one search; zeros if it releases nothing."""
        runs = kind_of(self.plan).sample(self.plan, SystemRandom())
        seen = self._trained(runs.trials, coins, shared=runs.shared)
        released = runs.released([0.0 if runs.compares_counts else _spread(one.total) for one in seen])
        total = np.zeros(len(coins))
        for place in released:
            noise_multiplier = float(runs.trials[place].config["privacy"]["noise_multiplier"])
            total += seen[place].total / max(LEAST_NOISE, noise_multiplier)
        return total

    def _trained(self, trials: Sequence[Trial], coins: Coins, *, shared: bool) -> Sequence[GradientScores]:
        groups = [trials] if shared else [[trial] for trial in trials]
        return [one for group in groups for one in self._group(group, coins, share=shared)]

    def _group(self, trials: Sequence[Trial], coins: Coins, *, share: bool) -> Sequence[GradientScores]:
        from dpsweep.trainers.auditing.gradient_canaries import train_on_gradients
        from dpsweep.trainers.randomness import secret_streams

        layout = self.layouts[trials[0].id]
        noise = self.noise.setdefault(layout, ReleasedNoise(layout=layout))
        runs = [make_run(trial.config, declare(trial.config)) for trial in trials]
        streams = [secret_streams() for _ in runs]
        return train_on_gradients(runs, coins, self.plan.adjacency, streams, noise, share=share)


def _spread(total: Scores) -> float:
    """The score by which tries are compared here, in [0, 1): it prefers runs in which canaries stand out."""
    spread = float(np.mean(total**2))
    return spread / (1 + spread)
