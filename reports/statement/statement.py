"""The privacy statement: what a sweep's epsilon claims, what it relies on, and what it does not cover.

Each line has an evidence level: *checked* against the records of the sweep, *assumed* because no program can
check it, *stated* for a definition, *violated* where the records contradict it. A page with a violated line is
not a private release. A rehearsal contradicts every claim. Data declared public are protected by nothing: they have
lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpsweep.accounting.cautions import cautions, epsilon_in_words, left_out_records_sentence
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import agreement, delta_up, epsilon_down, epsilon_up, population
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.rehearsal import is_rehearsal, subject_of
from dpsweep.accounting.stored_names.stored_classes import class_name
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.facts import Bill
from dpsweep.reports.content.formatting import (
    axis_label,
    count_text,
    enumeration_text,
    method_label,
    number,
    points_in_words,
)
from dpsweep.reports.content.sweep_table import NEXT_TOKEN_ACCURACY, Conduct
from dpsweep.reports.content.trial_config import UserScript, declared_by
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line
from dpsweep.reports.statement.what_ran import (
    ASSUMED_PREDICTIONS,
    REPORTED,
    as_reported,
    base_models,
    charges_line,
    final_run,
    floating_point,
    frozen_features,
    randomness,
    randomness_of_script,
    rounding_of_script,
    sampling_line,
    script_line,
    started_from,
)

_FORCED = (
    "No accountant can claim less than {epsilon}: an explicit attack on this search (an aligned canary among records "
    "that contribute nothing, the worst possible score) proves this lower bound."
)

LUCK = (
    "Each interval is for one score. The best of many scores is partly luck: a new score of the same model tends to be "
    "lower."
)


def write_statement(context: Context) -> tuple[Line, ...]:
    """All lines, the claim first."""
    warnings = cautions_of(context.sweep.plan, context.bill)
    return (
        _claim(context),
        *([EvidenceLevel.STATED.line("Meaning", " ".join(warnings))] if warnings else []),
        _unit(context),
        charges_line(context),
        *searched_elsewhere(context),
        *final_run(context),
        *script_line(context),
        as_reported(context, sampling_line(context), REPORTED),
        *frozen_features(context),
        *base_models(context),
        _accountants(context),
        as_reported(context, _scores(context), ASSUMED_PREDICTIONS),
        randomness_of_script(context) or randomness(context),
        rounding_of_script(context) or floating_point(context),
        _covered_line(context),
        _not_covered(context),
        EvidenceLevel.ASSUMED.line(
            "Trust",
            "The curator holds the data and the sweep's folder and is trusted with both; readers are not trusted.",
        ),
    )


def searched_elsewhere(context: Context) -> Iterator[Line]:
    """The line on a search that read public data, which no record of this data set can prove."""
    if (assumption := context.sweep.rule.assumption) is not None:
        yield EvidenceLevel.ASSUMED.line("Search", assumption)


def _claim(context: Context) -> Line:
    facts, unit = context.facts, context.sweep.plan.unit
    charges = [
        f"Charge of epsilon {epsilon_up(charge.epsilon)} at delta {delta_up(charge.delta)} for "
        f"{context.sweep.shown.charge.format(runs=count_text(charge.attempts, 'run'))}, by {charge.facts.claimed_by}."
        for charge in context.bill.charges
    ]
    return EvidenceLevel.CHECKED.line(
        "Claim",
        f"The release of this search satisfies ({facts['honest_epsilon'].text}, "
        f"{facts['honest_delta'].text})-differential privacy for each {unit}. "
        "The choice of the best configuration is included.",
        *context.curator(*charges),
        "Charges add up (Dwork and Roth 2014, Theorem 3.16).",
    )


def cautions_of(plan: Plan, bill: Bill) -> tuple[str, ...]:
    """Warnings about a large epsilon or delta; empty for small ones and for data declared public."""
    if plan.public:
        return ()
    if bill.units is None:
        return tuple(filter(None, (epsilon_in_words(bill.epsilon, plan.unit),)))
    return cautions(bill.epsilon, bill.delta, bill.units, plan.unit, bill.accepted_delta)


def _unit(context: Context) -> Line:
    unit = context.sweep.plan.unit
    dataset = context.sweep.plan.trials[0].config["dataset"]
    caution, left_out = declared_by(dataset, "caution"), left_out_records_sentence(dataset)
    neighbours = {
        Adjacency.ADD_OR_REMOVE_ONE: f"one {unit} is added or removed",
        Adjacency.REPLACE_ONE: f"one {unit} is replaced by any other",
    }[context.sweep.plan.adjacency]
    texts = (f"The unit is one {unit}; two data sets are neighbours when {neighbours}.", left_out, caution)
    note = f"Each {unit} has at most the declared number of records; they are protected together."
    if unit == "record":
        note = f"A person with several {unit}s in the data is protected less."
    return EvidenceLevel.STATED.line(
        "Unit and neighbours",
        " ".join(filter(None, texts)),
        note,
    )


def _accountants(context: Context) -> Line:
    """The accountants' bounds on each population, which are checked where each has two."""
    charges, unit = context.bill.charges, context.sweep.plan.unit
    every = [charge.facts.bounds_by_part for charge in charges]
    totals = {
        part: {
            name: sum(one[part][name] for one in every)
            for name in first
            if all(name in one.get(part, {}) for one in every)
        }
        for part, first in every[0].items()
    }
    refusals = [f"{name}: {reason}" for charge in charges for name, reason in charge.facts.refusals.items()]
    claimants = enumeration_text(sorted({charge.facts.claimed_by for charge in charges}))
    attack = max(charge.facts.attack for charge in charges)
    lower_bound = [_FORCED.format(epsilon=epsilon_down(attack))] if attack > 0 else []
    alone = [f"{population(part)} {unit}s" for part, bounds in totals.items() if len(bounds) < 2]
    if len(alone) == len(totals):
        return EvidenceLevel.ASSUMED.line(
            "Accountants",
            f"The claim is by {claimants} alone; no second accountant cross-checks it.",
            *lower_bound,
            *dict.fromkeys(refusals),
        )
    bounds = [f"the {population(part)} {unit}s: {agreement(one)}." for part, one in totals.items()]
    unchecked = f" No second accountant cross-checks the price of the {enumeration_text(alone)}." if alone else ""
    return Line(
        topic="Accountants",
        text=f"Upper bounds on {' On '.join(bounds)} The claim is by {claimants}.{unchecked}",
        level=EvidenceLevel.ASSUMED if alone else EvidenceLevel.CHECKED,
        evidence=(
            "All are upper bounds, so the smallest one is valid. RDP tracks moments of the privacy loss, and its "
            "conversion to epsilon is not tight; PLD and PRV track the whole distribution of the privacy loss.",
            *context.sweep.shown.bounds,
            *lower_bound,
            *dict.fromkeys(refusals),
        ),
    )


