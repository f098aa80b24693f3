"""What pricing takes: 35 points under every rule, 5000 kinds of step, many laws from one profile, and calibrations.

    python benchmarks/pricing.py [ROUNDS]

Every part runs in a process of its own, so that its peak memory is its own; every round has a noise of its own, so
that nothing comes from a cache. Printed are medians.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from dpsweep.accounting.accountants import pld, rdp
from dpsweep.accounting.accountants.classical import Classical
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
from dpsweep.accounting.profiles.selection_envelope import best_of
from dpsweep.accounting.selection.best_of_grid import BestOfGrid
from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.noisy_max import NoisyMax
from dpsweep.accounting.selection.private_selection import PoissonSelection, PrivateSelection
from dpsweep.accounting.selection.random_stopping import RandomStopping
from dpsweep.accounting.selection.threshold import Threshold

ADD, DELTA, POINTS, STEPS = Adjacency.ADD_OR_REMOVE_ONE, 1e-5, 35, 5000
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


def run(noise: float) -> PlanEvent:
    return PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=noise), STEPS))


def schedule() -> DpEvent:
    """A ramp from 1.2 to 2.4, each step with a noise of its own, 35 times."""
    ramp = (poisson_gaussian(sample_rate=0.02, noise_multiplier=1.2 * (1 + step / STEPS)) for step in range(STEPS))
    return repeat(compose(ramp), POINTS)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def price_list(rounds: int) -> Iterable[str]:
    yield f"{POINTS} points, {STEPS} steps each: milliseconds and epsilon by accountant"
    for number, (name, rule) in enumerate(RULES.items()):
        cells = [f"{name:20}"]
        for accountant in ACCOUNTANTS:
            events = [rule.event([run(2.0 + (number * 100 + turn) / 1e5)] * POINTS).training for turn in range(rounds)]
            try:
                taken = [seconds(partial(accountant.epsilon, event, DELTA, ADD)) for event in events]
            except UnsupportedEvent:
                cells.append(f"{accountant.name:>10} {'refused':>17}")
                continue
            epsilon = accountant.epsilon(events[0], DELTA, ADD)
            cells.append(f"{accountant.name:>10} {statistics.median(taken) * 1e3:7.1f} {epsilon:9.2f}")
        yield " ".join(cells)


def whole_list(rounds: int) -> Iterable[str]:
    """What `dpsweep plan` prints: every rule, both accountants, the attack, for training and for held-out records."""
    names = ("composition", "random stopping", "selection, eta 1", "selection, Poisson", "best of the grid")
    rules = {name: RULES[name] for name in names}
    rules |= {"threshold": Threshold(threshold=0.9, delta=DELTA), "noisy max": NoisyMax(noise_scale=2.0)}
    for points in (POINTS, 1000):
        taken = []
        for turn in range(rounds):
            trial = replace(run(2.0 + (points + turn) / 1e5), validation=gaussian(noise_multiplier=40.0 + turn))
            taken.append(seconds(partial(offers.price_list, rules, [trial] * points, PANEL, delta=DELTA)))
        yield f"whole list of {len(rules)} rules for {points:4} points: {statistics.median(taken):.2f} s"


def by_moments(rounds: int) -> Iterable[str]:
    yield from _many_kinds(Rdp(), rdp, 5000)


def by_distributions(rounds: int) -> Iterable[str]:
    yield from _many_kinds(Pld(), pld, 500)


def by_theorems(rounds: int) -> Iterable[str]:
    yield from _many_kinds(Classical(), None, 0)


def profiles(rounds: int) -> Iterable[str]:
    laws = [
        NegativeBinomial.with_mean(eta=eta, mean=mean) for eta in (-0.5, 0.0, 0.5, 1.0) for mean in (2, 4, 10, 35, 1000)
    ]
    one, all_laws = [], []
    for turn in range(rounds):
        event = run(2.0 + turn / 1e4).training
        one.append(seconds(lambda event=event: Pld().profile(event, ADD).epsilon(DELTA)))
        profile = Pld().profile(event, ADD)
        all_laws.append(seconds(lambda profile=profile: [best_of(profile, law).epsilon(DELTA) for law in laws]))
    first, others = statistics.median(one), statistics.median(all_laws)
    yield f"profile of one run {first:.2f} s; {len(laws)} laws from it {others:.2f} s"


def calibrations(rounds: int) -> Iterable[str]:
    for name, rule in RULES.items():
        taken, noise = [], 0.0
        for turn in range(rounds):
            started = time.perf_counter()
            noise = calibrate_noise(
                lambda value, rule=rule: PANEL.epsilon(rule.event([run(value)] * POINTS), DELTA, ADD), 8.0 + turn / 1e3
            )
            taken.append(time.perf_counter() - started)
        yield f"noise for epsilon 8, {name:20} {statistics.median(taken):6.2f} s  noise {noise:.3f}"


def _many_kinds(accountant: Accountant, module: object, finer: int) -> Iterable[str]:
    event, before = schedule(), _megabytes()
    started = time.perf_counter()
    epsilon = accountant.epsilon(event, DELTA, ADD)
    taken, peak = time.perf_counter() - started, _megabytes()
    ratio = ""
    if module is not None:
        module.KINDS_OF_STEP = finer  # type: ignore[attr-defined]
        finest = accountant.epsilon(event, DELTA, ADD)
        ratio = f", {100 * (epsilon / finest - 1):.2f} % above {finer} kinds ({finest:.3f})"
    yield (
        f"{STEPS} noises x {POINTS} by {accountant.name:9} {taken:6.2f} s, peak {peak:.0f} MB "
        f"({before:.0f} before), epsilon {epsilon:.3f}{ratio}"
    )


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _show(part: Callable[[int], Iterable[str]], rounds: int) -> None:
    for line in part(rounds):
        print(line, flush=True)


def main(rounds: int) -> None:
    alone = multiprocessing.get_context("spawn")
    for part in (price_list, whole_list, by_moments, by_distributions, by_theorems, profiles, calibrations):
        process = alone.Process(target=_show, args=(part, rounds))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
