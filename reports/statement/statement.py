"""The privacy statement: what a sweep's epsilon claims, what it relies on, and what it does not cover.

Each line has an evidence level: *checked* against the records of the sweep, *assumed* because no program can
check it, *stated* for a definition, *violated* where the records contradict it. A page with a violated line is
not a private release. A rehearsal contradicts every claim. Data declared public are protected by nothing: they have
lines of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpsweep.accounting.cautions import caution_sentences, left_out_records_sentence
from dpsweep.accounting.ledger.book import Charged
from dpsweep.accounting.ledger.statement import ChargeFacts, charge_facts, paid_attempts
from dpsweep.accounting.notation import (
    accountants_upper_bounds_text,
    delta_text_rounded_up,
    epsilon_text_rounded_down,
    epsilon_text_rounded_up,
    noise_text_rounded_down,
    short_population_name,
)
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.rehearsal import account_without_rehearsal_prefix, is_rehearsal_plan
from dpsweep.accounting.rule_words import compared_quantity_text
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.accounting.stored_names.stored_classes import class_name_without_module, tag_or_path_of_class
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.facts import Bill
from dpsweep.reports.content.formatting import (
    axis_label,
    count_text,
    enumeration_text,
    method_label,
    setting_text,
)
from dpsweep.reports.content.sweep_table import Conduct
from dpsweep.reports.content.told_score import card_part_text, decision_text, told_score_of_run
from dpsweep.reports.content.trial_config import UserScript, stored_dataset_attribute_or_none
from dpsweep.reports.statement.statement_line import CHANGES_BETWEEN_NEIGHBOURS, Context, EvidenceLevel, Line
from dpsweep.reports.statement.what_ran import (
    ASSUMED_PREDICTIONS,
    REPORTED,
    base_model_lines,
    final_run_lines,
    floating_point_line,
    frozen_features_line,
    line_on_whether_every_run_was_charged,
    line_weakened_to_declared_by_scripts,
    pretrained_weights_sentences,
    randomness_line,
    sampling_line,
    script_line,
    script_randomness_line,
    script_rounding_line,
)

_FORCED = "No accountant can claim less than {epsilon}: {proof} proves this lower bound."
_ATTACK = (
    "an explicit attack on this search (an aligned canary among records that contribute nothing, the worst possible "
    "score)"
)

LUCK = (
    "In tables and maps each interval is for one score. The best of many scores is partly luck: a new score of the "
    "same model tends to be worse. The winner's interval is wider, since it holds whichever run wins: the intervals of "
    "all runs that could win hold together with probability 95 %."
)


def statement_lines_of_private_data(context: Context) -> tuple[Line, ...]:
    """All lines, the claim first."""
    return (
        _claim_line(context),
        *_meaning_lines(context),
        *_data_lines(context),
        _unit_line(context),
        line_on_whether_every_run_was_charged(context),
        *line_on_search_that_read_public_data(context),
        *final_run_lines(context),
        *script_line(context),
        line_weakened_to_declared_by_scripts(context, sampling_line(context), REPORTED),
        *frozen_features_line(context),
        *base_model_lines(context),
        _accountants_line(context),
        line_weakened_to_declared_by_scripts(context, _scores_line(context), ASSUMED_PREDICTIONS),
        *_winner_lines(context),
        *_card_lines(context),
        script_randomness_line(context) or randomness_line(context),
        script_rounding_line(context) or floating_point_line(context),
        _covered_line(context),
        _not_covered_line(context),
        EvidenceLevel.ASSUMED.make_statement_line(
            "Trust",
            "The curator holds the data and the sweep's folder and is trusted with both; readers are not trusted.",
        ),
    )


def _meaning_lines(context: Context) -> Iterator[Line]:
    """What this epsilon and delta mean for one unit, and what is large about them."""
    plan, bill = context.sweep.plan, context.bill
    if not math.isinf(bill.epsilon):
        meaning = bill.meaning_for_plan(plan)
        sentences = dict.fromkeys((*meaning.sentences, *cautions_on_large_epsilon_or_delta(plan, bill)))
        odds = filter(None, (meaning.odds_sentence,))
        yield EvidenceLevel.STATED.make_statement_line("Meaning", " ".join(sentences), *odds)


def _winner_lines(context: Context) -> Iterator[Line]:
    """What is told of the winner's score, where the rule discloses it."""
    sweep = context.sweep
    disclosed = Disclosure.WINNER_SCORE in sweep.disclosures and sweep.winner_id is not None
    told = told_score_of_run(sweep, str(sweep.winner_id)) if disclosed else None
    if told is not None:
        sentences = (told.interval_sentence(sweep.score_label), told.score_sentence)
        yield EvidenceLevel.CHECKED.make_statement_line("Winner", " ".join(filter(None, sentences)))


