"""Writes docs/accounting.md from docs/accounting.template.md and the numbers that are computed here.

python docs/generators/build.py
"""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined
from scipy.optimize import brentq

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    best_of_tries,
    black_box,
    gaussian,
    noisy_max,
    poisson_gaussian,
    random_allocation,
    random_stopping,
    repeat,
    shuffled_gaussian,
    step_on_shared_subsample,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson, Stopping, Tries
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_epsilon
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.lower_bounds.selection_attack import chance_to_draw_best_share
from dpsweep.accounting.pricing.calibration import calibrate_noise
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    DisjointParts,
    PoissonSelection,
    PrivateSelection,
    RandomStopping,
    Subsampled,
    Threshold,
)
from dpsweep.reports.reproduction import one_run
from dpsweep.trainers.declarations.correlated_noise import DIGITS, BandedFactorization, BandedSquareRoot
from dpsweep.trainers.declarations.lr_schedules import Constant

HERE = Path(__file__).parents[1]
DELTA = 1e-5
WORDS = {Adjacency.ADD_OR_REMOVE_ONE: "add", Adjacency.REPLACE_ONE: "replace"}
ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
PANEL = Panel(claimants=(Pld(), Rdp()))
NOISES = tuple(one_run.PRINTED)
POINTS = (1, 10, 35, 100)
GRID = one_run.GRID
BEST = 0.1
LOWER_BOUNDS = ((1e-3, 1.0, 1000, 1e-9), (0.02, 2.0, 175_000, DELTA), (0.5, 0.5, 3710, DELTA))
NEVER = "never"
ORDERS = runpy.run_path(str(HERE.parent / "benchmarks" / "selection_orders.py"))
ROUNDING = 1e-9

COLUMNS = {
    "printed": "printed",
    "RDP, Mironov": "mironov",
    "RDP": "improved",
    "PLD": "distribution",
    "classical": "classical",
    "limit (**no bound**)": "limit",
    "the grid of 35": "grid",
}
RULES: dict[str, SelectionRule] = {
    "composition": Composition(),
    "random stopping": RandomStopping(delta=DELTA),
    "threshold": Threshold(threshold=0.9, delta=DELTA),
    "private selection, eta 1": PrivateSelection(eta=1.0),
    "private selection, eta 0": PrivateSelection(eta=0.0),
    "private selection, eta -.5": PrivateSelection(eta=-0.5),
    "private selection, Poisson": PoissonSelection(),
    "best of grid": BestOfGrid(),
    "subsampled (1/10), eta 1": Subsampled(rate=0.1, rule=PrivateSelection(eta=1.0)),
}
LAWS: dict[str, Callable[[float], Tries]] = {
    "random stopping": lambda mean: Stopping(gamma=1 / mean, limit=math.ceil(30 * mean)),
    "private selection, eta 1": lambda mean: NegativeBinomial.with_mean(eta=1.0, mean=mean),
    "private selection, eta 0": lambda mean: NegativeBinomial.with_mean(eta=0.0, mean=mean),
    "private selection, eta -.5": lambda mean: NegativeBinomial.with_mean(eta=-0.5, mean=mean),
    "private selection, Poisson": lambda mean: Poisson(mean=mean),
}
EVENTS: dict[str, DpEvent] = {
    "Gaussian": gaussian(noise_multiplier=2.0),
    "Poisson-sampled Gaussian": poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0),
    "the same, truncated": truncated_poisson_gaussian(
        records=50_000, sample_rate=0.02, largest_batch=1150, noise_multiplier=2.0
    ),
    "fixed size without replacement": without_replacement_gaussian(
        records=50_000, batch_size=1000, noise_multiplier=2.0
    ),
    "cycle of Poisson samples from fixed parts": shuffled_gaussian(
        epochs=1, steps=8, noise_multiplier=2.0, sample_rate=0.16
    ),
    "random allocation": random_allocation(epochs=1, steps=50, noise_multiplier=2.0),
    "noisy maximum": noisy_max(noise_scale=2.0),
    "a claim, for neighbours of that kind": black_box(epsilon=1.0, delta=0.0, adjacency=ADD),
    "private selection, negative binomial": best_of_tries(
        gaussian(noise_multiplier=2.0), NegativeBinomial(eta=1, gamma=0.1)
    ),
    "private selection, Poisson": best_of_tries(gaussian(noise_multiplier=2.0), Poisson(mean=10.0)),
    "random stopping": random_stopping(gaussian(noise_multiplier=2.0), gamma=0.1, delta2=1e-7),
}


