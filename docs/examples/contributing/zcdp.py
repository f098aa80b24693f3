"""Zero-concentrated differential privacy: rho adds up, whatever was sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsweep.accounting.accountants.interface import check_delta, gaussian_part
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.events.types import event_name
from dpsweep.accounting.guarantee import Adjacency


@dataclass(frozen=True, kw_only=True)
class Zcdp:
    """Gaussian steps, each rho = 1 / (2 noise_multiplier^2); sampling is ignored.

    *Guarantee*: an upper bound where one record is added or removed. A step on a sample is a mixture over samples of
    steps that differ by one record at most, and Renyi divergence is jointly quasi-convex, so the step without sampling
    costs no less.
    *Source*: Bun and Steinke 2016, Propositions 1.3, 1.6 and Lemma 1.7.
    """

    @property
    def name(self) -> str:
        """How reports call it."""
        return "zCDP"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """rho + 2 sqrt(rho ln(1 / delta)); 0 if nothing ran, infinity if something ran without noise."""
        check_delta(delta)
        steps, others = gaussian_part(event, adjacency)
        if others:
            raise UnsupportedEvent(f"{self.name} has no proven bound for {event_name(others[0][0])}.")
        if any(step.noise_multiplier == 0 for step in steps):
            return math.inf
        if steps and adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
            raise UnsupportedEvent(f"{self.name} has no proven bound under {Adjacency(adjacency).value}.")
        rho = sum(step.count / (2 * step.noise_multiplier**2) for step in steps)
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
