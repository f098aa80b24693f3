"""Points to plan: every point declared and validated, duplicates dropped, the noise calibrated, the whole priced.

Pure: nothing here trains, writes, charges, or imports torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from accounting.accountant import plan_epsilon
from accounting.calibration import calibrate_noise
from accounting.errors import BadInput
from accounting.events import DpEvent, PlanEvent, gaussian, nothing, to_json
from accounting.guarantee import Adjacency, Guarantee
from accounting.plan import Block, Plan, Trial, digest
from accounting.price import Panel, Quote
from accounting.rdp import Rdp
from accounting.selection import SelectionRule, rule_from_config
from sweeper.declaration import Declaration, build, declare
from sweeper.points import Point, Request


@dataclass(frozen=True, kw_only=True)
class PricedPlan:
    """A plan with its price, and what its dearest run alone would have been quoted at: not the price of the search."""

    plan: Plan
    rule: SelectionRule
    panel: Panel
    quote: Quote
    single_run: Quote


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a plan is priced under: the rule, the accountants, the share of delta, the neighbours."""

    rule: SelectionRule
    panel: Panel
    delta: float
    adjacency: Adjacency

    def epsilon(self, trials: Iterable[PlanEvent]) -> float:
        """The claim for a whole search over these trials."""
        return self.panel.epsilon(self.rule.event(list(trials)), self.delta, self.adjacency)

    def noise(self, trials_at: Callable[[float], Iterable[PlanEvent]], epsilon: float) -> float:
        """The least noise at which a search over `trials_at(noise)` costs at most `epsilon`.

        Renyi curves, which are cheap, say where to begin.
        """

        def rough(noise: float) -> float:
            event = self.rule.event(list(trials_at(noise)))
            return plan_epsilon(Rdp(), event, self.delta, Adjacency.ADD_OR_REMOVE_ONE)

        start = calibrate_noise(rough, epsilon)
        return calibrate_noise(lambda noise: self.epsilon(trials_at(noise)), epsilon, start)


def compose_plan(points: Iterable[Point], request: Request, config: DictConfig) -> PricedPlan:
    """The plan of these points under the configuration's rule, accountants and budget."""
    privacy, dataset, rule = (_plain(config, name) for name in ("privacy", "dataset", "tuning"))
    budget = read_budget(config)
    delta = _positive("privacy.delta", privacy["delta"])
    if delta >= 1:
        raise BadInput(f"Expected privacy.delta={delta} < 1.")
    terms = Terms(
        rule=rule_from_config(rule),
        panel=build(_plain(config, "accountant"), "accountant"),
        delta=delta,
        adjacency=budget.adjacency,
    )
    distinct, notes = _distinct(points)
    target = _target(privacy, distinct, request)
    trials = _trials(distinct, terms, target)
    event = terms.rule.event([trial.event for trial in trials])
    plan = Plan(
        account=_account(dataset["name"]),
        budget=budget,
        delta=delta,
        rule=rule,
        blocks=tuple(Block(trials=(trial,)) for trial in trials),
        event=event,
        target_epsilon=target,
        notes=notes,
    )
    alone = {digest({name: to_json(part) for name, part in trial.event.parts.items()}): trial.event for trial in trials}
    dearest = max(alone.values(), key=lambda one: terms.panel.epsilon(one, delta, budget.adjacency))
    return PricedPlan(
        plan=plan,
        rule=terms.rule,
        panel=terms.panel,
        quote=terms.panel.quote(event, delta, budget.adjacency, budget.unit),
        single_run=terms.panel.quote(dearest, delta, budget.adjacency, budget.unit),
    )


def read_budget(config: DictConfig) -> Guarantee:
    """The budget that the configuration declares for its data set's account."""
    budget, privacy = _plain(config, "budget"), _plain(config, "privacy")
    if privacy["adjacency"] not in list(Adjacency):
        raise BadInput(f"Expected privacy.adjacency={privacy['adjacency']!r} to be one of {', '.join(Adjacency)}.")
    if privacy["unit"] != "record":
        raise BadInput(
            f"Expected privacy.unit={privacy['unit']!r} to be 'record': nothing above record level is claimed."
        )
    return Guarantee(
        epsilon=_positive("budget.epsilon", budget["epsilon"]),
        delta=_positive("budget.delta", budget["delta"]),
        adjacency=Adjacency(privacy["adjacency"]),
        unit=str(privacy["unit"]),
    )