def _scores(context: Context) -> Line:
    unit, facts, quality = context.sweep.plan.unit, context.facts, context.sweep.quality
    plain = quality == notation.ACCURACY
    values = quality if quality == NEXT_TOKEN_ACCURACY else f"max(0, {quality})"
    scores = "Accuracies" if plain else f"Scores, means of {values},"
    sums = "counts of right and wrong predictions" if plain else "sums of these values and of 1 minus these values"
    if context.sweep.metric != notation.ACCURACY:
        scores, sums = f"Scores, each the {quality},", _noisy_counts_text(context.sweep.plan.trials[0].config)
    if not context.sweep.scored_privately:
        return EvidenceLevel.ASSUMED.line(
            "Scores",
            f"{scores} are exact, on a test set declared public: they are not charged, and its records are not "
            "protected.",
            "Intervals are at 95 % and cover the finite number of test records.",
            LUCK,
        )
    parts = {
        name: sum(charge.facts.parts.get(name, 0.0) for charge in context.bill.charges)
        for name in dict.fromkeys(name for charge in context.bill.charges for name in charge.facts.parts)
    }
    shares = [f"Price of the {name} {unit}s: epsilon {epsilon_up(share)}." for name, share in parts.items()]
    if (comparison := context.sweep.rule.comparison) is not None:
        return EvidenceLevel.CHECKED.line(
            "Scores",
            f"The runs are chosen by {comparison.format(unit=unit)}. The best is named; no score may be shown, "
            f"and the held-out {unit}s pay for one comparison, whatever the number of runs.",
            f"Training and held-out {unit}s are disjoint: the price is the larger of the two.",
            *shares,
        )
    std = facts["counts_std"].text if "counts_std" in facts else "the declared"
    return EvidenceLevel.CHECKED.line(
        "Scores",
        f"{scores} come from noisy {sums} on held-out private {unit}s, "
        f"each with Gaussian noise of standard deviation {std}, and are charged. Intervals are at 95 %.",
        f"Training and held-out {unit}s are disjoint: the price is the larger of the two, not their sum.",
        *(
            ("The parts of the final run are disjoint from those of the search too.",)
            if "final_epsilon" in facts
            else ()
        ),
        *shares,
        LUCK,
    )


def _noisy_counts_text(config: Mapping[str, Any]) -> str:
    """The noisy counts that a metric is computed from."""
    if config["score"]["metric"] == "auroc":
        bins = config["score"].get("bins", 20)
        return (
            f"counts of both classes in {bins} bins of the predicted probability (the interval covers binning error),"
        )
    return "confusion counts"


