"""The attack by gradients: on sampler, bound, noise, divisor and loop of a plan's runs, for any model and method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsweep.accounting.audit_record import Attack, Scope
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.sweeper.audit.evidence import Coins, Collected, Scores, secret_coins
from dpsweep.sweeper.audit.released_runs import ReleasedRuns
from dpsweep.sweeper.trial.build import make_run
from dpsweep.sweeper.trial.spec import declare

if TYPE_CHECKING:
    from dpsweep.trainers.auditing.gradient_canaries import GradientScores

LEAST_NOISE = 1e-6
"""A smaller noise multiplier counts as this in the weight of a run."""


def attack_gradients(
    plan: Plan, alone: Trial, canaries: int, trainings: int, *, search: bool, rng: np.random.Generator
) -> tuple[Collected, int | None]:
    """The scores of so many trainings of the run `alone`, and of the whole search if `search` says so.

    Also the number of noisy numbers that were on the lattice of their noise; None if one was not.
    """
    if Adjacency(plan.adjacency) is Adjacency.REPLACE_ONE:
        canaries = min(canaries, *(declare(trial.config).train_records for trial in (alone, *plan.trials)))
    collected, totals, all_coins, numbers, off = Collected(), [], [], 0, 0
    for _ in range(trainings):
        coins = secret_coins(canaries, rng)
        (one,) = _trained([alone], coins, plan.adjacency, shared=False)
        collected.add(Scope.TRAINING, {Attack.GRADIENTS: one.total, Attack.STEPS: one.variation}, coins)
        totals.append(one.total)
        all_coins.append(coins)
        numbers, off = numbers + one.numbers, off + one.off_lattice
        if search:
            collected.add(Scope.SEARCH, {Attack.GRADIENTS: _of_search(plan, coins)}, coins)
    for place in range(trainings if trainings > 1 else 0):
        differences = totals[place] - totals[(place + 1) % trainings]
        collected.add(Scope.TRAINING, {Attack.TRAININGS: differences}, all_coins[place])
    return collected, None if off else numbers


def _of_search(plan: Plan, coins: Coins) -> Scores:
    """The scores from what the rule releases of one search; zeros if it releases nothing."""
    runs = ReleasedRuns.drawn(plan)
    seen = _trained(runs.trials, coins, plan.adjacency, shared=runs.shared)
    released = runs.released([0.0 if runs.compares_counts else _spread(one.total) for one in seen])
    total = np.zeros(len(coins))
    for place in released:
        total += seen[place].total / max(LEAST_NOISE, float(runs.trials[place].config["privacy"]["noise_multiplier"]))
    return total


def _spread(total: Scores) -> float:
    """The score by which tries are compared here, in [0, 1): it prefers runs in which canaries stand out."""
    spread = float(np.mean(total**2))
    return spread / (1 + spread)


def _trained(trials: Sequence[Trial], coins: Coins, adjacency: Adjacency, *, shared: bool) -> Sequence[GradientScores]:
    from dpsweep.trainers.auditing.gradient_canaries import train_on_gradients
    from dpsweep.trainers.randomness import secret_streams

    runs = [make_run(trial.config, declare(trial.config)) for trial in trials]
    if shared:
        return train_on_gradients(runs, coins, adjacency, [secret_streams() for _ in runs], share=True)
    return [one for run in runs for one in train_on_gradients([run], coins, adjacency, [secret_streams()])]