def _distinct(points: Iterable[Point]) -> tuple[list[Point], tuple[str, ...]]:
    """The points without repetitions, and a note that says how many were dropped."""
    kept: dict[str, Point] = {}
    repeated = 0
    for point in points:
        repeated += kept.setdefault(digest(_finite(point)), point) is not point
    if not kept:
        raise BadInput("Expected a grid of at least one point, got none.")
    return list(kept.values()), (f"{repeated} repeated points were dropped.",) if repeated else ()


def _finite(point: Point) -> Mapping[str, Any]:
    for key, value in point.axes.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"Expected {key}={value} to be finite.")
    return point.config


def _target(privacy: Mapping[str, Any], points: Sequence[Point], request: Request) -> float | None:
    """The epsilon that the whole plan may cost, None where the noise is given instead."""
    if any(point.config["privacy"]["noise_multiplier"] is not None for point in points):
        if "privacy.epsilon" in request.keys:
            raise BadInput("Expected either privacy.epsilon or privacy.noise_multiplier: one decides the other.")
        return None
    return _positive("privacy.epsilon", privacy["epsilon"])


def _trials(points: Sequence[Point], terms: Terms, target: float | None) -> list[Trial]:
    """The points with their noise: the given one, or the smallest at which the whole plan meets the target."""
    declared = [declare(point.config) for point in points]
    if target is None:
        noises = [
            _positive("privacy.noise_multiplier", point.config["privacy"]["noise_multiplier"]) for point in points
        ]
    else:
        noises = [terms.noise(lambda noise: _training(declared, [noise] * len(declared)), target)] * len(points)
    allowed = terms.epsilon(_training(declared, noises)) if target is None else target
    configs = _with_score_noise(
        [_with_privacy(point.config, noise) for point, noise in zip(points, noises, strict=True)],
        terms,
        allowed,
    )
    return [
        Trial(method=point.method, axes=point.axes, config=config, event=declare(config).event(noise))
        for point, config, noise in zip(points, configs, noises, strict=True)
    ]


def _training(declared: Sequence[Declaration], noises: Sequence[float]) -> list[PlanEvent]:
    """The training events alone; equal declarations share one."""
    made: dict[tuple[object, ...], DpEvent] = {}
    trials = []
    for one, noise in zip(declared, noises, strict=True):
        key = (one.sampler, one.train_records, one.steps, noise)
        if key not in made:
            made[key] = one.training(noise)
        trials.append(PlanEvent(training=made[key]))
    return trials


def _with_privacy(config: Mapping[str, Any], noise: float) -> dict[str, Any]:
    """A trial's final configuration: the noise that it runs with, not the target that the noise came from."""
    kept = {key: config["privacy"][key] for key in ("adjacency", "unit")}
    return {**config, "privacy": {**kept, "noise_multiplier": noise}}


def _with_score_noise(configs: list[dict[str, Any]], terms: Terms, allowed: float) -> list[dict[str, Any]]:
    """Fills in the scores' noise where it is open: the least that costs the held-out records at most `allowed`.

    Training and held-out records are disjoint, so up to there the scores add nothing to the price of the plan.
    """
    if all(config["score"].get("noise_std", 0) is not None for config in configs):
        return configs

    def scored(noise: float) -> list[PlanEvent]:
        return [PlanEvent(training=nothing(), validation=gaussian(noise_multiplier=noise))] * len(configs)

    noise = terms.noise(scored, allowed)
    return [{**config, "score": {**config["score"], "noise_std": noise}} for config in configs]


def _plain(config: DictConfig, name: str) -> dict[str, Any]:
    """One part of the configuration as plain values, `dataset` without what the user left open."""
    try:
        part = OmegaConf.to_container(config[name], resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as cause:
        raise BadInput(f"Expected {name} to be complete: {str(cause).splitlines()[0]}.") from cause
    if not isinstance(part, dict):
        raise BadInput(f"Expected {name}={part!r} to be a group of keys.")
    return {str(key): value for key, value in part.items()}


def _account(name: object) -> str:
    """The name of a data set's account, which is also the name of a folder."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
        raise BadInput(f"Expected dataset.name={name!r} to be of letters, digits, '_', '.' and '-'.")
    return name


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(f"Expected {name}={value!r} to be a number.")
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"Expected {name}={value} > 0 and finite.")
    return float(value)
