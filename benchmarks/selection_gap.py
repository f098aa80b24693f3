"""Gap between the price of a hidden search and the strongest known attack on it, over a grid of settings.

    python benchmarks/selection_gap.py [--toy] [--laws geometric ...] [--noises ...] [--rates ...]

Prints one row for each law, number of expected tries and delta: the largest and the mean gap over noise multipliers,
sample rates and adjacencies, and the setting of the largest gap. The number of steps is chosen such that one run costs
an epsilon of about 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from measuring.aims import Aim
from measuring.script import start

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, best_of_tries, poisson_gaussian, repeat
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.pricing.calibration import largest_affordable_count

LAWS: dict[str, Callable[[float], NegativeBinomial | Poisson]] = {
    "geometric": lambda mean: NegativeBinomial.with_mean(eta=1.0, mean=mean),
    "logarithmic": lambda mean: NegativeBinomial.with_mean(eta=0.0, mean=mean),
    "poisson": lambda mean: Poisson(mean=mean),
}
ONE_RUN = 2.0
Runs = Mapping[Adjacency, Sequence[tuple[str, DpEvent]]]


@dataclass(frozen=True, kw_only=True)
class Size:
    laws: tuple[str, ...] = tuple(LAWS)
    noises: tuple[float, ...] = (0.8, 1.5, 4.0, 10.0)
    rates: tuple[float, ...] = (0.001, 0.02, 0.2)
    means: tuple[float, ...] = (2.0, 10.0, 35.0, 300.0)
    deltas: tuple[float, ...] = (1e-6, 1e-5, 1e-4)
    most_steps: int = 20_000


def runs(adjacency: Adjacency, size: Size) -> list[tuple[str, DpEvent]]:
    """Runs of about epsilon 2 at delta 1e-5, of at least one step."""
    found = []
    for noise, rate in itertools.product(size.noises, size.rates):
        step = poisson_gaussian(sample_rate=rate, noise_multiplier=noise)

        def price(steps: int, step: DpEvent = step) -> float:
            return Pld(interval=1e-3).epsilon(repeat(step, steps), 1e-5, adjacency)

        steps = max(1, largest_affordable_count(price, ONE_RUN, most=size.most_steps))
        found.append((f"noise {noise:g}, rate {rate:g}, {steps} steps, {adjacency.value}", repeat(step, steps)))
    return found


def gaps(
    law: Callable[[float], NegativeBinomial | Poisson], mean: float, delta: float, runs: Runs
) -> list[tuple[float, str]]:
    """Each setting with price / attack - 1."""
    found = []
    for adjacency in Adjacency:
        for name, run in runs[adjacency]:
            search = best_of_tries(run, law(mean))
            try:
                price = Pld().epsilon(search, delta, adjacency)
            except UnsupportedEvent:
                continue
            found.append((price / lower_bound(search, delta, adjacency) - 1, f"{name}, epsilon {price:.3f}"))
    return found


def main(size: Size) -> list[Aim]:
    one_run = {adjacency: runs(adjacency, size) for adjacency in Adjacency}
    print("| law | tries | delta | largest gap | mean gap | at |\n|---|---|---|---|---|---|")
    for name in size.laws:
        for mean, delta in itertools.product(size.means, size.deltas):
            rows = gaps(LAWS[name], mean, delta, one_run)
            worst, at = max(rows)
            average = sum(gap for gap, _ in rows) / len(rows)
            print(f"| {name} | {mean:g} | {delta:g} | {worst:.2%} | {average:.2%} | {at} |", flush=True)
    return []


if __name__ == "__main__":
    toy = Size(noises=(4.0,), rates=(0.02,), means=(2.0,), deltas=(1e-5,), most_steps=50)
    start(main, full=Size(), toy=toy, about=__doc__)