def _rms_error(coefficients: Sequence[float], steps: int) -> float:
    """The root mean square over the steps of the noise in the sum of all steps so far."""
    inverse = np.fft.irfft(1 / np.fft.rfft(coefficients, 2**18), 2**18)[:steps]
    return float(np.sqrt(np.cumsum(np.cumsum(inverse) ** 2).mean()))


class Numbers:
    """Every number and table of the page, computed when the template asks for it."""

    delta, grid = "1e-5", GRID

    def one_run(self) -> str:
        """The accountants on one run."""
        return _table(
            ("noise multiplier", *COLUMNS),
            (
                (row.noise_multiplier, *(_two(getattr(row, name)) for name in COLUMNS.values()))
                for row in one_run.rows_comparing_accountants_by_noise()
            ),
        )

    def events(self) -> str:
        """Which accountant has a bound for which events: a mark for add or remove, one for replace."""
        accountants = (Pld(), Rdp(), Prv())
        names: dict[tuple[str, ...], list[str]] = {}
        for name, event in EVENTS.items():
            names.setdefault(tuple(_able(accountant, event) for accountant in accountants), []).append(name)
        return _table(
            ("events", *(accountant.name for accountant in accountants)),
            (("; ".join(alike), *marks) for marks, alike in names.items()),
        )

    def lower_bounds(self) -> str:
        """What the attack and PLD prove of a few runs, beside the price."""
        return _table(
            ("sample rate", "noise", "steps", "delta", "attack: at least", "PLD: at least", "PLD: at most"),
            (
                (f"{rate:g}", f"{noise:g}", f"{steps:,}", f"{delta:g}", *map(_two_or_three, bounds))
                for rate, noise, steps, delta in LOWER_BOUNDS
                for run in (repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps),)
                for bounds in (
                    (lower_bound(run, delta, ADD), forced_epsilon(run, delta, ADD), Pld().epsilon(run, delta, ADD)),
                )
            ),
        )

    def samplers(self) -> str:
        """One run with every sampler."""
        least, *_, most = one_run.epsilon_rows_of_truncated_sampling()
        return _table(
            ("sampler", "neighbours", "accountant", *(f"noise {noise}" for noise in NOISES)),
            (
                (
                    row.sampler,
                    WORDS[row.adjacency],
                    row.method,
                    *(f"{_two(one)} ({_two(forced)})" for one, forced in zip(row.epsilons, row.forced, strict=True)),
                )
                for row in (*one_run.epsilon_rows_by_sampler(), least, most)
                if row.proven
            ),
        )

    bands, covered_noise, banded_steps, banded_epsilon, digits = 64, 2, 2048, 8, DIGITS

    def covered_weights(self) -> str:
        """The weights whose rounding the scale of the coefficients covers: the root of their number times a term's."""
        each = 2**-52 * self.bands * 32 * self.covered_noise
        return f"{(10**-DIGITS / each) ** 2:.0e}".replace("e+", "e")

    def banded(self) -> str:
        """The noise in the weights under correlated noise as a share of that under independent noise, by bands."""
        rows = [self._banded_row(bands) for bands in (1, 4, 16, 32)]
        first = rows[0][1] * rows[0][2]
        return _table(
            ("bands", "sampling rate", "noise multiplier", "error, bsr", "error, band_mf"),
            (
                (str(bands), f"{bands / 50:.2f}", f"{noise:.3f}", *(_two(noise * one / first) for one in errors))
                for bands, noise, *errors in rows
            ),
        )

    def _banded_row(self, bands: int) -> tuple[float, ...]:
        """The bands, the calibrated noise multiplier, and the two errors at noise 1."""

        def price(noise: float) -> float:
            event = shuffled_gaussian(
                epochs=self.banded_steps // bands, steps=bands, noise_multiplier=noise, sample_rate=bands / 50
            )
            return Pld().epsilon(event, DELTA, ADD)

        kinds = (kind(bands=bands) for kind in (BandedSquareRoot, BandedFactorization))
        errors = (
            _rms_error(kind.coefficients_for_run(Constant(), self.banded_steps), self.banded_steps) for kind in kinds
        )
        return bands, calibrate_noise(price, self.banded_epsilon), *errors

    def envelope(self) -> str:
        """Prices of the best of 100 expected tries at noise multiplier 2, with the strongest known attack."""
        return _table(
            ("law of K", "attack", "envelope bound", "gap", "RDP"),
            (
                (name, *self._gap(best_of_tries(_run(2.0).training, law(100.0))))
                for name, law in LAWS.items()
                if name != "random stopping"
            ),
        )

    @staticmethod
    def _gap(search: DpEvent) -> tuple[str, ...]:
        attack, price = lower_bound(search, DELTA, ADD), Pld().epsilon(search, DELTA, ADD)
        return _two(attack), _two(price), f"{price / attack - 1:.1%}", _two(Rdp().epsilon(search, DELTA, ADD))

    def outcomes(self) -> str:
        """The mechanism whose outcomes were ordered."""
        return f"a Gaussian mechanism of mu 1 that tells one of {ORDERS['OUTCOMES']} intervals"

    def orders(self) -> str:
        """The envelope bound of a fixed and a geometric K beside the best order that annealing found, and two cuts."""
        found = {line["law"]: line for line in map(json.loads, ORDERS["RESULTS"].read_text().splitlines())}
        laws = ((name, law) for name, law in ORDERS["LAWS"].items() if name.endswith("35"))
        return " ".join(self._order(name, law, found[name]["orders"]) for name, law in laws)

    @staticmethod
    def _order(name: str, law: Tries, orders: Sequence[Sequence[int]]) -> str:
        _, quarters = (float(ORDERS["forced"](np.array([order]), law)[0]) for order in orders)
        bound, cuts = ORDERS["epsilon_bound"](law), ORDERS["two_cuts"](law)
        return (
            f"For a {name.replace(',', ' K of mean')} two cuts force {cuts:.2f}, orders {quarters:.2f}, of {bound:.2f}."
        )

    def rules(self) -> str:
        """The price of K points under every rule, at noise multiplier 2."""
        return _table(
            ("rule", *(f"{points} point{'s' * (points > 1)}" for points in POINTS)),
            ((name, *(_two(_price(rule, points, 2.0)) for points in POINTS)) for name, rule in RULES.items()),
        )

    def crossing(self, name: str) -> int:
        """The number of points up to which composition costs no more than this rule, at noise multiplier 2."""
        return _crossing(RULES[name], 2.0)

    def equal_luck(self) -> str:
        """The expected tries, and their price, for a given probability to try one of the best tenth."""
        return _table(
            ("rule", "E[K] for .5", "price", "E[K] for .9", "price"),
            ((name, *self._bought(name, 0.5), *self._bought(name, 0.9)) for name in LAWS),
        )

    def adaptive(self) -> str:
        """An adaptive hidden search, and the independent tries that find good points as often."""
        ours, chance, tries, price = _adaptive(2.0)
        return (
            f"At noise multiplier 2, eta 1, {GRID} expected tries and C = 1 / c = sqrt 2 that is epsilon {ours} and "
            f"{chance} for one of the best tenth; {tries} independent tries have this probability at {price}."
        )

    def composed(self) -> str:
        """The price of the whole grid at noise multiplier 2."""
        return _two(_price(Composition(), GRID, 2.0))

    def grid_winner(self) -> str:
        """The price of the best of the whole grid at noise multiplier 2, and what an attack forces."""
        search = BestOfGrid().event([_run(2.0)] * GRID).training
        return f"{_two(_price(BestOfGrid(), GRID, 2.0))}, and the attack forces {_two(lower_bound(search, DELTA, ADD))}"

    def shared(self) -> str:
        """Epsilon of 35 trials on one subsample and on independent ones, by the Moments Accountant."""
        step = step_on_shared_subsample(sample_rate=one_run.RATE, noise_multipliers=[1.2] * GRID)
        together = Rdp().epsilon(repeat(step, one_run.STEPS), DELTA, ADD)
        apart = Rdp().epsilon(repeat(_run(1.2).training, GRID), DELTA, ADD)
        return f"{together:.0f} instead of {apart:.0f}"

    def handed_over(self) -> str:
        """The noise per example of the released model under rules that end with a run of the winner, and without."""
        totals = (2.0, 4.0, 8.0)
        share = DisjointParts().final_run.share
        ways = {
            "the final run of disjoint parts": (Composition(), 1, 1 - share),
            "private selection, eta 1": (PrivateSelection(eta=1.0), GRID, 1.0),
            "subsampled (1/10), eta 1, last run on all": (RULES["subsampled (1/10), eta 1"], GRID, 1.0),
            "composition": (Composition(), GRID, 1.0),
        }
        alone = {total: _noise_for(Composition(), 1, total) for total in totals}
        return _table(
            ("rule", *(f"epsilon {total:g}" for total in totals)),
            (
                (name, *(_two(_noise_for(rule, points, total) / records / alone[total]) for total in totals))
                for name, (rule, points, records) in ways.items()
            ),
        )

    def _bought(self, name: str, chance: float) -> tuple[str, str]:
        mean = _mean_for(LAWS[name], chance)
        if mean is None:
            return NEVER, ""
        rule = RULES[name]
        tuned = replace(rule, gamma=1 / mean) if isinstance(rule, RandomStopping) else replace(rule, mean=mean)
        return (f"{mean:.1f}" if mean < 1000 else f"{mean:.1e}"), _two(_price(tuned, GRID, 2.0))