def _card_lines(context: Context) -> Iterator[Line]:
    """What the card's numbers come from, where there is one."""
    sweep = context.sweep
    part = card_part_text(sweep)
    if sweep.card is None or sweep.plan.card is None or not part:
        return
    noise = "The numbers are exact, and no guarantee covers these records."
    if not sweep.plan.card.is_exact:
        std = noise_text_rounded_down(sweep.plan.card.noise_std_of_counts(sweep.card.number_of_tables))
        noise = f"The counts have Gaussian noise of standard deviation {std} and are part of the price."
    yield EvidenceLevel.CHECKED.make_statement_line(
        "Card",
        f"The released model was scored once on {part}. No earlier run of this account trained on these "
        f"{sweep.plan.unit}s or was chosen by them. The card's numbers come from counts of these {sweep.plan.unit}s. "
        f"{noise}",
        *(() if sweep.card.threshold is None else (f"In these counts, {decision_text(sweep.card)}.",)),
        "The account set the part aside at its first charge; the ledger gives each part to one charge.",
        "Each number has an interval at 95 % that holds for this number alone.",
    )


def line_on_search_that_read_public_data(context: Context) -> Iterator[Line]:
    """The line on a search that read public data, which no record of this data set can prove."""
    rule = context.sweep.plan.rule
    searched = rule.get("rule") or rule
    if tag_or_path_of_class(searched) == "public":
        yield EvidenceLevel.ASSUMED.make_statement_line(
            "Search",
            f"The point that ran was found by sweep {searched['sweep']} on other data, which its curator declared "
            "public: that search read no record of this data set, and none of its cost is in the claim.",
        )


def _claim_line(context: Context) -> Line:
    facts, unit = context.facts, context.sweep.plan.unit
    charges = [
        f"Epsilon {epsilon_text_rounded_up(charge.epsilon)} at delta {delta_text_rounded_up(charge.delta)} was charged "
        f"for {context.sweep.shown.charge.format(runs=count_text(paid_attempts(charge), 'run'))}, by "
        f"{charge_facts(charge).claimed_by}."
        for charge in context.bill.charges
    ]
    return EvidenceLevel.CHECKED.make_statement_line(
        "Claim",
        f"The release of this search satisfies ({facts['honest_epsilon'].text}, "
        f"{facts['honest_delta'].text})-differential privacy for each {unit}. "
        "The choice of the best configuration is included.",
        *context.evidence_if_reader_is_curator(*charges),
        "Charges add up (Dwork and Roth 2014, Theorem 3.16).",
    )


def cautions_on_large_epsilon_or_delta(plan: Plan, bill: Bill) -> tuple[str, ...]:
    """Warnings about a large epsilon or delta; empty for small ones and for data declared public."""
    if plan.has_public_data:
        return ()
    return caution_sentences(bill.meaning_for_plan(plan), bill.units, bill.accepted_delta)


def _data_lines(context: Context) -> Iterator[Line]:
    """Whose data these are, in the words of the plan."""
    if context.sweep.plan.about:
        yield EvidenceLevel.STATED.make_statement_line("Data", f"The curator states: {context.sweep.plan.about}")


def _unit_line(context: Context) -> Line:
    unit = context.sweep.plan.unit
    dataset = context.sweep.plan.trials[0].config["dataset"]
    caution, left_out = stored_dataset_attribute_or_none(dataset, "caution"), left_out_records_sentence(dataset)
    change = CHANGES_BETWEEN_NEIGHBOURS[context.sweep.plan.adjacency]
    texts = (f"The unit is one {unit}; two data sets are neighbours when one {unit} {change}.", left_out, caution)
    note = f"Each {unit} has at most the declared number of records, which are protected together."
    if unit == "record":
        note = f"A person with several {unit}s in the data is protected less."
    return EvidenceLevel.STATED.make_statement_line(
        "Unit and neighbours",
        " ".join(filter(None, texts)),
        note,
    )


