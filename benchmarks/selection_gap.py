"""Gap between the price of a hidden search and the strongest known attack on it, over a grid of settings.

    python benchmarks/selection_gap.py [LAWS...]

Prints one row for each law, number of expected tries and delta: the largest and the mean gap over noise multipliers,
sample rates and adjacencies, and the setting of the largest gap. The number of steps is chosen such that one run costs
an epsilon of about 2.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, poisson_gaussian, repeat, select
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.pricing.calibration import largest_count

LAWS: dict[str, Callable[[float], NegativeBinomial | Poisson]] = {
    "geometric": lambda mean: NegativeBinomial.with_mean(eta=1.0, mean=mean),
    "logarithmic": lambda mean: NegativeBinomial.with_mean(eta=0.0, mean=mean),
    "poisson": lambda mean: Poisson(mean=mean),
}
NOISES = (0.8, 1.5, 4.0, 10.0)
RATES = (0.001, 0.02, 0.2)
MEANS = (2.0, 10.0, 35.0, 300.0)
DELTAS = (1e-6, 1e-5, 1e-4)
ONE_RUN = 2.0


def runs(adjacency: Adjacency) -> list[tuple[str, DpEvent]]:
    """Runs of about epsilon 2 at delta 1e-5, of at least one step."""
    found = []
    for noise, rate in itertools.product(NOISES, RATES):
        step = poisson_gaussian(sample_rate=rate, noise_multiplier=noise)

        def price(steps: int, step: DpEvent = step) -> float:
            return Pld(interval=1e-3).epsilon(repeat(step, steps), 1e-5, adjacency)

        steps = max(1, largest_count(price, ONE_RUN, most=20_000))
        found.append((f"noise {noise:g}, rate {rate:g}, {steps} steps, {adjacency.value}", repeat(step, steps)))
    return found


def gaps(law: Callable[[float], NegativeBinomial | Poisson], mean: float, delta: float) -> list[tuple[float, str]]:
    """Each setting with price / attack - 1."""
    found = []
    for adjacency in Adjacency:
        for name, run in RUNS[adjacency]:
            search = select(run, law(mean))
            try:
                price = Pld().epsilon(search, delta, adjacency)
            except UnsupportedEvent:
                continue
            found.append((price / lower_bound(search, delta, adjacency) - 1, f"{name}, epsilon {price:.3f}"))
    return found


if __name__ == "__main__":
    RUNS = {adjacency: runs(adjacency) for adjacency in Adjacency}
    print("| law | tries | delta | largest gap | mean gap | at |\n|---|---|---|---|---|---|")
    for name in sys.argv[1:] or LAWS:
        for mean, delta in itertools.product(MEANS, DELTAS):
            rows = gaps(LAWS[name], mean, delta)
            worst, at = max(rows)
            average = sum(gap for gap, _ in rows) / len(rows)
            print(f"| {name} | {mean:g} | {delta:g} | {worst:.2%} | {average:.2%} | {at} |")
