"""What tilted transforms say at ordinary and at small deltas, and how long they take, beside dp-accounting's own.

    python benchmarks/small_deltas.py [--toy]

The library composes the same one-step distributions on the same grids; its answers at small deltas are no bounds, and
below 1e-10 it is not asked.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from measuring.aims import Aim
from measuring.script import start

from dpsweep.accounting.accountants import pld
from dpsweep.accounting.accountants.interface import GaussianSteps
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_epsilon
from dpsweep.accounting.profiles.composition import Losses
from dpsweep.accounting.profiles.derived_profiles import replaced_step
from dpsweep.accounting.profiles.privacy_profiles import poisson_step

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
LIBRARY_FROM = 1e-10
SETTINGS = [
    (0.02, 3.6, 5_000, 1e-5, ADD),
    (0.02, 2.0, 5_000, 1e-5, ADD),
    (0.02, 1.2, 5_000, 1e-5, ADD),
    (0.02, 1.2, 175_000, 1e-5, ADD),
    (0.02, 1.2, 5_000_000, 1e-5, ADD),
    (0.02, 2.0, 5_000, 1e-5, REPLACE),
    (0.01, 0.7, 20_000, 1e-10, ADD),
    (1e-3, 1.0, 100_000, 1e-10, REPLACE),
    (1e-4, 0.6, 3_000_000, 1e-9, REPLACE),
    (1e-4, 0.6, 3_000_000, 1e-10, REPLACE),
    (0.02, 2.0, 5_000, 1e-20, ADD),
    (0.02, 2.0, 5_000, 1e-20, REPLACE),
]


@dataclass(frozen=True, kw_only=True)
class Size:
    """The number of settings, and the most steps of each."""

    settings: int = len(SETTINGS)
    most_steps: int = 5_000_000


def library(parts: pld.Parts, interval: float, delta: float) -> float:
    """dp-accounting's self-composition of the same one-step distribution."""

    def dense(losses: Losses) -> pld_pmf.DensePLDPmf:
        return pld_pmf.DensePLDPmf(
            discretization=losses.interval,
            lower_loss=losses.lowest,
            probs=losses.probabilities,
            infinity_mass=losses.infinite,
            pessimistic_estimate=True,
        )

    composed = pld.composed_losses(parts, interval)
    ahead, behind = dense(composed[0].parts[0][0]), (dense(one.parts[0][0]) for one in composed[1:])
    distribution = privacy_loss_distribution.PrivacyLossDistribution(ahead, next(behind, None))
    return float(distribution.self_compose(parts[0][1]).get_epsilon_for_delta(delta))


def main(size: Size) -> list[Aim]:
    print("| q | noise | steps | delta | neighbours | dp-accounting | s | tilted | s | lower | RDP |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for rate, noise, declared, delta, adjacency in SETTINGS[: size.settings]:
        count = min(declared, size.most_steps)
        step = GaussianSteps(sample_rate=rate, noise_multiplier=noise, count=count)
        event = repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), count)
        pld.clear_cached_prices()
        started = time.perf_counter()
        ours = Pld().epsilon(event, delta, adjacency)
        taken = time.perf_counter() - started
        cells = ["-", "-"]
        if delta >= LIBRARY_FROM:
            started = time.perf_counter()
            parts = [((poisson_step if adjacency is ADD else replaced_step)(rate, noise), count)]
            cells[0] = f"{library(parts, Pld().grid_step(parts, [step]), delta):.4f}"
            cells[1] = f"{time.perf_counter() - started:.2f}"
        lower = forced_epsilon(event, delta, adjacency)
        renyi = Rdp().epsilon(event, delta, ADD) if adjacency is ADD else math.nan
        print(
            f"| {rate:g} | {noise:g} | {count} | {delta:g} | {adjacency.value} | {cells[0]} | {cells[1]} "
            f"| {ours:.4f} | {taken:.2f} | {lower:.4f} | {renyi:.4f} |".replace("nan", "-"),
            flush=True,
        )
    return []


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(settings=2, most_steps=50), about=__doc__)
