"""Solvers for the values that meet a target: noise, steps, points, or the rule itself; and the resulting trials.

`steps=when_budget_spent` leaves the number of steps open if the noise and the price of the whole search are given.
All runs spend alike: the steps of each cost, alone, as much as the steps of every other one, to a few hundredths, and
the whole search costs at most privacy.epsilon, to the last step. So a method with cheaper steps takes more of them. If
a bound schedule depends on the number of steps, the price includes that.

The numbers are then part of the trials' configurations like typed ones: nothing is decided during a run, unlike in
Algorithm 1 of Yu, Zhang, Chen 2019, whose price would be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    gaussian,
    no_access,
    noisy_table,
    with_rounded_counts,
    worst_plan_event_per_population,
)
from dpsweep.accounting.notation import demand_and_remainder_texts, text_with_all_digits
from dpsweep.accounting.pricing.calibration import calibrate_noise, largest_affordable_count
from dpsweep.accounting.pricing.declared_run import DeclaredRun, given_noises, given_or_default_noises, training_events
from dpsweep.accounting.pricing.rule_prices import SHOWN, cheapest_offer_showing_results, offer_of_each_rule
from dpsweep.accounting.pricing.search_terms import MOST_STEPS, SearchTerms
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.rule_words import tells_scores
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import Composition

Kind = tuple[Hashable, float]
"""All that determines the price of a run, except its number of steps: its kind and its noise multiplier."""

LEAST = 1e-12
"""Smaller prices are raised to this one."""


def runs_with_solved_steps(runs: Sequence[DeclaredRun], terms: SearchTerms, epsilon: float) -> list[DeclaredRun]:
    """The runs with their numbers of steps; raises `BadInput` if not even one step each fits.

    Each given run has one step so far, and a noise multiplier.
    """
    noises = given_noises(runs)
    kinds: list[Kind] = [(run.training_event_key, noise) for run, noise in zip(runs, noises, strict=True)]
    ones = dict(zip(kinds, zip(runs, noises, strict=True), strict=True))
    first, *others = ones
    alone = {kind: _SingleRunPrices.from_run(*ones[kind], terms, epsilon) for kind in ones if others}

    def steps_by_kind(steps: int) -> Mapping[Kind, int]:
        """The number of steps of each kind of run, given those of the first kind."""
        return {first: steps} | {kind: alone[kind].steps_at_log_price(alone[first].log_price(steps)) for kind in others}

    def events_after_steps(steps: int) -> list[PlanEvent]:
        counts = steps_by_kind(steps)
        return training_events(runs, noises, [counts[kind] for kind in kinds])

    counts = steps_by_kind(terms.most_affordable_steps(events_after_steps, epsilon))
    return [run.with_steps(counts[kind]) for run, kind in zip(runs, kinds, strict=True)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _SingleRunPrices:
    """Log prices of runs of one kind alone, after 1, 4, 16, ... steps, by log steps; linear interpolation between."""

    counts: np.ndarray
    prices: np.ndarray

    @classmethod
    def from_run(cls, run: DeclaredRun, noise: float, terms: SearchTerms, most: float) -> _SingleRunPrices:
        """Prices up to the first one above `most`."""
        counts, prices = [1], [_single_run_price(run.training_event(noise, 1), terms)]
        while prices[-1] <= most and counts[-1] < MOST_STEPS:
            counts.append(4 * counts[-1])
            prices.append(max(prices[-1], _single_run_price(run.training_event(noise, counts[-1]), terms)))
        return cls(counts=np.log(counts), prices=np.log(prices))

    def log_price(self, steps: int) -> float:
        """The logarithm of the price of this many steps."""
        return float(np.interp(math.log(steps), self.counts, self.prices))

    def steps_at_log_price(self, price: float) -> int:
        """The number of steps with this log price, at least one."""
        return max(1, math.floor(math.exp(float(np.interp(price, self.prices, self.counts))) + 1e-9))


def _single_run_price(run: DpEvent, terms: SearchTerms) -> float:
    """The price by which runs are compared: from the distribution on a wide grid, which is quick, or Renyi curves."""
    try:
        return max(LEAST, Pld(interval=1e-3).epsilon(run, terms.delta, terms.adjacency))
    except UnsupportedEvent:
        return max(LEAST, terms.rough_epsilon([PlanEvent(training=run)]))


def cheapest_rule_label(
    offers: Mapping[str, SelectionRule],
    runs: Sequence[DeclaredRun],
    terms: SearchTerms,
    target: float | None,
    results: str,
) -> str:
    """The cheapest offer among those that show the wanted results, at the noise that a full grid would need."""
    if results not in SHOWN:
        raise BadInput(f"Expected show={results} to be one of {', '.join(SHOWN)}.")
    able = {label: rule for label, rule in offers.items() if SHOWN[results] <= rule.discloses}
    if not able:
        raise BadInput(f"Expected one of tuning={', '.join(offers)} to run as asked and to show {results}.")

    def trials_at(noise: float) -> list[PlanEvent]:
        return training_events(runs, given_or_default_noises(runs, noise))

    if target is None:
        trials = training_events(runs, given_noises(runs))
    else:
        trials = trials_at(terms.rough_noise_for_target(trials_at, target))
    priced = terms.events_to_price(trials)
    priced_rules = offer_of_each_rule(able, priced, terms.panel, delta=terms.delta, adjacency=terms.adjacency)
    offer = cheapest_offer_showing_results(priced_rules, results)
    if offer is None:
        raise BadInput(f"Expected one of {', '.join(able)} to have a finite price for this search.")
    return offer.label


def solve_for_steps_or_points(
    runs: Sequence[DeclaredRun], terms: SearchTerms, target: float | None, solve: str
) -> tuple[Sequence[DeclaredRun], float | None]:
    """The runs with the most steps, or the most of the runs, that the target pays for at the given noise."""
    if target is None or solve == "noise":
        return runs, target
    noises = given_noises(runs)
    if solve == "points":
        if terms.turns is not None:
            raise BadInput(
                f"Expected solve=points to be noise or steps: search.trials={len(terms.turns)} says how many runs."
            )
        trials = training_events(runs, noises)
        fitting = largest_affordable_count(lambda count: terms.epsilon(trials[:count]), target, most=len(runs))
        if not fitting:
            least = terms.epsilon(trials[:1])
            costs, written = demand_and_remainder_texts(least, target)[0], text_with_all_digits(target)
            raise BadInput(f"Not one point fits privacy.epsilon={written} at this noise; it costs {costs}.")
        return runs[:fitting], None

    steps = terms.most_affordable_steps(
        lambda steps: training_events([run.with_steps(steps) for run in runs], noises), target
    )
    return [run.with_steps(steps) for run in runs], None


def trials_with_solved_noise(runs: Sequence[DeclaredRun], terms: SearchTerms, target: float | None) -> list[Trial]:
    """The trials at the given noise, or at the smallest noise at which the whole plan meets the target."""
    if target is None:
        noises = given_noises(runs)
    else:
        noise = terms.least_noise_for_target(
            lambda noise: training_events(runs, given_or_default_noises(runs, noise)), target
        )
        noises = given_or_default_noises(runs, noise)
    return trials_of_runs_at_noises(runs, noises, terms, target)


def trials_of_runs_at_noises(
    runs: Sequence[DeclaredRun], noises: Sequence[float], terms: SearchTerms, target: float | None = None
) -> list[Trial]:
    """The trials at these noise multipliers, which replace the runs' own, with their final runs.

    Open noise of scores, and of final runs on records of their own, costs at most `target`, or as much as the search.
    """
    allowed = terms.epsilon(training_events(runs, noises)) if target is None else target
    score_noise = _solved_score_noise_if_open(runs, terms, allowed)
    trials = [run.trial_at_noise(noise, score_noise) for run, noise in zip(runs, noises, strict=True)]
    finals = [run.final for run in runs if run.final is not None]
    if not finals:
        return trials
    if _event_of_final_run_alone(terms, PlanEvent(training=gaussian(noise_multiplier=1.0))).final is not None:
        noises, score_noise = _final_run_noises_and_score_noise(finals, noises, terms, target, allowed)
    final_trials = [run.trial_at_noise(noise, score_noise) for run, noise in zip(finals, noises, strict=True)]
    return [replace(trial, final=final) for trial, final in zip(trials, final_trials, strict=True)]


def _final_run_noises_and_score_noise(
    finals: Sequence[DeclaredRun], noises: Sequence[float], terms: SearchTerms, target: float | None, allowed: float
) -> tuple[Sequence[float], float | None]:
    """The noise of final runs on records of their own, which may cost as much as the search, and of their score."""

    def noise_for_epsilon(event_at: Callable[[float], PlanEvent], epsilon: float) -> float:
        return calibrate_noise(
            lambda noise: terms.epsilon_of_event(_event_of_final_run_alone(terms, event_at(noise))), epsilon
        )

    if target is not None:
        trained = noise_for_epsilon(
            lambda noise: worst_plan_event_per_population(
                training_events(finals, given_or_default_noises(finals, noise))
            ),
            target,
        )
        noises = given_or_default_noises(finals, trained)
    if not any(run.is_score_noise_open for run in finals):
        return noises, None
    counts = max(run.noisy_counts_of_score for run in finals)
    return noises, noise_for_epsilon(lambda noise: _score_event(noise, counts, terms), allowed)


def _event_of_final_run_alone(terms: SearchTerms, final: PlanEvent) -> PlanEvent:
    """The event of a search that cost nothing, and of this final run."""
    return terms.rule.event([PlanEvent(training=no_access(), final=final)])


def _score_event(noise: float, counts: int, terms: SearchTerms) -> PlanEvent:
    """The event of one score of so many counts, with noise of this standard deviation on each."""
    table = noisy_table(noise_std=noise, adjacency=terms.adjacency)
    return PlanEvent(training=no_access(), validation=with_rounded_counts(table, counts))


def _solved_score_noise_if_open(runs: Sequence[DeclaredRun], terms: SearchTerms, allowed: float) -> float | None:
    """The scores' noise if it is open: the least at which the held-out records cost at most `allowed`.

    Training and held-out records are disjoint, so up to that cost the scores add nothing to the price of the plan.
    """
    if not any(run.is_score_noise_open for run in runs):
        return None
    if allowed == math.inf:
        raise BadInput("Expected a privacy.noise_multiplier at which training has a price, got epsilon inf: raise it.")

    def score_events(noise: float) -> list[PlanEvent]:
        scores = {run.noisy_counts_of_score: None for run in runs}
        by_counts = {counts: _score_event(noise, counts, terms) for counts in scores}
        every = [(run, by_counts[run.noisy_counts_of_score]) for run in runs]
        events = [score if run.final is None else replace(score, final=score) for run, score in every]
        return events if is_told else events[:1]

    is_told = tells_scores(terms.rule)  # else the comparison has noise of its own, and one score alone has to fit
    rule = terms.rule if is_told else Composition()
    return replace(terms, rule=rule, shared=False).least_noise_for_target(score_events, allowed)
