"""The privacy statement: what a sweep's epsilon claims, what it relies on, and what it does not cover.

Each line has an evidence level: *checked* against the records of the sweep, *assumed* because no program can
check it, *stated* for a definition, *violated* where the records contradict it. A page with a violated line is
not a private release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpsweep.accounting.cautions import cautions, epsilon_in_words, left_out_in_words
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.names.stored_classes import class_name
from dpsweep.accounting.notation import agreement, delta_up, epsilon_down, epsilon_up, population
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.charges import Bill, Charge
from dpsweep.reports.content.declared_data import declared_by
from dpsweep.reports.content.formatting import axis_label, count, listed, method_label, points_in_words
from dpsweep.reports.content.sweep_table import NEXT_TOKEN_ACCURACY
from dpsweep.reports.content.user_script import UserScript
from dpsweep.reports.statement.by_script import (
    ASSUMED_PREDICTIONS,
    REPORTED,
    as_reported,
    randomness_of_script,
    rounding_of_script,
    script_line,
)
from dpsweep.reports.statement.final_run import final_apart, final_run
from dpsweep.reports.statement.floating_point import floating_point
from dpsweep.reports.statement.pretrained import base_models, frozen_features, started_from
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line
from dpsweep.reports.statement.what_ran import charged, randomness, sampling

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
    return (
        _claim(context),
        *_size(context),
        _unit(context),
        charged(context),
        *searched_elsewhere(context),
        *final_run(context),
        *script_line(context),
        as_reported(context, sampling(context), REPORTED),
        *frozen_features(context),
        *base_models(context),
        _accountants(context),
        as_reported(context, _scores(context), ASSUMED_PREDICTIONS),
        randomness_of_script(context) or randomness(context),
        rounding_of_script(context) or floating_point(context),
        _covered(context),
        _not_covered(context),
        _trust(context),
    )


def searched_elsewhere(context: Context) -> Iterator[Line]:
    """The line on a search that read public data, which no record of this data set can prove."""
    if (assumption := context.sweep.rule.assumption) is not None:
        yield Line(topic="Search", text=assumption, level=EvidenceLevel.ASSUMED)


def _claim(context: Context) -> Line:
    facts, unit = context.facts, context.sweep.plan.unit
    charges = [
        f"Charge of epsilon {epsilon_up(charge.epsilon)} at delta {delta_up(charge.delta)} for "
        f"{'the search' if context.draws_in_secret else count(charge.runs, 'run')}, by {charge.claimed_by}."
        for charge in context.bill.charges
    ]
    return Line(
        topic="Claim",
        text=(
            f"The release of this search satisfies ({facts['honest_epsilon'].text}, "
            f"{facts['honest_delta'].text})-differential privacy for each {unit}. "
            "The choice of the best configuration is included."
        ),
        level=EvidenceLevel.CHECKED,
        evidence=(*context.curator(*charges), "Charges add up (Dwork and Roth 2014, Theorem 3.16)."),
    )


def cautions_of(plan: Plan, bill: Bill) -> tuple[str, ...]:
    """Warnings about a large epsilon or delta; empty for small ones and for data declared public."""
    if plan.public:
        return ()
    if bill.units is None:
        return tuple(filter(None, (epsilon_in_words(bill.epsilon, plan.unit),)))
    return cautions(bill.epsilon, bill.delta, bill.units, plan.unit, bill.accepted_delta)


def _size(context: Context) -> tuple[Line, ...]:
    """The meaning of a large epsilon or delta."""
    warnings = cautions_of(context.sweep.plan, context.bill)
    return (Line(topic="Meaning", text=" ".join(warnings), level=EvidenceLevel.STATED),) if warnings else ()


def _unit(context: Context) -> Line:
    unit = context.sweep.plan.unit
    dataset = context.sweep.plan.trials[0].config["dataset"]
    caution, left_out = declared_by(dataset, "caution"), left_out_in_words(dataset)
    neighbours = {
        Adjacency.ADD_OR_REMOVE_ONE: f"one {unit} is added or removed",
        Adjacency.REPLACE_ONE: f"one {unit} is replaced by any other",
    }[context.sweep.plan.adjacency]
    return Line(
        topic="Unit and neighbours",
        text=" ".join(
            filter(
                None, (f"The unit is one {unit}; two data sets are neighbours when {neighbours}.", left_out, caution)
            )
        ),
        level=EvidenceLevel.STATED,
        evidence=(
            (f"A person with several {unit}s in the data is protected less.",)
            if unit == "record"
            else (f"Each {unit} has at most the declared number of records; they are protected together.",)
        ),
    )


def _accountants(context: Context) -> Line:
    """The accountants' bounds on each population, which are checked where each has two."""
    charges, unit = context.bill.charges, context.sweep.plan.unit
    totals = {part: _totals(charges, part) for part in charges[0].bounds_by_part}
    refusals = [f"{name}: {reason}" for charge in charges for name, reason in charge.refusals.items()]
    claimants = listed(sorted({charge.claimed_by for charge in charges}))
    attack = max(charge.attack for charge in charges)
    lower_bound = [_FORCED.format(epsilon=epsilon_down(attack))] if attack > 0 else []
    alone = [f"{population(part)} {unit}s" for part, bounds in totals.items() if len(bounds) < 2]
    if len(alone) == len(totals):
        return Line(
            topic="Accountants",
            text=f"The claim is by {claimants} alone; no second accountant cross-checks it.",
            level=EvidenceLevel.ASSUMED,
            evidence=(*lower_bound, *dict.fromkeys(refusals)),
        )
    bounds = [f"the {population(part)} {unit}s: {agreement(one)}." for part, one in totals.items()]
    unchecked = f" No second accountant cross-checks the price of the {listed(alone)}." if alone else ""
    return Line(
        topic="Accountants",
        text=f"Upper bounds on {' On '.join(bounds)} The claim is by {claimants}.{unchecked}",
        level=EvidenceLevel.ASSUMED if alone else EvidenceLevel.CHECKED,
        evidence=(
            "All are upper bounds, so the smallest one is valid. RDP tracks moments of the privacy loss, and its "
            "conversion to epsilon is not tight; PLD and PRV track the whole distribution of the privacy loss.",
            *(
                ("RDP bounds all runs together; PLD also bounds the winner alone, which costs less.",)
                if context.draws_in_secret and _tries_each_point(context)
                else ()
            ),
            *lower_bound,
            *dict.fromkeys(refusals),
        ),
    )