def _accountants_line(context: Context) -> Line:
    """The accountants' bounds on each population, which are checked where each has two."""
    charges, unit = context.bill.charges, context.sweep.plan.unit
    every = [charge_facts(charge).bounds_by_part for charge in charges]
    totals = {
        part: {
            name: sum(one[part][name] for one in every)
            for name in first
            if all(name in one.get(part, {}) for one in every)
        }
        for part, first in every[0].items()
    }
    refusals = [f"{name}: {reason}" for charge in charges for name, reason in charge_facts(charge).refusals.items()]
    claimants = enumeration_text(sorted({charge_facts(charge).claimed_by for charge in charges}))
    lower_bound = _lower_bound_sentences([charge_facts(charge) for charge in charges])
    alone = [f"{short_population_name(part)} {unit}s" for part, bounds in totals.items() if len(bounds) < 2]
    if len(alone) == len(totals):
        return EvidenceLevel.ASSUMED.make_statement_line(
            "Accountants",
            f"The price is computed by {claimants} alone; no second accountant is compared with it.",
            *lower_bound,
            *dict.fromkeys(refusals),
        )
    parts = _charged_epsilon_by_population(charges)
    bounds = [
        f"the {short_population_name(part)} {unit}s: {accountants_upper_bounds_text(one, parts.get(part, 0.0))}."
        for part, one in totals.items()
    ]
    unchecked = f" No second accountant is compared with the price of the {enumeration_text(alone)}." if alone else ""
    return Line(
        topic="Accountants",
        text=f"Upper bounds on {' On '.join(bounds)} The price is computed by {claimants}.{unchecked}",
        level=EvidenceLevel.ASSUMED if alone else EvidenceLevel.CHECKED,
        evidence=(
            "All are upper bounds, so the smallest one is valid. RDP tracks moments of the privacy loss, and its "
            "conversion to epsilon is not tight; PLD and PRV track the whole distribution of the privacy loss.",
            *context.sweep.shown.bounds,
            *lower_bound,
            *dict.fromkeys(refusals),
        ),
    )


def _charged_epsilon_by_population(charges: Sequence[Charged]) -> dict[str, float]:
    """What all charges together cost each population."""
    names = dict.fromkeys(name for charge in charges for name in charge_facts(charge).parts)
    return {name: sum(charge_facts(charge).parts.get(name, 0.0) for charge in charges) for name in names}


def _lower_bound_sentences(charges: Sequence[ChargeFacts]) -> list[str]:
    """The largest lower bound on epsilon that is proven for a charge, with its proof, and that by the attack."""
    lower, proof = max((charge.lower, charge.lower_by) for charge in charges)
    attack = max(charge.attack for charge in charges)
    if lower > attack:
        forced = _FORCED.format(epsilon=epsilon_text_rounded_down(lower), proof=proof)
        return [forced + (f" A{_ATTACK[1:]} proves {epsilon_text_rounded_down(attack)}." if attack > 0 else "")]
    return [_FORCED.format(epsilon=epsilon_text_rounded_down(attack), proof=_ATTACK)] if attack > 0 else []


