"""What gives way to meet a target: noise, steps, points, or the rule itself; and the trials that come out of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsweep.accounting.accountants.interface import plan_epsilon
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, PlanEvent, flatten, gaussian, nothing
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import apart, typed
from dpsweep.accounting.pricing.calibration import calibrate_noise, largest_count
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.rule_prices import SHOWN, cheapest, price_list
from dpsweep.accounting.records.charged_events import paid_for
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.sweeper.planning.grid import Point
from dpsweep.sweeper.trial.spec import Declaration, declare
from dpsweep.trainers.methods.interface import is_noiseless

MOST_STEPS = 10**7

NOISE = "privacy.noise_multiplier"

FEW_KINDS, ROUGH_ORDERS = 16, tuple(1 + 0.1 * 1.25**power for power in range(36))
"""Up to how many kinds of step a rough price has all orders, and the orders that it has beyond."""


@dataclass(frozen=True, kw_only=True)
class SearchTerms:
    """What a plan is priced under: the rule, the accountants, the share of delta, the neighbours.

    `turns` are the points that each run may take where they are proposed one after another, `spares` the number of
    spare attempts. With `shared`, all runs have the same subsamples.
    """

    rule: SelectionRule
    panel: Panel
    delta: float
    adjacency: Adjacency
    spares: int = 0
    turns: Sequence[Sequence[int]] | None = None
    shared: bool = False

    def event(self, trials: Iterable[PlanEvent]) -> PlanEvent:
        """What a whole search over these trials does, its spare attempts included."""
        return self.rule.event(self.paid(trials))

    def paid(self, trials: Iterable[PlanEvent]) -> tuple[PlanEvent, ...]:
        """What the rule is priced over."""
        return paid_for(list(trials), spares=self.spares, turns=self.turns, shared=self.shared)

    def epsilon(self, trials: Iterable[PlanEvent]) -> float:
        """The claim for a whole search over these trials."""
        return self.panel.epsilon(self.event(trials), self.delta, self.adjacency)

    def noise(self, trials_at: Callable[[float], Iterable[PlanEvent]], epsilon: float) -> float:
        """The least noise at which a search over `trials_at(noise)` costs at most `epsilon`."""
        start = self.rough_noise(trials_at, epsilon)
        return calibrate_noise(lambda noise: self.epsilon(trials_at(noise)), epsilon, start)

    def most_steps(self, trials_after: Callable[[int], Iterable[PlanEvent]], epsilon: float) -> int:
        """The most steps after which a search costs at most `epsilon`; raises `BadInput` where not one fits."""
        try:
            start = largest_count(lambda steps: self.rough_epsilon(trials_after(steps)), epsilon, most=MOST_STEPS)
        except UnsupportedEvent:
            start = 2
        steps = largest_count(lambda steps: self.epsilon(trials_after(steps)), epsilon, most=MOST_STEPS, start=start)
        if not steps:
            least = self.epsilon(trials_after(1))
            costs, asked = apart(least, epsilon)[0], typed(epsilon)
            raise BadInput(f"Not one step fits privacy.epsilon={asked} at this noise; it costs {costs}.")
        return steps

    def rough_epsilon(self, trials: Iterable[PlanEvent]) -> float:
        """About the claim for a whole search, by Renyi curves alone, and at few orders where many kinds need one."""
        event = self.event(trials)
        many = any(len(flatten(part)) > FEW_KINDS for part in event.parts.values())
        accountant = Rdp(orders=ROUGH_ORDERS) if many else Rdp()
        return plan_epsilon(accountant, event, self.delta, Adjacency.ADD_OR_REMOVE_ONE)

    def rough_noise(self, trials_at: Callable[[float], Iterable[PlanEvent]], epsilon: float) -> float:
        """About that noise, by Renyi curves alone, which are cheap."""

        def rough(noise: float) -> float:
            return self.rough_epsilon(trials_at(noise))

        try:
            return calibrate_noise(rough, epsilon)
        except UnsupportedEvent:
            return 1.0


def cheapest_rule(
    offers: Mapping[str, SelectionRule], points: Sequence[Point], terms: SearchTerms, target: float | None, wanted: str
) -> str:
    """The offer that costs least among those that show what is wanted, at the noise that a full grid would need."""
    if wanted not in SHOWN:
        raise BadInput(f"Expected show={wanted} to be one of {', '.join(SHOWN)}.")
    able = {label: rule for label, rule in offers.items() if SHOWN[wanted] <= rule.discloses and rule.execution}
    if not able:
        raise BadInput(f"Expected one of tuning={', '.join(offers)} to run as asked and to show {wanted}.")
    declared = [declare(point.config) for point in points]
    if target is None:
        trials = training_events(declared, given_noise(points))
    else:
        noise = terms.rough_noise(lambda noise: training_events(declared, noises_at(points, noise)), target)
        trials = training_events(declared, noises_at(points, noise))
    found = cheapest(
        price_list(able, terms.paid(trials), terms.panel, delta=terms.delta, adjacency=terms.adjacency), wanted
    )
    if found is None:
        raise BadInput(f"Expected one of {', '.join(able)} to have a finite price for this search.")
    return found.label


def solve_for(
    points: list[Point], terms: SearchTerms, target: float | None, solve: str
) -> tuple[list[Point], float | None]:
    """The points with the most steps, or the most of the points, that the target pays for at the given noise."""
    if target is None or solve == "noise":
        return points, target
    noises = given_noise(points)
    if solve == "points":
        if terms.turns is not None:
            raise BadInput(
                f"Expected solve=points to be noise or steps: search.trials={len(terms.turns)} says how many runs."
            )
        trials = training_events([declare(point.config) for point in points], noises)
        fitting = largest_count(lambda count: terms.epsilon(trials[:count]), target, most=len(points))
        if not fitting:
            least = terms.epsilon(trials[:1])
            costs, asked = apart(least, target)[0], typed(target)
            raise BadInput(f"Not one point fits privacy.epsilon={asked} at this noise; it costs {costs}.")
        return points[:fitting], None

    def after(steps: int) -> list[PlanEvent]:
        return training_events([declare({**point.config, "steps": steps}) for point in points], noises)

    steps = terms.most_steps(after, target)
    return [replace(point, config={**point.config, "steps": steps}) for point in points], None


def trials_of(points: Sequence[Point], terms: SearchTerms, target: float | None) -> list[Trial]:
    """The points with their noise: the given one, or the smallest at which the whole plan meets the target."""
    declared = [declare(point.config) for point in points]
    _refuse_open_noise(points, declared, terms, target)
    if target is None:
        noises = given_noise(points)
    else:
        noise = terms.noise(lambda noise: training_events(declared, noises_at(points, noise)), target)
        noises = noises_at(points, noise)
    allowed = terms.epsilon(training_events(declared, noises)) if target is None else target
    configs = _with_score_noise(
        [_with_privacy(point.config, noise) for point, noise in zip(points, noises, strict=True)],
        terms,
        allowed,
    )
    return [
        Trial(method=point.method, axes=_closed(point.axes, noise), config=config, event=declare(config).event(noise))
        for point, config, noise in zip(points, configs, noises, strict=True)
    ]


def _closed(axes: Mapping[str, Any], noise: float) -> Mapping[str, Any]:
    """The axes with the noise in place of one that was open."""
    return {**axes, NOISE: noise} if NOISE in axes else axes


def _refuse_open_noise(
    points: Sequence[Point], declared: Sequence[Declaration], terms: SearchTerms, target: float | None
) -> None:
    """Where a rule charges nothing, no price can choose a noise."""
    open_score = any(point.config["score"].get("noise_std", 0) is None for point in points)
    event = terms.event(training_events(declared, [1.0] * len(declared)))
    if (target is not None or open_score) and not any(flatten(part) for part in event.parts.values()):
        raise BadInput(
            f"{terms.rule.name} charges nothing, so no price chooses the noise: give privacy.noise_multiplier, and "
            "score=public or score.noise_std."
        )


def open_noises(points: Sequence[Point]) -> list[float | None]:
    """Each point's own noise multiplier as it was given, None where it is open."""
    return [point.config["privacy"]["noise_multiplier"] for point in points]