def _totals(charges: Sequence[Charge], part: str) -> dict[str, float]:
    """The sums over all charges of the bounds on one population, by accountants that bound it in each."""
    bounds = [charge.bounds_by_part.get(part, {}) for charge in charges]
    return {name: sum(one[name] for one in bounds) for name in bounds[0] if all(name in one for one in bounds)}


def _scores(context: Context) -> Line:
    unit, facts, quality = context.sweep.plan.unit, context.facts, context.sweep.quality
    plain = quality == notation.ACCURACY
    values = quality if quality == NEXT_TOKEN_ACCURACY else f"max(0, {quality})"
    scores = "Accuracies" if plain else f"Scores, means of {values},"
    sums = "counts of right and wrong predictions" if plain else "sums of these values and of 1 minus these values"
    if context.sweep.metric != notation.ACCURACY:
        scores, sums = f"Scores, each the {quality},", _counted(context.sweep.plan.trials[0].config)
    if not context.sweep.scored_privately:
        return Line(
            topic="Scores",
            text=f"{scores} are exact, on a test set declared public: they are not charged, and its records are not "
            "protected.",
            level=EvidenceLevel.ASSUMED,
            evidence=(
                "Intervals are at 95 % and cover the finite number of test records.",
                LUCK,
            ),
        )
    parts = {
        name: sum(charge.parts.get(name, 0.0) for charge in context.bill.charges)
        for name in dict.fromkeys(name for charge in context.bill.charges for name in charge.parts)
    }
    shares = [f"Price of the {name} {unit}s: epsilon {epsilon_up(share)}." for name, share in parts.items()]
    if (comparison := context.sweep.rule.comparison) is not None:
        return Line(
            topic="Scores",
            text=f"The runs are chosen by {comparison.format(unit=unit)}. The best is named; no score may be shown, "
            f"and the held-out {unit}s pay for one comparison, whatever the number of runs.",
            level=EvidenceLevel.CHECKED,
            evidence=(f"Training and held-out {unit}s are disjoint: the price is the larger of the two.", *shares),
        )
    std = facts["counts_std"].text if "counts_std" in facts else "the declared"
    return Line(
        topic="Scores",
        text=(
            f"{scores} come from noisy {sums} on held-out private {unit}s, "
            f"each with Gaussian noise of standard deviation {std}, and are charged. Intervals are at 95 %."
        ),
        level=EvidenceLevel.CHECKED,
        evidence=(
            f"Training and held-out {unit}s are disjoint: the price is the larger of the two, not their sum.",
            *(
                ("The parts of the final run are disjoint from those of the search too.",)
                if final_apart(context)
                else ()
            ),
            *shares,
            LUCK,
        ),
    )