def render() -> str:
    """The page."""
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    template = (HERE / "accounting.template.md").read_text(encoding="utf-8")
    return environment.from_string(template).render(numbers=Numbers())


def _run(noise: float) -> PlanEvent:
    step = poisson_gaussian(sample_rate=one_run.RATE, noise_multiplier=noise)
    return PlanEvent(training=repeat(step, one_run.STEPS))


@lru_cache
def _price(rule: SelectionRule, points: int, noise: float) -> float:
    return PANEL.epsilon(rule.event([_run(noise)] * points), DELTA, ADD)


@lru_cache
def _noise_for(rule: SelectionRule, points: int, total: float) -> float:
    """The noise multiplier at which a search over so many points costs this epsilon."""
    return calibrate_noise(lambda noise: _price(rule, points, noise), total, start=2.0)


def _crossing(rule: SelectionRule, noise: float) -> int:
    """The largest number of points at which composition costs no more; from there on its price grows faster."""

    def composes(points: int) -> bool:
        return _price(Composition(), points, noise) <= _price(rule, points, noise) + ROUNDING

    points = 1
    while composes(2 * points):
        points *= 2
    return next(count for count in range(2 * points - 1, points - 1, -1) if composes(count) or count == 1)


def _mean_for(law: Callable[[float], Tries], chance: float, largest: float = 1e12) -> float | None:
    """The mean at which one of the best points is tried with this probability; None if no mean is enough."""

    def excess(log_mean: float) -> float:
        return chance_to_draw_best_share(law(math.exp(log_mean)), BEST) - chance

    return math.exp(brentq(excess, 1e-9, math.log(largest))) if excess(math.log(largest)) > 0 else None


