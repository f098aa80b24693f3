"""Builds a plan from points: declares and validates each point, drops duplicates, prices all in one accounting call.

Pure: nothing here trains, writes, charges, or imports torch or Hydra.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpsweep.accounting.durable_files import short_digest_of_json
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.search_price import AUTO, CardTerms, SearchSpec, solve_and_price_search
from dpsweep.accounting.records.card import may_card_be_exact
from dpsweep.accounting.records.plan import REPEAT, Plan, Trial
from dpsweep.accounting.selection.interface import Proposals, Search
from dpsweep.accounting.selection.rules import Composition, rule_from_config
from dpsweep.accounting.stored_names.stored_classes import KIND, identity_form_of_trial_config
from dpsweep.sweeper.planning import search_options as asked
from dpsweep.sweeper.planning.cheapest_sampler import AUTO as AUTO_SAMPLER
from dpsweep.sweeper.planning.cheapest_sampler import plan_with_cheapest_sampler
from dpsweep.sweeper.planning.declared_point import DeclaredPoint, declared_point_of_trial
from dpsweep.sweeper.planning.grid import carry_learning_rate_to_final_run, points_with_final_runs
from dpsweep.sweeper.planning.plan_settings import (
    RATE,
    BudgetSettings,
    PlanSettings,
    Point,
    require_positive_number,
    require_settings_within_limits,
    require_valid_epsilon_or_delta,
)
from dpsweep.sweeper.planning.recipe import automatic_keys, points_with_recipe
from dpsweep.sweeper.planning.sealed_options import (
    AccountParts,
    compose_plan_with_unread_part,
    require_table_for_threshold,
)
from dpsweep.sweeper.planning.trained_weights import points_with_trained_weights
from dpsweep.sweeper.trial.blocks import group_points_into_blocks
from dpsweep.sweeper.trial.spec import build_object_of_config_part
from dpsweep.trainers.data.interface import nominal_units
from dpsweep.trainers.declarations.losses import default_rate_factor
from dpsweep.trainers.methods.script import is_script_config

FINAL = "final"
"""The tag of the rule that adds a final run to another one."""

SOLVED = ("noise", "steps", "points")
NEW_ACCOUNT = AccountParts()
BUDGET_KEYS = ("budget.epsilon", "budget.delta")


def compose_plan_on_account(points: Sequence[Point], settings: PlanSettings, ledger: Ledger | None) -> PricedPlan:
    """The priced plan of these points on its account in a ledger; None stands for a ledger without this account."""
    statement = None if ledger is None else ledger.statement_or_none(str(settings.account))
    return compose_plan_with_unread_part(lambda parts: compose_priced_plan(points, settings, parts), statement)


def compose_priced_plan(
    points: Iterable[Point], settings: PlanSettings, account: AccountParts = NEW_ACCOUNT
) -> PricedPlan:
    """The priced plan of these points under the settings' rule, accountants and budget; it counts their weights."""
    every = list(points_with_trained_weights(points))
    if any(map(automatic_keys, every)):
        every = list(account.terms_of_sweep(settings, every).with_parts_left_out(every))
        alone = replace(settings, looks_every=None, checkpoint_every=None, solve="noise")
        every, notes = points_with_recipe(
            every,
            require_positive_number("plan.limit", settings.limit),
            lambda releases: _compose_plan_with_samplers(releases, alone, account).plan,
        )
        priced = compose_priced_plan(every, settings, account)
        return replace(priced, plan=replace(priced.plan, notes=(*notes, *priced.plan.notes)))
    if not settings.is_sampler_open and all(point.axes.get("sampler") != AUTO_SAMPLER for point in every):
        return _compose_plan_with_samplers(every, settings, account)
    return plan_with_cheapest_sampler(
        every, settings.solve, lambda sampled: _compose_plan_with_samplers(sampled, settings, account)
    )


