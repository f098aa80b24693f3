"""The linear scaling rule: the best learning rates of cheap runs, extrapolated linearly to the final run.

*Source*: Panda, Tang, Mahloujifar, Sehwag, Mittal, "A New Linear Scaling Rule for Private Adaptive Hyperparameter
Optimization" (ICML 2024): the best learning rate times the number of steps grows about linearly in epsilon. Cheap runs
differ from the final one only in their noise; all runs have the same number of steps, so that it cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Phase, Plan, Trial
from dpsweep.sweeper.planning.optuna_samplers import Seen
from dpsweep.sweeper.planning.plan_settings import Point

RATE = "trainer.lr"


@dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """Equally many runs at each of `noise_multipliers`, at random learning rates, then one run at the predicted rate.

    A line is fitted to the best rate of each level against the epsilon of one run at that level, by Renyi curves; with
    one level the line passes through the origin. The last run takes the point nearest to the line in ratio. Failed runs
    have no score, a level where all runs failed is left out, and without any level the last point is random.
    """

    noise_multipliers: Sequence[float]
    seed: int | None = None

    def __post_init__(self) -> None:
        noises = self.noise_multipliers
        if not isinstance(noises, (list, tuple)) or not noises or len(set(noises)) < len(noises):
            raise ValueError(f"Expected noise_multipliers={noises!r} to be a list of different numbers.")
        for noise in noises:
            if isinstance(noise, bool) or not isinstance(noise, (int, float)) or not 0 < noise < math.inf:
                raise ValueError(f"Expected noise_multipliers={noises!r} to be numbers > 0 and finite.")

    def split_runs_into_phases(self, trials: int, points: Sequence[Point]) -> tuple[Phase, ...]:
        """One phase per level, all equally long, then one run at the noise that the remaining budget allows.

        Raises `BadInput` unless all points have the same method and differ only in their learning rate.
        """
        axes = {key for point in points for key in point.axes}
        if axes != {RATE} or len({point.method for point in points}) > 1:
            raise BadInput(
                f"Expected a grid of one method over {RATE} alone with LinearScaling, got {', '.join(sorted(axes))}."
            )
        levels = len(self.noise_multipliers)
        each, over = divmod(trials - 1, levels)
        if over or not each:
            raise BadInput(
                f"Expected search.trials={trials} to be 1 more than a multiple of the {levels} noise multipliers."
            )
        cheap = (Phase(trials=each, noise_multiplier=float(noise)) for noise in self.noise_multipliers)
        return (*cheap, Phase(trials=1, noise_multiplier=None))

    def choose_next_point_index(self, plan: Plan, seen: Sequence[Seen]) -> int:
        """The point of the next run: a random one that was not run yet; for the last run, the nearest to the line."""
        choices = plan.allowed_point_indices_per_turn
        choice, rng = choices[len(seen)], Random(self.seed)
        best = _best_rate_by_epsilon(plan, seen)
        if len(seen) < len(choices) - 1 or not best:
            tried = {run.point for run in seen}
            return rng.choice([point for point in choice if point not in tried] or list(choice))
        target = _rate_on_fitted_line(best, _epsilon_of_trial_by_renyi(plan, plan.trials[choice[0]]))
        return min(choice, key=lambda point: _rate_distance(_learning_rate_of_trial(plan.trials[point]), target))


def _best_rate_by_epsilon(plan: Plan, seen: Sequence[Seen]) -> Mapping[float, float]:
    """The learning rate with the best score at each level's epsilon; ties go to the first run."""
    best: dict[float, tuple[float, float]] = {}
    for run in seen:
        if run.score is not None:
            trial = plan.trials[run.point]
            level = _epsilon_of_trial_by_renyi(plan, trial)
            if level not in best or run.score > best[level][0]:
                best[level] = run.score, _learning_rate_of_trial(trial)
    return {level: rate for level, (_, rate) in best.items()}


def _rate_on_fitted_line(best: Mapping[float, float], epsilon: float) -> float:
    """The rate at this epsilon on the least-squares line; with one level, the line passes through the origin."""
    if len(best) == 1:
        ((level, rate),) = best.items()
        return rate / level * epsilon
    slope, start = np.polyfit(list(best), list(best.values()), deg=1)
    return float(start + slope * epsilon)


def _rate_distance(rate: float, target: float) -> float:
    """Absolute logarithm of the ratio of two rates; if `wanted` <= 0, `rate` itself, so that the least is nearest."""
    return abs(math.log(rate / target)) if target > 0 else rate


def _epsilon_of_trial_by_renyi(plan: Plan, trial: Trial) -> float:
    """The epsilon of training this run, by Renyi curves; used as an abscissa only, not claimed as a guarantee."""
    return Rdp().epsilon(trial.event.training, plan.delta, plan.adjacency)


def _learning_rate_of_trial(trial: Trial) -> float:
    return float(trial.axes[RATE] or 0)
