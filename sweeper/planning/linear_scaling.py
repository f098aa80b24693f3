"""The linear scaling rule: the learning rates that cheap runs like best, drawn on in a line to the run that counts.

*Source*: Panda, Tang, Mahloujifar, Sehwag, Mittal, "A New Linear Scaling Rule for Private Adaptive Hyperparameter
Optimization" (ICML 2024): the best learning rate times the number of steps grows about linearly in epsilon. Cheap runs
differ from the last one in their noise alone, so that the number of steps, which all share, drops out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from dpsweep.accounting.accountants.interface import plan_epsilon
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.proposal_file import choices_of
from dpsweep.accounting.records.proposed import Phase
from dpsweep.sweeper.planning.optuna_samplers import Seen
from dpsweep.sweeper.planning.point import Point

RATE = "trainer.lr"


@dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """Equally many runs at each of `noise_multipliers`, at learning rates by chance, then one run of the rate they say.

    The rate is that of the line through the best rate at every level, over the epsilon of one run there by Renyi
    curves; with one level it goes through the origin. The point next to it, in ratio, is run. Failed runs count as
    bad, and a level where all failed says nothing; where none says anything, chance decides.
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

    def phases(self, trials: int, points: Sequence[Point]) -> tuple[Phase, ...]:
        """A phase for each level, as long as the others, and one run at the noise that the rest of the budget allows.

        Raises `BadInput` unless the points are one method's and differ in their learning rate alone.
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

    def choose(self, plan: Plan, seen: Sequence[Seen]) -> int:
        """The point of the next turn: one by chance that was not yet run, at last the one that the line says."""
        choices = choices_of(plan)
        choice, rng = choices[len(seen)], Random(self.seed)
        best = _best(plan, seen)
        if len(seen) < len(choices) - 1 or not best:
            tried = {run.point for run in seen}
            return rng.choice([point for point in choice if point not in tried] or list(choice))
        wanted = _line(best, _epsilon(plan, plan.trials[choice[0]]))
        return min(choice, key=lambda point: _apart(_rate(plan.trials[point]), wanted))


def _best(plan: Plan, seen: Sequence[Seen]) -> Mapping[float, float]:
    """The learning rate with the best score at each level's epsilon; the first among equals."""
    found: dict[float, tuple[float, float]] = {}
    for run in seen:
        if run.score is not None:
            trial = plan.trials[run.point]
            level = _epsilon(plan, trial)
            if level not in found or run.score > found[level][0]:
                found[level] = run.score, _rate(trial)
    return {level: rate for level, (_, rate) in found.items()}


def _line(best: Mapping[float, float], epsilon: float) -> float:
    """The rate at this epsilon, by least squares; through the origin where there is one level."""
    if len(best) == 1:
        ((level, rate),) = best.items()
        return rate / level * epsilon
    slope, start = np.polyfit(list(best), list(best.values()), deg=1)
    return float(start + slope * epsilon)


def _apart(rate: float, wanted: float) -> float:
    """How many times the one is the other, as a logarithm; next to what is not above 0 is the least rate."""
    return abs(math.log(rate / wanted)) if wanted > 0 else rate


def _epsilon(plan: Plan, trial: Trial) -> float:
    """What the training of one such run costs by Renyi curves: an abscissa, not a claim."""
    return plan_epsilon(Rdp(), PlanEvent(training=trial.event.training), plan.delta, plan.adjacency)


def _rate(trial: Trial) -> float:
    return float(trial.axes[RATE] or 0)