def _adaptive(ratio: float) -> tuple[str, ...]:
    """The price of an adaptive search with geometric K, its chance, and the mean and price of independent tries.

    Claim, for K of negative binomial law: the search costs at most e(delta / w) + (2 + eta) ln(C / c), with w = C c^-(1
    + eta) and e the price of independent tries from Q, the law of one try whose point is drawn from the prior.

    Proof. Let v = 1 - Q(<= y) be the probability that a try scores more than y. Whatever the earlier outputs are, a try
    of the adaptive search gives y with a density between c q(y) and C q(y), and scores more with a probability between
    c v and C v. So the winner's density at y (`selection_envelope.py`) is at most C q(y) f'(1 - c v) and at least c
    q(y) f'(1 - C v). Here f'(1 - v) is proportional to (gamma + (1 - gamma) v)^-(1 + eta), also where C v > 1: there
    this is less than f'(0). Since c <= 1 <= C, the density is at most w q(y) f'(1 - v) and at least w' q(y) f'(1 - v),
    with w' = c C^-(1 + eta). So the hockey-stick divergence of the winners at e + ln(w / w') is at most w times that of
    independent tries at e, and ln(w / w') = (2 + eta) ln(C / c). QED
    """
    eta, largest, run, independent = 1.0, math.sqrt(ratio), _run(2.0).training, LAWS["private selection, eta 1"]
    law = independent(float(GRID))
    chance = chance_to_draw_best_share(law, largest * BEST)
    equal = _mean_for(independent, chance) or math.inf
    ours = Pld().epsilon(best_of_tries(run, law), DELTA / largest ** (2 + eta), ADD) + (2 + eta) * math.log(ratio)
    price = Pld().epsilon(best_of_tries(run, independent(equal)), DELTA, ADD)
    return _two(ours), _two(chance), f"{equal:.1f}", _two(price)


def _able(accountant: Accountant, event: DpEvent) -> str:
    return " ".join(word for adjacency, word in WORDS.items() if _bounds(accountant, event, adjacency))


def _bounds(accountant: Accountant, event: DpEvent, adjacency: Adjacency) -> bool:
    try:
        return math.isfinite(accountant.epsilon(event, DELTA, adjacency))
    except UnsupportedEvent:
        return False


def _two(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:,.0f}"


def _two_or_three(value: float) -> str:
    return f"{value:.3f}" if value < 1 else _two(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


if __name__ == "__main__":
    (HERE / "accounting.md").write_text(render(), encoding="utf-8")