def noises_at(points: Sequence[Point], noise: float) -> list[float]:
    """Each point's own noise multiplier, and this one where it is open."""
    own = iter(given_noise([point for point in points if point.config["privacy"]["noise_multiplier"] is not None]))
    return [noise if given is None else next(own) for given in open_noises(points)]


def given_noise(points: Sequence[Point]) -> list[float]:
    """Each point's own noise multiplier: above 0, unless its data were declared public."""
    return [_noise(point.config["privacy"]["noise_multiplier"], declare(point.config)) for point in points]


def _noise(value: object, declared: Declaration) -> float:
    name, trainer, public = NOISE, declared.trainer, declared.public
    if is_noiseless(trainer) and value not in (None, 0):
        raise BadInput(f"Expected {name}={value} to be left out: {trainer.label} adds none.")
    if public and value is None and not is_noiseless(trainer):
        raise BadInput(
            f"Expected {name} to be given with {trainer.label} and dataset.public=true: data declared public have no "
            "price that could choose it."
        )
    if value in (None, 0) and public:
        return 0.0
    if value == 0:
        raise BadInput(
            f"Expected {name}=0 > 0: without noise nobody is protected, which only data that you declare public allow "
            "(dataset.public=true)."
        )
    return positive(name, value)


def training_events(declared: Sequence[Declaration], noises: Sequence[float]) -> list[PlanEvent]:
    """The training events alone; equal declarations share one."""
    made: dict[tuple[object, ...], DpEvent] = {}
    trials = []
    for one, noise in zip(declared, noises, strict=True):
        key = (one.sampler, one.train_records, one.bounds, one.steps, noise)
        if key not in made:
            made[key] = one.training(noise)
        trials.append(PlanEvent(training=made[key]))
    return trials


def _with_privacy(config: Mapping[str, Any], noise: float) -> dict[str, Any]:
    """A trial's final configuration: the noise that it runs with, not the target that the noise came from."""
    kept = {key: config["privacy"][key] for key in ("adjacency", "unit")}
    return {**config, "privacy": {**kept, "noise_multiplier": noise}}


def _with_score_noise(configs: list[dict[str, Any]], terms: SearchTerms, allowed: float) -> list[dict[str, Any]]:
    """Fills in the scores' noise where it is open: the least that costs the held-out records at most `allowed`.

    Training and held-out records are disjoint, so up to there the scores add nothing to the price of the plan.
    """
    if all(config["score"].get("noise_std", 0) is not None for config in configs):
        return configs

    def scored(noise: float) -> list[PlanEvent]:
        return [PlanEvent(training=nothing(), validation=gaussian(noise_multiplier=noise))] * len(configs)

    noise = replace(terms, shared=False).noise(scored, allowed)
    return [{**config, "score": {**config["score"], "noise_std": noise}} for config in configs]


def positive(name: str, value: object) -> float:
    """A number above 0 and finite, or one sentence that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(f"Expected {name}={value!r} to be a number.")
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"Expected {name}={value} > 0 and finite.")
    return float(value)
