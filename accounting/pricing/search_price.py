"""The price of a search, from its declared runs to its trials: the one call that planning makes into accounting.

Values that the user left open are solved for in this order: the rule, the number of steps, the number of points, the
noise of training, the noise of the scores. Then the whole search is priced, and its most expensive run alone; then the
noise of a card, and the whole with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpsweep.accounting.durable_files import short_digest_of_json
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent, no_access
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.notation import demand_and_remainder_texts, text_with_all_digits
from dpsweep.accounting.pricing.calibration import calibrate_noise
from dpsweep.accounting.pricing.declared_run import DeclaredRun
from dpsweep.accounting.pricing.panel import Panel, Quote
from dpsweep.accounting.pricing.search_terms import SearchTerms
from dpsweep.accounting.pricing.solver import (
    cheapest_rule_label,
    runs_with_solved_steps,
    solve_for_steps_or_points,
    trials_with_solved_noise,
)
from dpsweep.accounting.records.card import Card
from dpsweep.accounting.records.plan import Proposed, Trial
from dpsweep.accounting.rule_words import ACCURACY, charge_of_unequal_points_text, event_of_run_alone, refusal_of_scores
from dpsweep.accounting.selection.interface import Search, SelectionRule
from dpsweep.accounting.selection.rules import Composition, rule_from_config

AUTO = "auto"
"""The tuning that chooses a rule."""


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """A search to be priced.

    `runs_under` declares the runs as a rule runs them: with final runs if it has them. `rule` is the configuration of
    the rule, None for the cheapest of those `offered` that releases the results that `show` asks for. `target` is the
    largest allowed cost of the whole, None if nothing is open. `solve` names the value that is solved for if the noise
    is given; with `steps_are_open` it is the steps of runs that have one step so far. `pruner` is the configuration's
    value for runs that end early. `card` is None for a search without a card.
    """

    runs_under: Callable[[SelectionRule], Sequence[DeclaredRun]]
    search: Search
    panel: Panel
    budget: Guarantee
    delta: float
    rule: Mapping[str, Any] | None
    offered: Mapping[str, Mapping[str, Any]]
    show: str
    target: float | None
    solve: str
    steps_are_open: bool
    proposed: Proposed | None
    pruner: object = None
    card: CardTerms | None = None


@dataclass(frozen=True, kw_only=True)
class CardTerms:
    """The card that a search is to have: `exact` if nothing protects its records, and the threshold that it uses.

    `counts` is the most noisy counts that it has, which the runs declare.
    """

    exact: bool
    threshold: float | str | None
    counts: int = 0


@dataclass(frozen=True, kw_only=True)
class PricedSearch:
    """A priced search: the rule, the trials, their joint event, its price, its card, and remarks for the user.

    `offers` makes the other rules that allow the search, by the names that `tuning=` takes. `target_epsilon` is the
    epsilon that the noise was solved for, None if the noise was given.
    """

    rule_config: Mapping[str, Any]
    rule: SelectionRule
    offers: Callable[[], Mapping[str, SelectionRule]]
    trials: Sequence[Trial]
    event: PlanEvent
    quote: Quote
    single_run: Quote
    target_epsilon: float | None
    notes: tuple[str, ...]
    card: Card | None = None


def solve_and_price_search(spec: SearchSpec) -> PricedSearch:
    """Solves for all open values and prices the whole; raises `BadInput` if there is no solution."""
    own = None if spec.rule is None else rule_from_config(spec.rule)
    runs = spec.runs_under(own or next(iter(_offered_rules(spec.offered, spec.search).values()), Composition()))
    may_need_parts = all(run.final is not None for run in runs)
    offers, target = partial(_offered_rules, spec.offered, spec.search, may_need_parts=may_need_parts), spec.target
    rule_config, notes = (
        (spec.rule, ()) if spec.rule is not None else _cheapest_rule_config_and_remark(spec, offers(), runs)
    )
    terms = _search_terms(spec, own or rule_from_config(rule_config), runs)
    _check_search_is_allowed(terms, spec)
    if spec.steps_are_open and target is not None:
        runs, target = runs_with_solved_steps(runs, terms, target), None
    runs, target = solve_for_steps_or_points(runs, terms, target, spec.solve)
    trials = trials_with_solved_noise(runs, terms, target)
    if refusal := refusal_of_scores(
        terms.rule,
        private=all(trial.event.validation is not None for trial in trials),
        metrics={str(trial.config["score"].get("metric", ACCURACY)) for trial in trials},
    ):
        raise BadInput(refusal)
    event = terms.search_event(trial.event_with_final_run for trial in trials)
    quote = terms.panel.quote(event, spec.delta, spec.budget.adjacency, spec.budget.unit)
    if spec.target is not None and quote.epsilon > spec.target:
        raise BadInput(
            f"Expected privacy.epsilon={text_with_all_digits(spec.target)} to pay for the scores as well as for the "
            "steps, got "
            f"{demand_and_remainder_texts(quote.epsilon, spec.target)[0]} at the noise that scores or their comparison "
            "have."
        )
    alone = distinct_single_run_events(trials, terms.rule)
    if len(alone) > 1 and (charged := charge_of_unequal_points_text(terms.rule, spec.search)):
        phase = " of its phase" if spec.proposed and spec.proposed.phases else ""
        notes += (f"The points differ in what they cost; {terms.rule.name} {charged.format(phase=phase)}.",)
    dearest = max(alone, key=lambda one: terms.panel.epsilon(one, spec.delta, spec.budget.adjacency))
    priced = PricedSearch(
        rule_config=rule_config,
        rule=terms.rule,
        offers=offers,
        trials=trials,
        event=event,
        quote=quote,
        single_run=terms.panel.quote(dearest, spec.delta, spec.budget.adjacency, spec.budget.unit),
        target_epsilon=target,
        notes=notes,
    )
    if spec.card is None:
        return priced
    card = replace(spec.card, counts=max((run.final or run).noisy_counts_of_card for run in runs))
    return search_priced_with_card(priced, card, panel=terms.panel, delta=spec.delta, budget=spec.budget)


def search_priced_with_card(
    search: PricedSearch, card: CardTerms, *, panel: Panel, delta: float, budget: Guarantee
) -> PricedSearch:
    """The search with its card, priced as a whole, at the least noise at which the card costs no more than the search.

    A sealed part is one more population, so up to that cost the card adds nothing. The threshold costs nothing.
    """
    adjacency = budget.adjacency

    def epsilon_at_noise(noise: float) -> float:
        query = Card(noise_std=noise, counts=card.counts).query(adjacency)
        return panel.epsilon(PlanEvent(training=query or no_access()), delta, adjacency)

    noise = 0.0 if card.exact else calibrate_noise(epsilon_at_noise, search.quote.epsilon)
    priced = Card(noise_std=noise, counts=0 if card.exact else card.counts, threshold=card.threshold)
    event = replace(search.event, sealed=priced.query(adjacency))
    return replace(search, event=event, quote=panel.quote(event, delta, adjacency, budget.unit), card=priced)


def distinct_single_run_events(trials: Iterable[Trial], rule: SelectionRule) -> Sequence[PlanEvent]:
    """The distinct events of runs alone under a rule: of the final run where a trial has one."""
    alone = (event_of_run_alone(rule, (trial.final or trial).event) for trial in trials)
    return list({short_digest_of_json(event.to_json()): event for event in alone}.values())


def is_search_covered_by_rule(rule: SelectionRule, search: Search) -> bool:
    """Whether a rule allows the search."""
    try:
        rule.check_search(search)
    except BadInput:
        return False
    return True


def _offered_rules(
    offered: Mapping[str, Mapping[str, Any]], search: Search, *, may_need_parts: bool = True
) -> dict[str, SelectionRule]:
    """The other rules that allow the search, by their names; of runs that read all records, none that needs parts."""
    rules = {label: rule_from_config(config) for label, config in offered.items()}
    return {
        label: rule
        for label, rule in rules.items()
        if is_search_covered_by_rule(rule, search) and (may_need_parts or not rule.is_search_on_part_of_records)
    }


def _cheapest_rule_config_and_remark(
    spec: SearchSpec, offers: Mapping[str, SelectionRule], runs: Sequence[DeclaredRun]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The configuration of the cheapest rule that is offered, and a remark on the choice."""
    terms = _search_terms(spec, Composition(), runs)
    label = cheapest_rule_label(offers, runs, terms, spec.target, spec.show)
    name = rule_from_config(spec.offered[label]).name
    return spec.offered[label], (f"tuning={AUTO}: {name} is the cheapest rule for show={spec.show}.",)


def _search_terms(spec: SearchSpec, rule: SelectionRule, runs: Sequence[DeclaredRun]) -> SearchTerms:
    noises = [run.noise_multiplier for run in runs]
    return SearchTerms(
        rule=rule,
        panel=spec.panel,
        delta=spec.delta,
        adjacency=spec.budget.adjacency,
        spares=spec.search.spares,
        turns=None if spec.proposed is None else spec.proposed.allowed_point_indices_per_turn(noises),
        shared=spec.search.shared,
    )


def _check_search_is_allowed(terms: SearchTerms, spec: SearchSpec) -> None:
    """Raises `BadInput` if the rule's theorem does not cover the search, or if it cannot be run that way."""
    terms.rule.check_search(spec.search)
    if spec.search.pruning:
        raise BadInput(
            f"Expected search.pruner={spec.pruner} to be left out: a run pays for all of its steps before it "
            "begins, so ending it early would save time but no privacy."
        )
    if spec.search.spares and spec.search.shared:
        raise BadInput(
            f"Expected plan.spare_attempts={spec.search.spares} to be 0 with subsample=shared: what is killed is "
            "killed for all runs at once, and another attempt at one of them would have subsamples of its own."
        )
