"""Points to plan: every point declared and validated, duplicates dropped, the noise calibrated, the whole priced.

Pure: nothing here trains, writes, charges, or imports torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.cautions import accepts, is_large, require_small_delta
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent, to_json
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.json_files import digest
from dpsweep.accounting.notation import apart, typed
from dpsweep.accounting.pricing.panel import Panel, Quote
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.interface import Disclosure, Proposals, Search, SelectionRule, rule_from_config
from dpsweep.sweeper.planning import search_options as asked
from dpsweep.sweeper.planning.grid import Point, Request
from dpsweep.sweeper.planning.limits import amount, require_meant
from dpsweep.sweeper.planning.solve_steps import is_open, spend
from dpsweep.sweeper.planning.solver import SearchTerms, cheapest_rule, open_noises, solve_for, trials_of
from dpsweep.sweeper.trial.blocks import blocks_of
from dpsweep.sweeper.trial.spec import build, declare
from dpsweep.trainers.data.interface import nominal_units

FINAL = "final"
SOLVED = ("noise", "steps", "points")


@dataclass(frozen=True, kw_only=True)
class PricedPlan:
    """A plan with its price, and what its dearest run alone would have been quoted at: not the price of the search.

    `offers` are the other rules that could have been chosen, by the names that `tuning=` takes. `budget_given` says
    that the user typed a budget, which then must be the account's. `units` is the declared number of records, or of
    units where they have several, `accept_delta` what the user typed as `privacy.accept_delta`.
    """

    plan: Plan
    rule: SelectionRule
    panel: Panel
    quote: Quote
    single_run: Quote
    offers: Mapping[str, SelectionRule]
    units: int
    budget_given: bool = False
    accept_delta: object = None

    @property
    def events(self) -> tuple[PlanEvent, ...]:
        """What each point does."""
        return tuple(trial.event for trial in self.plan.trials)

    def require_small_delta(self) -> None:
        """Raises `BadInput` where delta is 1 / units or more and nobody accepted that; data declared public may."""
        if not self.plan.public:
            require_small_delta(self.plan.delta, self.units, self.plan.unit, self.accept_delta)

    @property
    def accepted_delta(self) -> float | None:
        """The delta of 1 / units or more that was accepted; None where it is smaller, or where nobody did."""
        accepted = accepts(self.accept_delta, self.plan.delta) and is_large(self.plan.delta, self.units)
        return self.plan.delta if accepted and not self.plan.public else None


def compose_plan(
    points: Iterable[Point],
    request: Request,
    config: DictConfig,
    offered: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> PricedPlan:
    """The plan of these points under the configuration's rule, accountants and budget.

    `offered` are the configurations of the rules that `tuning=auto` may take.
    """
    privacy, dataset, tuning, search = (_plain(config, name) for name in ("privacy", "dataset", "tuning", "search"))
    budget = read_budget(config)
    delta = amount("privacy.delta", privacy["delta"])
    if delta >= 1:
        raise BadInput(f"Expected privacy.delta={delta} < 1.")
    distinct, notes = _distinct(_repeated(points, config.repeats))
    require_meant(distinct)
    proposed = asked.proposed(search, config.repeats, distinct)
    distinct = list(asked.in_phases(distinct, proposed))
    wanted = Search(
        proposals=Proposals.ADAPTIVE if proposed else Proposals.FIXED,
        pruning="pruner" in search,
        shared=asked.shared(config),
    )
    if budget.vacuous:
        _require_no_promise(tuning, request, config.solve)
    rules = {label: _with_final(rule, config.final) for label, rule in offered.items()}
    offers = {
        label: rule_from_config(rule) for label, rule in rules.items() if asked.covers(rule_from_config(rule), wanted)
    }
    terms = SearchTerms(
        rule=Composition(),
        panel=build(_plain(config, "accountant"), "accountant"),
        delta=delta,
        adjacency=budget.adjacency,
        spares=asked.spares(config.plan.spare_attempts),
        turns=None if proposed is None else proposed.turns(open_noises(distinct)),
        shared=wanted.shared,
    )
    spending = is_open(distinct, config.solve)
    target = None if budget.vacuous else _target(privacy, distinct, request, "steps" if spending else config.solve)
    if "_target_" in tuning:
        rule = _with_final(tuning, config.final)
    elif spending:
        raise BadInput("Expected tuning=auto to be a rule by name with steps=when_budget_spent: prices follow from it.")
    else:
        rule = rules[cheapest_rule(offers, distinct, terms, target, config.show)]
        notes = (*notes, f"tuning=auto: {rule_from_config(rule).name} is the cheapest rule for show={config.show}.")
    terms = replace(terms, rule=rule_from_config(rule))
    asked.check_search(terms, wanted, search, config.score)
    if spending and target is not None:
        distinct, target = spend(distinct, terms, target), None
    distinct, target = solve_for(distinct, terms, target, config.solve)
    trials = trials_of(distinct, terms, target)
    event = terms.event(trial.event for trial in trials)
    quote = terms.panel.quote(event, delta, budget.adjacency, budget.unit)
    if spending and quote.epsilon > privacy["epsilon"]:
        raise BadInput(
            f"Expected privacy.epsilon={typed(privacy['epsilon'])} to pay for the scores as well as for the steps, got "
            f"{apart(quote.epsilon, privacy['epsilon'])[0]} at this score.noise_std."
        )
    alone = {digest({name: to_json(part) for name, part in trial.event.parts.items()}): trial.event for trial in trials}
    if len(alone) > 1 and (proposed or Disclosure.ALL_SCORES not in terms.rule.discloses):
        within = " of its phase" if proposed and proposed.phases else ""
        notes = (
            *notes,
            f"The points differ in what they cost; {terms.rule.name} charges the worst{within} at every order.",
        )
    plan = Plan(
        account=_account(dataset["name"]),
        budget=budget,
        delta=delta,
        rule=rule,
        blocks=blocks_of(trials, shared=wanted.shared),
        event=event,
        target_epsilon=target,
        proposed=asked.settled(proposed, distinct, trials),
        spares=terms.spares,
        notes=notes,
    )
    dearest = max(alone.values(), key=lambda one: terms.panel.epsilon(one, delta, budget.adjacency))
    return PricedPlan(
        plan=plan,
        rule=terms.rule,
        panel=terms.panel,
        quote=quote,
        single_run=terms.panel.quote(dearest, delta, budget.adjacency, budget.unit),
        offers=offers,
        units=nominal_units(declare(trials[0].config).dataset),
        accept_delta=privacy.get("accept_delta"),
        budget_given=not request.keys.isdisjoint({"budget.epsilon", "budget.delta"}),
    )


def read_budget(config: DictConfig) -> Guarantee:
    """The budget that the configuration declares for its data set's account."""
    budget, privacy = _plain(config, "budget"), _plain(config, "privacy")
    if privacy["adjacency"] not in list(Adjacency):
        raise BadInput(f"Expected privacy.adjacency={privacy['adjacency']!r} to be one of {', '.join(Adjacency)}.")
    column = OmegaConf.select(config, "dataset.unit_column")
    if column is None and privacy["unit"] != "record":
        raise BadInput(
            f"Expected privacy.unit={privacy['unit']!r} to be 'record': without a dataset.unit_column nothing above "
            "record level is claimed."
        )
    if column is not None and privacy["unit"] != config.dataset.unit:
        raise BadInput(f"Expected privacy.unit={privacy['unit']!r} to be dataset.unit={config.dataset.unit!r}.")
    epsilon = amount("budget.epsilon", budget["epsilon"])
    return Guarantee(
        epsilon=math.inf if config.dataset.public is True else epsilon,
        delta=amount("budget.delta", budget["delta"]),
        adjacency=Adjacency(privacy["adjacency"]),
        unit=str(privacy["unit"]),
    )