def _scores_line(context: Context) -> Line:
    unit, facts, quality = context.sweep.plan.unit, context.facts, context.sweep.score_label
    plain, scale = quality == notation.ACCURACY, context.sweep.score_scale
    values = f"the {quality}"
    if scale.quality_text:
        values = f"max(0, {scale.quality_text}) and told as the {quality} {scale.in_words}"
    scores = "Accuracies" if plain else f"Scores, means of {values},"
    sums = "counts of right and wrong predictions" if plain else "sums of these values and of 1 minus these values"
    if context.sweep.metric != notation.ACCURACY:
        scores, sums = f"Scores, each the {quality},", _noisy_counts_text(context.sweep.plan.trials[0].config)
    if not context.sweep.has_private_scores:
        return EvidenceLevel.ASSUMED.make_statement_line(
            "Scores",
            f"{scores} are exact, on a test set declared public: they are not charged, and its records are not "
            "protected.",
            "Intervals are at 95 % and cover the finite number of test records.",
            LUCK,
        )
    parts = _charged_epsilon_by_population(context.bill.charges)
    shares = [
        f"The price of the {short_population_name(name)} {unit}s is epsilon {epsilon_text_rounded_up(share)}."
        for name, share in parts.items()
    ]
    if (comparison := compared_quantity_text(context.sweep.rule)) is not None:
        return EvidenceLevel.CHECKED.make_statement_line(
            "Scores",
            f"The winner is chosen by {comparison.format(unit=unit)}. The winner is named and no score may be shown; "
            f"the price of the held-out {unit}s is that of one comparison, whatever the number of runs.",
            f"Training and held-out {unit}s are disjoint: the price is the larger of the two.",
            *shares,
        )
    std = facts["counts_std"].text if "counts_std" in facts else "the declared"
    return EvidenceLevel.CHECKED.make_statement_line(
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
        return f"counts of both classes in {bins} bins of the predicted log-odds (the interval covers binning error),"
    return "confusion counts"


def _covered_line(context: Context) -> Line:
    sweep = context.sweep
    methods = [method_label(method) for method in dict.fromkeys(trial.method for trial in sweep.plan.trials)]
    keys = list(dict.fromkeys(axis_label(key) for key in sweep.swept_keys))
    over = f" over {enumeration_text(keys)}" if keys else ""
    return EvidenceLevel.STATED.make_statement_line(
        "Covered",
        f"The choice among {sweep.shown.points_text(methods, over)}.",
        "Runs that failed, diverged or were killed are charged like the others.",
        "The outputs of a crashed run are charged: steps that ran twice are charged twice, with new noise.",
        *sweep.shown.covered,
    )


NOT_COVERED = "The choice of the architecture and of the grid, preprocessing, other uses of the same data, and timing."


def _not_covered_line(context: Context) -> Line:
    others = context.bill.others
    elsewhere = "Other sweeps of the same data: each has its own price, and prices add up."
    if context.audience is Audience.CURATOR and others[0] > 0:
        elsewhere = (
            f"Other sweeps on this account cost epsilon {epsilon_text_rounded_up(others[0])} at delta "
            f"{delta_text_rounded_up(others[1])}; the total of the account is epsilon "
            f"{epsilon_text_rounded_up(context.bill.reserved[0])}."
        )
    models = list(dict.fromkeys(_model_or_script_name(trial.config) for trial in context.sweep.plan.trials))
    return EvidenceLevel.ASSUMED.make_statement_line(
        "Not covered",
        NOT_COVERED,
        f"The architecture ({enumeration_text(models)}) and the grid, if they were chosen after looking at the data.",
        "Preprocessing by constants that were computed from the data.",
        *pretrained_weights_sentences(context),
        elsewhere,
        "The time that a run takes, and whether it fails, are assumed not to depend on any record.",
        *context.sweep.shown.not_covered,
    )


def _model_or_script_name(config: Mapping[str, Any]) -> str:
    """The name of the model, or of the script that makes it."""
    script, model = UserScript.from_trial_config(config), config.get("model")
    if script is not None:
        return script.name
    return class_name_without_module(model) if isinstance(model, Mapping) else str(model)


def rehearsal_line(context: Context) -> Iterator[Line]:
    """The line that nothing here is about the data set; none for a sweep."""
    plan = context.sweep.plan
    if is_rehearsal_plan(plan):
        yield EvidenceLevel.VIOLATED.make_statement_line(
            "Rehearsal",
            f"A REHEARSAL on generated records: no record of {account_without_rehearsal_prefix(plan)} was read, and "
            "none of its budget was charged. No number here is about that data set, and nothing here may be passed on.",
        )


def privacy_statement_lines(context: Context) -> tuple[Line, ...]:
    """The lines of the privacy statement; data declared public have a statement of their own."""
    lines = (
        _statement_lines_of_public_data(context)
        if context.sweep.plan.has_public_data
        else statement_lines_of_private_data(context)
    )
    return (*rehearsal_line(context), *lines)


def protects_nobody_sentence(plan: Plan) -> str:
    """The sentence that data declared public are not protected, in place of a price; otherwise empty."""
    return "This search protects nobody: its data were declared public." if plan.has_public_data else ""


def _statement_lines_of_public_data(context: Context) -> tuple[Line, ...]:
    source = "a recorded seed" if context.sweep.is_noise_reproducible else "secret entropy of the operating system"
    return (
        EvidenceLevel.STATED.make_statement_line(
            "Claim",
            f"{protects_nobody_sentence(context.sweep.plan)} Epsilon is infinite, and nothing here may be called "
            "differentially private.",
            *context.evidence_if_reader_is_curator(
                "The search is still charged, to an account that was opened for data declared public and for no others."
            ),
        ),
        line_on_whether_every_run_was_charged(context),
        *script_line(context),
        _training_line_of_public_data(context),
        EvidenceLevel.STATED.make_statement_line(
            "Scores",
            "Scores and training curves are exact: they are computed from the public records without noise.",
            "Intervals are at 95 % and cover the finite number of records.",
        ),
        EvidenceLevel.STATED.make_statement_line("Randomness", f"Batches and noise come from {source}."),
        EvidenceLevel.ASSUMED.make_statement_line(
            "Trust", "The curator declared that the data are public (dataset.public); no program can check this."
        ),
    )


def _training_line_of_public_data(context: Context) -> Line:
    steps, conducts = context.facts["steps"], set(context.sweep.all_run_rows["conduct"])
    noises = sorted({trial.config["privacy"]["noise_multiplier"] for trial in context.sweep.plan.trials})
    level, verdict = EvidenceLevel.CHECKED, "The runs match their declaration."
    if Conduct.OTHERWISE in conducts:
        level, verdict = EvidenceLevel.VIOLATED, "A run differs from its declaration."
    elif Conduct.UNKNOWN in conducts:
        level, verdict = EvidenceLevel.ASSUMED, "The runs match their declaration; a failed run left no report."
    counted = count_text(steps.value, "step") if isinstance(steps.value, int) else f"{steps.text} steps"
    return level.make_statement_line(
        "Sampling and noise",
        f"{counted} a run, noise multiplier {enumeration_text([setting_text(noise) for noise in noises])}. {verdict}",
    )
