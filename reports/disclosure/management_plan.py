"""The data management plan for trained models that a trusted research environment agrees on before training.

*Source*: SATRE specification 2.0.1, requirement 3.1.16: the types of models, whether and on which conditions trained
models may leave, further mitigations, and, where models are put to use, a register of use and a decommissioning plan.
It is written from the plan alone: no record is read and nothing is charged. What only people know is theirs to fill in.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import (
    accountants_upper_bounds_text,
    delta_text_rounded_up,
    epsilon_text_rounded_up,
    text_with_all_digits,
)
from dpsweep.accounting.pricing.price import NOT_PROVEN, proven_gaussian_mu
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.stored_names.stored_classes import class_name_without_module
from dpsweep.reports.content.audience import most_disclosed
from dpsweep.reports.content.formatting import count_text, enumeration_text, method_label
from dpsweep.reports.content.sections import program_version
from dpsweep.reports.content.trial_config import BaseModel, UserScript
from dpsweep.reports.statement.released_claim import DISCLOSES
from dpsweep.reports.statement.statement import NOT_COVERED, protects_nobody_sentence

SATRE = "SATRE 2.0.1"
TO_FILL_IN = "To be filled in by the project."
NEIGHBOURS = {
    Adjacency.ADD_OR_REMOVE_ONE: "with one {} more or less",
    Adjacency.REPLACE_ONE: "with one {} replaced",
}


def management_plan_text(priced: PricedPlan, folder: str) -> str:
    """The document in Markdown for a priced plan whose sweep would lie in `folder`."""
    plan = priced.plan
    sections = {
        "Data": _data_lines(priced),
        "Models that will be trained": _model_lines(priced),
        "What may leave, and on which conditions": _export_lines(priced, folder),
        "Further mitigations": (
            "`dpsweep audit` computes again what this plan would run, on generated records, before the charge.",
            f"`dpsweep verify {folder}` compares the sweep and its release with the ledger; `dpsweep check PACKAGE` "
            "recomputes the price from the released package, for whoever receives it.",
            f"Not covered by the price: {NOT_COVERED[:1].lower()}{NOT_COVERED[1:]}",
        ),
        "Register of use": (f"Where the model is used, by whom, and who reviews it: {TO_FILL_IN}",),
        "Decommissioning": (
            f"When the released model is withdrawn, and from where: {TO_FILL_IN}",
            f"When {folder} is deleted, with the weights of all runs: {TO_FILL_IN}",
            "The ledger stays: a charge is not paid back when a model is withdrawn.",
        ),
    }
    text = "".join(
        f"\n## {title}\n\n{''.join(f'- {line}{chr(10)}' for line in lines)}" for title, lines in sections.items()
    )
    return (
        f"# Data management plan for trained models: {plan.account}\n\n"
        f"To be agreed before training ({SATRE}, requirement 3.1.16). Written by dpsweep {program_version()} from the "
        f"plan {plan.id}, which has not been charged by this command.\n{text}\n"
        "## Agreed\n\n| role | name | date | signature |\n|---|---|---|---|\n"
        "| project | | | |\n| data owner | | | |\n| operator of the environment | | | |\n"
    )


def _data_lines(priced: PricedPlan) -> Iterator[str]:
    plan = priced.plan
    yield f"Data set: {plan.account}, {count_text(priced.units, plan.unit)} as declared. {plan.about}".rstrip()
    yield protects_nobody_sentence(plan) or (
        f"Each {plan.unit} is protected; neighbours are data sets {NEIGHBOURS[plan.adjacency].format(plan.unit)}."
    )


def _model_lines(priced: PricedPlan) -> Iterator[str]:
    """Each type of model with its methods, and the pretrained model that it starts from."""
    methods_by_model: dict[str, list[str]] = {}
    for trial in priced.plan.trials:
        script = UserScript.from_trial_config(trial.config)
        name = script.name if script is not None else class_name_without_module(trial.config["model"])
        methods_by_model.setdefault(name, []).append(method_label(trial.method))
    for name, methods in methods_by_model.items():
        yield f"{name}, trained by {enumeration_text([*dict.fromkeys(methods)])}: {count_text(len(methods), 'point')}."
    for base in {
        base.name: base for trial in priced.plan.trials if (base := BaseModel.from_trial_config(trial.config))
    }.values():
        yield (
            f"The models start from {base.name} ({base.licence}), which is declared public: the price does not cover "
            "the data that it was trained on."
        )
    if priced.plan.final_runs:
        yield "The winner is trained once more; the price pays for that run."


def _export_lines(priced: PricedPlan, folder: str) -> Iterator[str]:
    plan, rule, quote = priced.plan, priced.rule, priced.quote
    if plan.has_public_data:
        yield f"Without a condition of privacy: these data were declared public. {TO_FILL_IN}"
        return
    mu = proven_gaussian_mu([plan.event], plan.adjacency)
    yield (
        f"One model, the winner's, may leave, and only in what `dpsweep release {folder}` and `dpsweep export` "
        f"write. Of the search, {DISCLOSES[most_disclosed(rule.discloses)]} (rule {rule.name})."
    )
    yield (
        f"Condition: the whole search satisfies (epsilon, delta)-differential privacy with epsilon "
        f"{epsilon_text_rounded_up(quote.epsilon)} at delta {delta_text_rounded_up(plan.delta)}, an upper bound: "
        f"{accountants_upper_bounds_text(quote.bounds, quote.epsilon)}. Mu of Gaussian differential privacy, at every "
        f"delta: {NOT_PROVEN if mu is None else epsilon_text_rounded_up(mu)}."
    )
    yield " ".join(priced.meaning.sentences)
    yield (
        f"Condition: the account {plan.account} (budget: epsilon {text_with_all_digits(plan.budget.epsilon)} at "
        f"delta {text_with_all_digits(plan.budget.delta)}) has this price left. It is charged before the first "
        f"gradient; a sweep that does not fit is refused (`dpsweep budget dataset={plan.account}`)."
    )
    yield (
        "Condition: what ran is what was charged. A sweep with reproducible noise, or with a run that differs from its "
        "charge, has no release."
    )
    yield (
        f"Record: `dpsweep release {folder} --for tre` writes the criteria of the released package (3.3.07, 3.3.09), "
        "and the ledger has a line for each release."
    )
    yield f"Everything else in {folder} stays inside, with the weights of all other runs."
