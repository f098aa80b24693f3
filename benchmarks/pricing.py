"""What pricing takes: 35 points under every rule, 5000 kinds of step, many laws from one profile, and calibrations.

    python benchmarks/pricing.py [--toy] [--rounds 3]

Every part runs in a process of its own, so that its peak memory is its own; every round has a noise of its own, so
that nothing comes from a cache. Printed are medians.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from unittest.mock import patch

from measuring.aims import Aim
from measuring.clock import wall_seconds
from measuring.script import start

from dpsweep.accounting.accountants import pld, rdp
from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, PlanEvent, compose, gaussian, poisson_gaussian, repeat
from dpsweep.accounting.events.trial_counts import NegativeBinomial
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing import rule_prices as offers
from dpsweep.accounting.pricing.calibration import calibrate_noise
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.profiles.selection_envelope import profile_of_best_try
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    NoisyMax,
    PoissonSelection,
    PrivateSelection,
    RandomStopping,
    Threshold,
)
from dpsweep.reports.reproduction.classical import Classical

ADD, DELTA = Adjacency.ADD_OR_REMOVE_ONE, 1e-5
RULES: dict[str, SelectionRule] = {
    "composition": Composition(),
    "random stopping": RandomStopping(delta=DELTA),
    "selection, eta 1": PrivateSelection(eta=1.0),
    "selection, eta .5": PrivateSelection(eta=0.5),
    "selection, eta 0": PrivateSelection(eta=0.0),
    "selection, eta -.5": PrivateSelection(eta=-0.5),
    "selection, Poisson": PoissonSelection(),
    "best of the grid": BestOfGrid(),
}
ACCOUNTANTS: tuple[Accountant, ...] = (Rdp(), Pld(), Classical())
PANEL = Panel(claimants=(Pld(), Rdp()))


@dataclass(frozen=True, kw_only=True)
class Size:
    """Rounds, points of a sweep and of a large one, steps of a run, and the kinds of step that a finer bound tells."""

    rounds: int = 3
    points: int = 35
    many_points: int = 1000
    steps: int = 5000
    kinds_of_step: int = 5000
    kinds_of_distribution: int = 500
    rules: tuple[str, ...] = tuple(RULES)
    mean_tries: tuple[float, ...] = (2.0, 4.0, 10.0, 35.0, 1000.0)
    target: float = 8.0


def chosen(size: Size) -> dict[str, SelectionRule]:
    return {name: rule for name, rule in RULES.items() if name in size.rules}


def run(noise: float, steps: int) -> PlanEvent:
    return PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=noise), steps))


def schedule(size: Size) -> DpEvent:
    """A ramp from 1.2 to 2.4, each step with a noise of its own, once for each point."""
    noises = (1.2 * (1 + step / size.steps) for step in range(size.steps))
    return repeat(compose(poisson_gaussian(sample_rate=0.02, noise_multiplier=noise) for noise in noises), size.points)


def price_list(size: Size) -> Iterable[str]:
    yield f"{size.points} points, {size.steps} steps each: milliseconds and epsilon by accountant"
    for number, (name, rule) in enumerate(chosen(size).items()):
        cells = [f"{name:20}"]
        for accountant in ACCOUNTANTS:
            noises = (2.0 + (number * 100 + turn) / 1e5 for turn in range(size.rounds))
            events = [rule.event([run(noise, size.steps)] * size.points).training for noise in noises]
            try:
                taken = [wall_seconds(partial(accountant.epsilon, event, DELTA, ADD)) for event in events]
            except UnsupportedEvent:
                cells.append(f"{accountant.name:>10} {'refused':>17}")
                continue
            epsilon = accountant.epsilon(events[0], DELTA, ADD)
            cells.append(f"{accountant.name:>10} {statistics.median(taken) * 1e3:7.1f} {epsilon:9.2f}")
        yield " ".join(cells)


def whole_list(size: Size) -> Iterable[str]:
    """What `dpsweep plan` prints: every rule, both accountants, the attack, for training and for held-out records."""
    names = ("composition", "random stopping", "selection, eta 1", "selection, Poisson", "best of the grid")
    rules = {name: rule for name, rule in chosen(size).items() if name in names}
    rules |= {"threshold": Threshold(threshold=0.9, delta=DELTA), "noisy max": NoisyMax(noise_scale=2.0)}
    for points in (size.points, size.many_points):
        taken = []
        for turn in range(size.rounds):
            trial = replace(
                run(2.0 + (points + turn) / 1e5, size.steps), validation=gaussian(noise_multiplier=40.0 + turn)
            )
            taken.append(wall_seconds(partial(offers.offer_of_each_rule, rules, [trial] * points, PANEL, delta=DELTA)))
        yield f"whole list of {len(rules)} rules for {points:4} points: {statistics.median(taken):.2f} s"


def by_moments(size: Size) -> Iterable[str]:
    yield from _many_kinds(Rdp(), size, (rdp, size.kinds_of_step))


def by_distributions(size: Size) -> Iterable[str]:
    yield from _many_kinds(Pld(), size, (pld, size.kinds_of_distribution))


def by_theorems(size: Size) -> Iterable[str]:
    yield from _many_kinds(Classical(), size, None)


def profiles(size: Size) -> Iterable[str]:
    laws = [NegativeBinomial.with_mean(eta=eta, mean=mean) for eta in (-0.5, 0.0, 0.5, 1.0) for mean in size.mean_tries]
    one, all_laws = [], []
    for turn in range(size.rounds):
        event = run(2.0 + turn / 1e4, size.steps).training
        started = time.perf_counter()
        Pld().profile(event, ADD).epsilon(DELTA)
        one.append(time.perf_counter() - started)
        profile, started = Pld().profile(event, ADD), time.perf_counter()
        for law in laws:
            profile_of_best_try(profile, law).epsilon(DELTA)
        all_laws.append(time.perf_counter() - started)
    first, others = statistics.median(one), statistics.median(all_laws)
    yield f"profile of one run {first:.2f} s; {len(laws)} laws from it {others:.2f} s"


def price(rule: SelectionRule, size: Size, noise: float) -> float:
    return PANEL.epsilon(rule.event([run(noise, size.steps)] * size.points), DELTA, ADD)


def calibrations(size: Size) -> Iterable[str]:
    for name, rule in chosen(size).items():
        taken, noise = [], 0.0
        for turn in range(size.rounds):
            started = time.perf_counter()
            noise = calibrate_noise(partial(price, rule, size), size.target + turn / 1e3)
            taken.append(time.perf_counter() - started)
        yield f"noise for epsilon {size.target:g}, {name:20} {statistics.median(taken):6.2f} s  noise {noise:.3f}"


def _many_kinds(accountant: Accountant, size: Size, finer: tuple[ModuleType, int] | None) -> Iterable[str]:
    event, before = schedule(size), _megabytes()
    started = time.perf_counter()
    epsilon = accountant.epsilon(event, DELTA, ADD)
    taken, peak = time.perf_counter() - started, _megabytes()
    ratio = ""
    if finer is not None:
        module, kinds = finer
        with patch.object(module, "KINDS_OF_STEP", kinds):
            finest = accountant.epsilon(event, DELTA, ADD)
        ratio = f", {100 * (epsilon / finest - 1):.2f} % above {kinds} kinds ({finest:.3f})"
    yield (
        f"{size.steps} noises x {size.points} by {accountant.name:9} {taken:6.2f} s, peak {peak:.0f} MB "
        f"({before:.0f} before), epsilon {epsilon:.3f}{ratio}"
    )


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _show(part: Callable[[Size], Iterable[str]], size: Size) -> None:
    for line in part(size):
        print(line, flush=True)


def main(size: Size) -> Sequence[Aim]:
    alone = multiprocessing.get_context("spawn")
    for part in (price_list, whole_list, by_moments, by_distributions, by_theorems, profiles, calibrations):
        process = alone.Process(target=_show, args=(part, size))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)
    return ()


if __name__ == "__main__":
    toy = Size(
        rounds=1,
        points=2,
        many_points=3,
        steps=5,
        kinds_of_step=4,
        kinds_of_distribution=3,
        rules=("composition",),
        mean_tries=(2.0,),
    )
    start(main, full=Size(), toy=toy, about=__doc__)
