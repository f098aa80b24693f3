"""Privacy-loss distributions: the tightest accountant for compositions, by the only door to dp-accounting's PLD.

*Source*: Koskela, Jaelkoe, Honkela 2020; Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (Connect the Dots), whose
discretisation is pessimistic at every epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation

from accounting.accountant import Steps, check_delta, gaussian_steps
from accounting.errors import UnsupportedEvent
from accounting.events import DpEvent
from accounting.guarantee import Adjacency
from accounting.rdp import Rdp

SMALLEST_DELTA = 1e-10
"""Below this the transforms' rounding is no longer small against delta: at 1e-12 answers can already be too small."""

LARGEST_EPSILON = 500.0
SMALLEST_NOISE = 0.02
LARGEST_GRID = 2_000_000
"""Points of one distribution. A coarser grid is still pessimistic; what would not fit even so is refused."""

LARGEST_ERROR = 5e-3
"""Relative and absolute slack of the cross-check: ten times what halving the interval ever changed."""

_RELATIONS = {
    Adjacency.ADD_OR_REMOVE_ONE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
}


@dataclass(frozen=True, kw_only=True)
class Pld:
    """Accountant by discretised privacy-loss distributions.

    *Guarantee*: an upper bound; refused below delta 1e-10, where the Fourier transform's rounding decides.
    `interval` is the widest grid step of the privacy loss (nats); leaves with little sampling get a finer one.
    """

    interval: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.interval <= 1e-2:
            raise ValueError(f"Expected 0 < interval={self.interval} <= 0.01.")

    @property
    def name(self) -> str:
        """How reports call it."""
        return "PLD"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """Epsilon of the convolved distributions; 0 if nothing ran, infinity if something ran without noise."""
        check_delta(delta)
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(f"PLD is not safe at delta={delta:g} < {SMALLEST_DELTA:g}; use RDP.")
        steps = gaussian_steps(event, self.name)
        if not steps:
            return 0.0
        if any(step.noise_multiplier == 0 for step in steps):
            return math.inf
        interval = self._grid_step(steps, Rdp().epsilon(event, delta, Adjacency.ADD_OR_REMOVE_ONE))
        parts = [_composed(step, interval, adjacency) for step in steps]
        return max(0.0, float(reduce(lambda left, right: left.compose(right), parts).get_epsilon_for_delta(delta)))

    def _grid_step(self, steps: tuple[Steps, ...], rough: float) -> float:
        """Fine enough for little sampling, coarse enough for memory; any step is pessimistic."""
        least = min(step.noise_multiplier for step in steps)
        if rough > LARGEST_EPSILON or least < SMALLEST_NOISE:
            raise UnsupportedEvent(f"PLD would need too much memory at epsilon near {rough:.3g}; use RDP.")
        span = max(rough, 1 / (2 * least**2) + 10 / least)
        finest = min(0.1 * step.sample_rate / step.noise_multiplier for step in steps)
        return max(min(self.interval, finest), span / LARGEST_GRID)

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """The same number less the largest discretisation error seen against exact values, `LARGEST_ERROR`."""
        return max(0.0, self.epsilon(event, delta, adjacency) * (1 - LARGEST_ERROR) - LARGEST_ERROR)


@lru_cache(maxsize=64)
def _composed(step: Steps, interval: float, adjacency: Adjacency) -> Any:
    """The distribution of all these steps; unsampled Gaussians collapse exactly into one with less noise."""
    noise, count = step.noise_multiplier, step.count
    if step.sample_rate == 1:
        noise, count = noise / math.sqrt(count), 1
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=step.sample_rate,
        value_discretization_interval=interval,
        neighboring_relation=_RELATIONS[adjacency],
    )
    return one.self_compose(count)