def _counted(config: Mapping[str, Any]) -> str:
    """The noisy counts that a metric is computed from."""
    if config["score"]["metric"] == "auroc":
        bins = config["score"].get("bins", 20)
        return (
            f"counts of both classes in {bins} bins of the predicted probability (the interval covers binning error),"
        )
    return "confusion counts"


def _covered(context: Context) -> Line:
    sweep = context.sweep
    methods = [method_label(method) for method in dict.fromkeys(trial.method for trial in sweep.plan.trials)]
    keys = list(dict.fromkeys(axis_label(key) for key in sweep.axes))
    over = f" over {listed(keys)}" if keys else ""
    return Line(
        topic="Covered",
        text=f"The choice among {points_in_words(sweep.plan, methods, over)}.",
        level=EvidenceLevel.STATED,
        evidence=(
            "Runs that failed, diverged or were killed are charged like the others.",
            "The outputs of a crashed run are charged: steps that ran twice are charged twice, with new noise.",
            *_repeated(context),
            *_secret(context),
            *_proposed(context),
        ),
    )


def _tries_each_point(context: Context) -> bool:
    """Whether the number of tries is public: that of the points."""
    return Disclosure.NUMBER_OF_TRIES in context.sweep.rule.discloses


def _repeated(context: Context) -> tuple[str, ...]:
    """How points with several runs are compared, and whose score is told."""
    sweep = context.sweep
    runs, average = sweep.plan.repeats, sweep.rule.average
    if sweep.rule.draws_in_secret or (runs < 2 and sweep.plan.proposed is None):
        return ()
    how = f"their {runs} runs each" if runs > 1 else "their runs, where a point was proposed several times"
    told = "" if sweep.plan.finals else " The model and its score are those of the winning point's first finished run."
    return (f"Points were compared by the {average} score of {how}.{told}",)


def _secret(context: Context) -> tuple[str, ...]:
    """The results of a hidden search that are secret."""
    if not context.draws_in_secret:
        return ()
    if Disclosure.WINNER_SCORE not in context.sweep.rule.discloses:
        return ("Every point is tried once; all scores are secret.",)
    if _tries_each_point(context):
        return ("Every point is tried once; the scores of all but the winner are secret.",)
    return ("The number of tries, their points, and the scores of all but the winner are secret.",)


def _proposed(context: Context) -> tuple[str, ...]:
    """The sampler that proposed the points, and the scores that it saw."""
    proposed = context.sweep.plan.proposed
    if proposed is None:
        return ()
    dearest_point = "the most expensive point of its phase" if proposed.phases else "the most expensive point"
    scores = "noisy scores" if context.sweep.scored_privately else "scores on public records"
    return (
        f"{proposed.sampler_name} proposed the point of each run from the {scores} of earlier runs. The number of "
        f"runs, {proposed.trials}, was fixed beforehand, and each is charged like {dearest_point} (adaptive "
        "composition, Mironov 2017, Proposition 1; Zhu, Dong, Wang 2022, Theorem 10).",
        "If a point was run several times, the maps show the mean of its runs.",
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
    return Line(
        topic="Not covered",
        text=(
            "The choice of the architecture and of the grid, preprocessing, other uses of the same data, and timing."
        ),
        level=EvidenceLevel.ASSUMED,
        evidence=(
            f"The architecture ({listed(models)}) and the grid, if they were chosen after looking at the data.",
            "Preprocessing by constants that were computed from the data.",
            *started_from(context),
            elsewhere,
            "The time that a run takes, and whether it fails, are assumed not to depend on any record.",
            *(
                ("A killed try gets the worst score; every try is assumed to be equally likely to be killed.",)
                if context.draws_in_secret
                else ()
            ),
        ),
    )


def _trust(context: Context) -> Line:
    return Line(
        topic="Trust",
        text="The curator holds the data and the sweep's folder and is trusted with both; readers are not trusted.",
        level=EvidenceLevel.ASSUMED,
    )


def _architecture(config: Mapping[str, Any]) -> str:
    """The name of the model, or of the script that makes it."""
    script = UserScript.of(config)
    return _last(config, "model") if script is None else script.name


def _last(config: Mapping[str, object], group: str) -> str:
    """The class name in a group of the configuration."""
    part = config.get(group)
    return class_name(part) if isinstance(part, Mapping) else str(part)
