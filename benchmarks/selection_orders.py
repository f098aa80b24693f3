"""Whether another score than the two-cut attack's would force more: simulated annealing over all orders of 48 outcomes.

    python benchmarks/selection_orders.py [--toy] [--moves ...] [--chains ...] [--seed ...]

One try is a Gaussian mechanism of sensitivity over noise 1, whose output is told as one of 48 intervals: 46 of equal
length from -4.5 to 5.5, and both tails. The attacker may score the intervals in any order, also after a coin has parted
each into quarters; the best of K tries wins. For each law of K the best orders that were found, the epsilons that they
force, that of the best two cuts, and the envelope bound of this very pair of laws, which quarters do not change, are
written to selection_orders.jsonl. docs/accounting.md shows them, and a test computes them again from the orders. That
an order is the best one of all is not proved.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Tries
from dpsweep.accounting.lower_bounds.selection_attack import generating_function_rise
from dpsweep.accounting.profiles.privacy_profiles import invert_profile
from dpsweep.accounting.profiles.selection_envelope import BestOf

if TYPE_CHECKING:
    from measuring.aims import Aim

RESULTS = Path(__file__).with_suffix(".jsonl")
DELTA, OUTCOMES, QUARTERS, ENDS = 1e-5, 48, 4, (-4.5, 5.5)
LAWS: Mapping[str, Tries] = {
    "fixed, 35": EachPoint(count=35),
    "Poisson, 100": Poisson(mean=100.0),
    "geometric, 35": NegativeBinomial.with_mean(eta=1.0, mean=35.0),
}
HOTTEST, COLDEST = 0.3, 1e-4
"""Temperatures, in epsilon, between which the annealing cools geometrically."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many chains are annealed for each law, by how many moves each, from which seed; of quarters a quarter."""

    chains: int = 40
    moves: int = 15_000
    seed: int = 1


@dataclass(frozen=True, eq=False)
class OneWay:
    """The hockey-stick divergence of one law on the outcomes from another."""

    first: np.ndarray
    second: np.ndarray

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        weights = np.exp(np.minimum(epsilons, 700.0))[:, None]
        return np.asarray(np.maximum(self.first - weights * self.second, 0).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Mechanism:
    """The laws of one try with the record and without it, and its exact privacy profile."""

    present: np.ndarray
    instead: np.ndarray

    @property
    def directions(self) -> tuple[OneWay, OneWay]:
        return OneWay(self.present, self.instead), OneWay(self.instead, self.present)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        return np.asarray(np.max([one.delta(epsilons) for one in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        return invert_profile(self, delta)


def mechanism(parts: int = 1) -> Mechanism:
    """The Gaussian mechanism on intervals, each mass from the tail that is nearer, and each in so many equal parts."""
    cuts = np.concatenate([[-math.inf], np.linspace(*ENDS, OUTCOMES - 1), [math.inf]])

    def masses(mean: float) -> np.ndarray:
        low, high = cuts[:-1] - mean, cuts[1:] - mean
        return np.repeat(np.where(low < 0, ndtr(high) - ndtr(low), ndtr(-low) - ndtr(-high)) / parts, parts)

    return Mechanism(masses(1.0), masses(0.0))


def epsilon_bound(tries: Tries) -> float:
    """The envelope bound of the search."""
    return BestOf(mechanism(), tries).epsilon(DELTA)


def two_cuts(tries: Tries) -> float:
    """The epsilon that the best of all pairs of cuts forces: outcomes between them lowest, then above, then below."""
    one = mechanism()
    ranks = np.argsort(one.instead / one.present)
    upper, lower = np.triu_indices(OUTCOMES + 1)
    orders = [np.concatenate([ranks[s:t], ranks[:s], ranks[t:]]) for s, t in zip(upper, lower, strict=True)]
    return float(forced(np.array(orders), tries).max())


def forced(orders: np.ndarray, tries: Tries) -> np.ndarray:
    """The epsilon that each order of the outcomes, from the worst score to the best, forces; shape [n] of [n, parts].

    The mechanism's directions mirror each other, so one of them is enough.
    """
    one = mechanism(orders.shape[1] // OUTCOMES)
    won = []
    for masses in (one.present, one.instead):
        placed = masses[orders]
        below = np.cumsum(placed, axis=1) - placed
        won.append(generating_function_rise(tries, np.maximum(below, 0.0), placed))
    best_first = np.argsort(won[1] / np.maximum(won[0], 1e-300), axis=1)
    a, b = (np.cumsum(np.take_along_axis(side, best_first, axis=1), axis=1) for side in won)
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = np.log(np.maximum(a - DELTA, 0.0)) - np.log(b)
    return np.asarray(np.nanmax(gains, axis=1))


def moved(orders: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A neighbour of each order: a stretch is turned round, or an outcome goes to another place."""
    new = orders.copy()
    ends = np.sort(rng.integers(0, orders.shape[1] + 1, (len(orders), 2)), axis=1)
    for row, (low, high), turns in zip(new, ends, rng.random(len(orders)) < 1 / 3, strict=True):
        row[low:high] = row[low:high][::-1] if turns else np.roll(row[low:high], 1 if rng.random() < 1 / 2 else -1)
    return new


def annealed(tries: Tries, size: Size, known: np.ndarray) -> np.ndarray:
    """The order that was found to force the largest epsilon, by chains of which one begins at a known order."""
    rng = np.random.Generator(np.random.Philox(size.seed))
    orders = rng.random((size.chains * OUTCOMES // len(known), len(known))).argsort(axis=1)
    orders[0] = known
    values = forced(orders, tries)
    best, order = float(values.max()), np.array(orders[values.argmax()])
    for temperature in np.geomspace(HOTTEST, COLDEST, size.moves):
        new = moved(orders, rng)
        gains = forced(new, tries)
        taken = np.log(rng.random(len(orders))) * temperature < gains - values
        orders[taken], values[taken] = new[taken], gains[taken]
        if values.max() > best:
            best, order = float(values.max()), np.array(orders[values.argmax()])
    return order


def main(size: Size) -> Sequence[Aim]:
    lines = []
    print(
        "| law | envelope bound | best order | best order of quarters | two cuts | seconds |\n|---|---|---|---|---|---|"
    )
    for name, tries in LAWS.items():
        started = time.perf_counter()
        whole = annealed(tries, size, np.arange(OUTCOMES))
        orders = [whole, annealed(tries, size, (QUARTERS * whole[:, None] + np.arange(QUARTERS)).ravel())]
        best, quarters = (float(forced(order[None], tries)[0]) for order in orders)
        bound, cuts, seconds = epsilon_bound(tries), two_cuts(tries), time.perf_counter() - started
        lines.append({"law": name, "orders": [order.tolist() for order in orders]})
        print(f"| {name} | {bound:.3f} | {best:.3f} | {quarters:.3f} | {cuts:.3f} | {seconds:.0f} |", flush=True)
    if size == Size():
        RESULTS.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return []


if __name__ == "__main__":
    from measuring.script import start

    start(main, full=Size(), toy=Size(chains=4, moves=50), about=__doc__)