def _covered_line(context: Context) -> Line:
    sweep = context.sweep
    methods = [method_label(method) for method in dict.fromkeys(trial.method for trial in sweep.plan.trials)]
    keys = list(dict.fromkeys(axis_label(key) for key in sweep.axes))
    over = f" over {enumeration_text(keys)}" if keys else ""
    return EvidenceLevel.STATED.line(
        "Covered",
        f"The choice among {points_in_words(sweep.plan, methods, over)}.",
        "Runs that failed, diverged or were killed are charged like the others.",
        "The outputs of a crashed run are charged: steps that ran twice are charged twice, with new noise.",
        *sweep.shown.covered,
    )


def _not_covered(context: Context) -> Line:
    others = context.bill.others
    elsewhere = "Other sweeps of the same data: each has its own price, and prices add up."
    if context.audience is Audience.CURATOR and others[0] > 0:
        elsewhere = (
            f"Other sweeps on this account: they cost epsilon {epsilon_up(others[0])} at delta "
            f"{delta_up(others[1])}; the total of the account is epsilon {epsilon_up(context.bill.reserved[0])}."
        )
    models = list(dict.fromkeys(_architecture(trial.config) for trial in context.sweep.plan.trials))
    return EvidenceLevel.ASSUMED.line(
        "Not covered",
        "The choice of the architecture and of the grid, preprocessing, other uses of the same data, and timing.",
        f"The architecture ({enumeration_text(models)}) and the grid, if they were chosen after looking at the data.",
        "Preprocessing by constants that were computed from the data.",
        *started_from(context),
        elsewhere,
        "The time that a run takes, and whether it fails, are assumed not to depend on any record.",
        *context.sweep.shown.not_covered,
    )


def _architecture(config: Mapping[str, Any]) -> str:
    """The name of the model, or of the script that makes it."""
    script, model = UserScript.of(config), config.get("model")
    if script is not None:
        return script.name
    return class_name(model) if isinstance(model, Mapping) else str(model)


def rehearsal_line(context: Context) -> Iterator[Line]:
    """The line that nothing here is about the data set; none for a sweep."""
    plan = context.sweep.plan
    if is_rehearsal(plan):
        yield EvidenceLevel.VIOLATED.line(
            "Rehearsal",
            f"A REHEARSAL on generated records: no record of {subject_of(plan)} was read and none of its budget "
            "was charged. No number here is about it, and nothing of this may be passed on.",
        )


def statement_of(context: Context) -> tuple[Line, ...]:
    """The lines of the privacy statement; data declared public have a statement of their own."""
    lines = _of_public_data(context) if context.sweep.plan.public else write_statement(context)
    return (*rehearsal_line(context), *lines)


def protects_nobody_line(plan: Plan) -> str:
    """The sentence that data declared public are not protected, in place of a price; otherwise empty."""
    return "This search protects nobody: its data were declared public." if plan.public else ""


def _of_public_data(context: Context) -> tuple[Line, ...]:
    source = "a recorded seed" if context.sweep.reproducible else "secret entropy of the operating system"
    return (
        EvidenceLevel.STATED.line(
            "Claim",
            f"{protects_nobody_line(context.sweep.plan)} Epsilon is infinite, and nothing here may be called "
            "differentially private.",
            *context.curator(
                "The search is still charged, to an account that was opened for data declared public and for no others."
            ),
        ),
        charges_line(context),
        *script_line(context),
        _conduct(context),
        EvidenceLevel.STATED.line(
            "Scores",
            "Scores and training curves are exact: they are computed from the public records without noise.",
            "Intervals are at 95 % and cover the finite number of records.",
        ),
        EvidenceLevel.STATED.line("Randomness", f"Batches and noise come from {source}."),
        EvidenceLevel.ASSUMED.line(
            "Trust", "The curator declared that the data are public (dataset.public); no program can check this."
        ),
    )


def _conduct(context: Context) -> Line:
    steps, conducts = context.facts["steps"], set(context.sweep.all_runs["conduct"])
    noises = sorted({trial.config["privacy"]["noise_multiplier"] for trial in context.sweep.plan.trials})
    level, verdict = EvidenceLevel.CHECKED, "The runs match their declaration."
    if Conduct.OTHERWISE in conducts:
        level, verdict = EvidenceLevel.VIOLATED, "A run differs from its declaration."
    elif Conduct.UNKNOWN in conducts:
        level, verdict = EvidenceLevel.ASSUMED, "The runs match their declaration; a failed run left no report."
    counted = count_text(steps.value, "step") if isinstance(steps.value, int) else f"{steps.text} steps"
    return level.line(
        "Sampling and noise",
        f"{counted} a run, noise multiplier {enumeration_text([number(noise) for noise in noises])}. {verdict}",
    )
