"""Solvers for the values that meet a target: noise, steps, points, or the rule itself; and the resulting trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent, costliest, gaussian, noisy_table, nothing
from dpsweep.accounting.notation import all_digits, demand_and_remainder
from dpsweep.accounting.pricing.calibration import calibrate_noise, largest_count
from dpsweep.accounting.pricing.declared_run import DeclaredRun, given_noises, noises_at, training_events
from dpsweep.accounting.pricing.rule_prices import SHOWN, cheapest, price_list
from dpsweep.accounting.pricing.search_terms import SearchTerms
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.selection.interface import Search, SelectionRule


def cheapest_rule(
    offers: Mapping[str, SelectionRule],
    runs: Sequence[DeclaredRun],
    terms: SearchTerms,
    target: float | None,
    results: str,
) -> str:
    """The cheapest offer among those that show the wanted results, at the noise that a full grid would need."""
    if results not in SHOWN:
        raise BadInput(f"Expected show={results} to be one of {', '.join(SHOWN)}.")
    able = {label: rule for label, rule in offers.items() if SHOWN[results] <= rule.discloses and rule.kind(Search())}
    if not able:
        raise BadInput(f"Expected one of tuning={', '.join(offers)} to run as asked and to show {results}.")
    if target is None:
        trials = training_events(runs, given_noises(runs))
    else:
        noise = terms.rough_noise(lambda noise: training_events(runs, noises_at(runs, noise)), target)
        trials = training_events(runs, noises_at(runs, noise))
    offer = cheapest(
        price_list(able, terms.paid(trials), terms.panel, delta=terms.delta, adjacency=terms.adjacency), results
    )
    if offer is None:
        raise BadInput(f"Expected one of {', '.join(able)} to have a finite price for this search.")
    return offer.label


def solve_for(
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
        fitting = largest_count(lambda count: terms.epsilon(trials[:count]), target, most=len(runs))
        if not fitting:
            least = terms.epsilon(trials[:1])
            costs, written = demand_and_remainder(least, target)[0], all_digits(target)
            raise BadInput(f"Not one point fits privacy.epsilon={written} at this noise; it costs {costs}.")
        return runs[:fitting], None

    def after(steps: int) -> list[PlanEvent]:
        return training_events([run.after(steps) for run in runs], noises)

    steps = terms.most_steps(after, target)
    return [run.after(steps) for run in runs], None


def trials_of(runs: Sequence[DeclaredRun], terms: SearchTerms, target: float | None) -> list[Trial]:
    """The trials at the given noise, or at the smallest noise at which the whole plan meets the target."""
    if target is None:
        noises = given_noises(runs)
    else:
        noise = terms.noise(
            lambda noise: training_events(runs, noises_at(runs, noise)),
            target,
            lambda noise: training_events(runs, noises_at(runs, noise), rough=True),
        )
        noises = noises_at(runs, noise)
    return _trials(runs, noises, terms, target)


def trials_at(runs: Sequence[DeclaredRun], noises: Sequence[float], terms: SearchTerms) -> list[Trial]:
    """The trials at these noise multipliers, which replace the runs' own."""
    return _trials(runs, noises, terms, None)


def _trials(
    runs: Sequence[DeclaredRun], noises: Sequence[float], terms: SearchTerms, target: float | None
) -> list[Trial]:
    allowed = terms.epsilon(training_events(runs, noises)) if target is None else target
    score_noise = _score_noise(runs, terms, allowed)
    trials = [run.trial(noise, score_noise) for run, noise in zip(runs, noises, strict=True)]
    finals = [run.final for run in runs if run.final is not None]
    if not finals:
        return trials
    if _final_alone(terms, PlanEvent(training=gaussian(noise_multiplier=1.0))).final is not None:
        noises, score_noise = _final_noises(finals, noises, terms, target, allowed)
    final_trials = [run.trial(noise, score_noise) for run, noise in zip(finals, noises, strict=True)]
    return [replace(trial, final=final) for trial, final in zip(trials, final_trials, strict=True)]


def _final_noises(
    finals: Sequence[DeclaredRun], noises: Sequence[float], terms: SearchTerms, target: float | None, allowed: float
) -> tuple[Sequence[float], float | None]:
    """The noise of final runs on records of their own, which may cost as much as the search, and of their score."""

    def noise_for(event_at: Callable[[float], PlanEvent], epsilon: float) -> float:
        return calibrate_noise(
            lambda noise: terms.panel.epsilon(_final_alone(terms, event_at(noise)), terms.delta, terms.adjacency),
            epsilon,
        )

    if target is not None:
        trained = noise_for(lambda noise: costliest(training_events(finals, noises_at(finals, noise))), target)
        noises = noises_at(finals, trained)
    if not any(run.score_is_open for run in finals):
        return noises, None
    return noises, noise_for(lambda noise: _score_event(noise, terms), allowed)


def _final_alone(terms: SearchTerms, final: PlanEvent) -> PlanEvent:
    """The event of a search that cost nothing, and of this final run."""
    return terms.rule.event([PlanEvent(training=nothing(), final=final)])


def _score_event(noise: float, terms: SearchTerms) -> PlanEvent:
    """The event of one score with noise of this standard deviation on each count."""
    return PlanEvent(training=nothing(), validation=noisy_table(noise_std=noise, adjacency=terms.adjacency))


def _score_noise(runs: Sequence[DeclaredRun], terms: SearchTerms, allowed: float) -> float | None:
    """The scores' noise if it is open: the least at which the held-out records cost at most `allowed`.

    Training and held-out records are disjoint, so up to that cost the scores add nothing to the price of the plan.
    """
    if not any(run.score_is_open for run in runs):
        return None

    def scored(noise: float) -> list[PlanEvent]:
        score = _score_event(noise, terms)
        return [score if run.final is None else replace(score, final=score) for run in runs]

    return replace(terms, rule=terms.rule.score_noise_rule, shared=False).noise(scored, allowed)