def _compose_plan_with_samplers(every: Sequence[Point], settings: PlanSettings, account: AccountParts) -> PricedPlan:
    """The priced plan of points whose samplers are fixed."""
    privacy, budget = settings.privacy, budget_from_settings(settings.budget)
    delta = require_valid_epsilon_or_delta("privacy.delta", privacy["delta"])
    if delta >= 1:
        raise BadInput(f"Expected privacy.delta={delta} < 1.")
    repeats = asked.repeats_per_point(settings)
    terms = account.terms_of_sweep(settings, every)
    distinct, notes = _distinct_points_and_note(_repeat_points(terms.with_parts_left_out(every), repeats))
    require_settings_within_limits(distinct)
    proposed = asked.sampler_run_count_and_phases_or_none(settings.search, repeats, distinct)
    distinct = list(asked.points_repeated_at_noise_of_each_phase(distinct, proposed))
    search = Search(
        proposals=Proposals.ADAPTIVE if proposed else Proposals.FIXED,
        pruning="pruner" in settings.search,
        shared=asked.do_points_share_subsamples(settings.subsample, settings.checkpoint_every),
        repeats=repeats,
        spares=asked.require_valid_spare_attempts(settings.spare_attempts),
        curves_every=settings.looks_every,
        scripts=any(is_script_config(point.config) for point in distinct),
    )
    panel = build_object_of_config_part(settings.accountant, "accountant")
    spending = asked.are_steps_solved_for(distinct, settings.solve)
    target = _target_epsilon(settings, budget, distinct, "steps" if spending else settings.solve)
    if spending and KIND not in settings.tuning:
        raise BadInput("Expected tuning=auto to be a rule by name with steps=when_budget_spent: prices follow from it.")
    priced = solve_and_price_search(
        SearchSpec(
            runs_under=lambda rule: _declare_points(
                points_with_final_runs(distinct, rule, with_card=terms.card),
                target,
                one_step=spending and target is not None,
            ),
            search=search,
            panel=panel,
            budget=budget,
            delta=delta,
            rule=_rule_with_final_run_if_wanted(settings.tuning, settings.final) if KIND in settings.tuning else None,
            offered=_comparable_rules(settings),
            show=settings.show,
            target=target,
            solve=settings.solve,
            steps_are_open=spending,
            proposed=proposed,
            pruner=settings.search.get("pruner"),
            card=CardTerms(exact=may_card_be_exact(terms.parts, budget), threshold=terms.threshold)
            if terms.card and terms.parts is not None
            else None,
        )
    )
    require_table_for_threshold(terms.threshold, priced.rule, priced.trials)
    automatic = {point.method for point in distinct if point.rate_factor is not None}
    trials = [
        trial if trial.method in automatic else carry_learning_rate_to_final_run(trial, priced.rule)
        for trial in priced.trials
    ]
    plan = Plan(
        account=_require_account_name(settings.account),
        budget=budget,
        delta=delta,
        rule=priced.rule_config,
        blocks=group_points_into_blocks(trials, shared=search.shared),
        event=priced.event,
        target_epsilon=priced.target_epsilon,
        proposed=asked.proposals_with_solved_noise(proposed, distinct, trials),
        spares=search.spares,
        card=priced.card,
        about=asked.require_valid_about_text(settings.about),
        notes=(
            *(*notes, *filter(None, (terms.note,)), *_default_axes_note(distinct), *_class_weights_note(priced.trials)),
            *(*_automatic_rates_note(distinct, trials), *priced.notes),
        ),
    )
    return PricedPlan(
        plan=plan,
        rule=priced.rule,
        panel=panel,
        quote=priced.quote,
        single_run=priced.single_run,
        offers=priced.offers,
        units=nominal_units(declared_point_of_trial(priced.trials[0]).declaration.dataset),
        run_of=declared_point_of_trial,
        accept_delta=privacy.get("accept_delta"),
        budget_given=not settings.keys.isdisjoint(BUDGET_KEYS),
    )


def budget_from_settings(settings: BudgetSettings) -> Guarantee:
    """The budget that the settings declare for their data set's account."""
    adjacency = settings.adjacency
    if not isinstance(adjacency, str) or adjacency not in list(Adjacency):
        raise BadInput(f"Expected privacy.adjacency={adjacency!r} to be one of {', '.join(Adjacency)}.")
    if settings.unit_column is None and settings.unit != "record":
        raise BadInput(
            f"Expected privacy.unit={settings.unit!r} to be 'record': without a dataset.unit_column nothing above "
            "record level is claimed."
        )
    if settings.unit_column is not None and settings.unit != settings.column_unit:
        raise BadInput(f"Expected privacy.unit={settings.unit!r} to be dataset.unit={settings.column_unit!r}.")
    return Guarantee(
        epsilon=math.inf if settings.public else require_valid_epsilon_or_delta("budget.epsilon", settings.epsilon),
        delta=require_valid_epsilon_or_delta("budget.delta", settings.delta),
        adjacency=Adjacency(adjacency),
        unit=str(settings.unit),
    )


def _refuse_private_settings_on_public_data(settings: PlanSettings) -> None:
    """Raises `BadInput` if the settings ask of data declared public what makes sense only for protected data."""
    for key in ("budget.epsilon", "privacy.epsilon"):
        if key in settings.keys:
            raise BadInput(f"Expected {key} to be left out with dataset.public=true: nobody is promised anything.")
    if settings.solve != "noise":
        raise BadInput(
            f"Expected solve={settings.solve} to be noise with dataset.public=true: there is no target to meet."
        )
    rule = rule_from_config(settings.tuning).name if KIND in settings.tuning else AUTO
    if rule != Composition().name:
        raise BadInput(
            f"Expected tuning={rule} to be composition with dataset.public=true: there is nothing to hide or to save."
        )


def _declare_points(points: Iterable[Point], target: float | None, *, one_step: bool) -> tuple[DeclaredPoint, ...]:
    """The points with their declarations; with `one_step`, each has one step, and planning solves for the steps."""
    first_steps = [point.with_settings(steps=1) for point in points] if one_step else points
    return tuple(DeclaredPoint.from_point(point, needs_noise=target is None) for point in first_steps)