def _require_no_promise(tuning: Mapping[str, Any], request: Request, solve: object) -> None:
    """Raises `BadInput` where something is asked of data declared public that makes sense of protected ones alone."""
    for key in ("budget.epsilon", "privacy.epsilon"):
        if key in request.keys:
            raise BadInput(f"Expected {key} to be left out with dataset.public=true: nobody is promised anything.")
    if solve != "noise":
        raise BadInput(f"Expected solve={solve} to be noise with dataset.public=true: there is no target to meet.")
    rule = rule_from_config(tuning).name if "_target_" in tuning else "auto"
    if rule != Composition().name:
        raise BadInput(
            f"Expected tuning={rule} to be composition with dataset.public=true: there is nothing to hide or to save."
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
    for key, value in (*point.axes.items(), *_leaves(point.config)):
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"Expected {key}={value} to be finite.")
    return point.config


def _leaves(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a configuration, by their keys."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _repeated(points: Iterable[Point], repeats: object) -> Iterator[Point]:
    """Every point as often as asked, each time as a trial of its own that is paid for like any other."""
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise BadInput(f"Expected repeats={repeats!r} to be an integer >= 1.")
    for point in points:
        if repeats == 1:
            yield point
        for repeat in range(1, repeats + 1) if repeats > 1 else ():
            yield replace(point, axes={**point.axes, "repeat": repeat}, config={**point.config, "repeat": repeat})


def _with_final(rule: Mapping[str, Any], final: object) -> Mapping[str, Any]:
    """The rule, followed by one more run of the winner where `final` says so."""
    if not isinstance(final, bool):
        raise BadInput(f"Expected final={final!r} to be true or false.")
    return {"kind": FINAL, "rule": dict(rule)} if final else rule


def _target(privacy: Mapping[str, Any], points: Sequence[Point], request: Request, solve: object) -> float | None:
    """The epsilon that the whole plan may cost, None where the noise is given instead and nothing else is open."""
    if solve not in SOLVED:
        raise BadInput(f"Expected solve={solve} to be one of {', '.join(SOLVED)}.")
    given = [noise is not None for noise in open_noises(points)]
    if solve != "noise":
        if not all(given):
            raise BadInput(
                f"Expected privacy.noise_multiplier to be given: solve={solve} and steps=when_budget_spent leave it as "
                "it is."
            )
        return amount("privacy.epsilon", privacy["epsilon"])
    if all(given):
        if "privacy.epsilon" in request.keys:
            raise BadInput(
                "Expected either privacy.epsilon or privacy.noise_multiplier: one decides the other. "
                "With both, solve=steps or solve=points finds the most that fits."
            )
        return None
    return amount("privacy.epsilon", privacy["epsilon"])


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