def _distinct_points_and_note(points: Iterable[Point]) -> tuple[list[Point], tuple[str, ...]]:
    """The points without duplicates, and a note that says how many were dropped."""
    distinct: dict[str, Point] = {}
    repeated = 0
    for point in points:
        identity = short_digest_of_json(identity_form_of_trial_config(_require_finite_values(point)))
        repeated += distinct.setdefault(identity, point) is not point
    if not distinct:
        raise BadInput("Expected a grid of at least one point, got none.")
    return list(distinct.values()), (f"{repeated} repeated points were dropped.",) if repeated else ()


def _default_axes_note(points: Sequence[Point]) -> Iterator[str]:
    """A note that names the methods whose axes are not the grid's."""
    default = [point for point in points if point.default_axes and point.config.get(REPEAT, 1) == 1]
    if methods := list(dict.fromkeys(point.method for point in default)):
        ones = "its default ones" if len(methods) == 1 else "their default ones"
        plural = "s" if len(default) > 1 else ""
        yield f"The grid has no axes for {', '.join(methods)}: {ones} (trainer/axes) make {len(default)} point{plural}."


def _class_weights_note(trials: Sequence[Trial]) -> Iterator[str]:
    """A note that says what class weights do."""
    loss = declared_point_of_trial(trials[0]).declaration.loss
    if (factor := default_rate_factor(loss)) != 1:
        yield (
            "Class weights multiply bounded gradients, over the largest weight, so the price is that without them; "
            f"default learning rates are multiplied by {factor:.3g}."
        )


def _automatic_rates_note(points: Sequence[Point], trials: Sequence[Trial]) -> Iterator[str]:
    """A note that has the numbers in place of automatic learning rates."""
    methods = {point.method for point in points if point.rate_factor is not None}
    rates = {trial.config["trainer"]["lr"] for trial in trials if trial.method in methods}
    if rates:
        numbers = ", ".join(f"{one:g}" for one in sorted(rates))
        yield f"{RATE}=auto stands for {numbers} ({', '.join(sorted(methods))})."


def _require_finite_values(point: Point) -> Mapping[str, Any]:
    for key, value in (*point.axes.items(), *_leaf_values_with_keys(point.config)):
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"Expected {key}={value} to be finite.")
    return point.config


def _leaf_values_with_keys(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The leaf values of a configuration, with their dotted keys."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaf_values_with_keys(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _repeat_points(points: Iterable[Point], repeats: int) -> Iterator[Point]:
    """Every point `repeats` times, each time as a separate trial that is paid for like any other; no axis names it."""
    for point in points:
        if repeats == 1:
            yield point
        for repeat in range(1, repeats + 1) if repeats > 1 else ():
            yield point.with_settings(**{REPEAT: repeat})


def _rule_with_final_run_if_wanted(rule: Mapping[str, Any], final: object) -> Mapping[str, Any]:
    """The rule, followed by one more run of the winner if `final` is true."""
    if not isinstance(final, bool):
        raise BadInput(f"Expected final={final!r} to be true or false.")
    return {"kind": FINAL, "rule": dict(rule)} if final else rule


def _comparable_rules(settings: PlanSettings) -> dict[str, Mapping[str, Any]]:
    """The rules that may be compared; with final=true, those that a final run may follow, followed by one."""
    rules = {label: _rule_with_final_run_if_wanted(rule, settings.final) for label, rule in settings.offered.items()}
    return {label: rule for label, rule in rules.items() if not settings.final or _is_valid_rule_config(rule)}


def _is_valid_rule_config(config: Mapping[str, Any]) -> bool:
    """Whether a rule may be made of this configuration."""
    try:
        rule_from_config(config)
    except BadInput:
        return False
    return True


def _target_epsilon(settings: PlanSettings, budget: Guarantee, points: Sequence[Point], solve: str) -> float | None:
    """The epsilon that the whole plan may cost; None if the noise is given instead and nothing else is open."""
    if budget.promises_nothing:
        _refuse_private_settings_on_public_data(settings)
        return None
    if solve not in SOLVED:
        raise BadInput(f"Expected solve={solve} to be one of {', '.join(SOLVED)}.")
    are_fixed = [noise is not None for noise in asked.given_noises_or_none(points)]
    if solve != "noise":
        if not all(are_fixed):
            raise BadInput(
                f"Expected privacy.noise_multiplier to be given: solve={solve} and steps=when_budget_spent leave it as "
                "it is."
            )
        return require_valid_epsilon_or_delta("privacy.epsilon", settings.privacy["epsilon"])
    if all(are_fixed):
        if "privacy.epsilon" in settings.keys:
            raise BadInput(
                "Expected either privacy.epsilon or privacy.noise_multiplier: one decides the other. "
                "With both, solve=steps or solve=points finds the most that fits."
            )
        return None
    return require_valid_epsilon_or_delta("privacy.epsilon", settings.privacy["epsilon"])


def _require_account_name(name: object) -> str:
    """The name of a data set's account, which is also the name of a folder."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
        raise BadInput(f"Expected dataset.name={name!r} to be of letters, digits, '_', '.' and '-'.")
    return name
