"""The paragraph of a paper's methods section that describes a search and its price, with its BibTeX entries.

Every number comes from the plan, its events and the ledger, and the paragraph says no more than the public statement
does: under a rule that hides losers neither the number of tries nor anything about them. A rule, a method, a sampler
and an accountant name the works that they lean on beside their own declarations, by keys of references.bib: titles,
venues, years and pages there are those of the published versions, or of arXiv where there is none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from dpsweep.accounting.ledger.statement import charge_facts
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.accounting.rule_words import WORKS
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule
from dpsweep.accounting.stored_names.stored_classes import NESTED, fields_without_class_name, tag_or_path_of_class
from dpsweep.accounting.stored_names.tags import FAMILY_OF, class_of_tag
from dpsweep.reports.content.audience import most_disclosed
from dpsweep.reports.content.facts import is_one_run_all_that_was_charged
from dpsweep.reports.content.formatting import (
    axis_label,
    count_text,
    enumeration_text,
    method_label,
)
from dpsweep.reports.content.told_score import told_score_of_run
from dpsweep.reports.statement.statement import line_on_search_that_read_public_data
from dpsweep.reports.statement.statement_line import CHANGES_BETWEEN_NEIGHBOURS, Context
from dpsweep.reports.statement.what_ran import declared_training_text, final_run_lines

PROGRAM = "dpsweep"
RELATED_BOUNDS = ("wang2023dphypo", "talwar2025privacy", "ghazi2025private", "xiang2026revisiting")
"""Works on the price of private selection that no price of ours leans on."""

WORKS_OF_TAGS: Mapping[str, str] = {
    "opacus": "yousefpour2021opacus",
    "optuna": "akiba2019optuna",
    "linear_scaling": "panda2024linear",
}
"""By a tag, or the library before its dot, of a class that no page imports: the import may take seconds."""

_SHOWN = {
    Disclosure.ALL_SCORES: "the scores of all runs",
    Disclosure.WINNER_SCORE: "the winner and its score, and nothing about the other runs",
    Disclosure.WINNER: "the winner, and no score",
    None: "nothing",
}
"""What a price covers, by the most that a rule discloses."""

_SPECIAL = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True, kw_only=True)
class MethodsText:
    """The paragraph in LaTeX, and the works that it cites in order."""

    text: str
    works: tuple[str, ...]

    @property
    def bibtex(self) -> str:
        """The entries of all cited works."""
        return "\n\n".join(entries_of_works()[work] for work in self.works) + "\n"


@cache
def entries_of_works() -> Mapping[str, str]:
    """The BibTeX entries by key: those of references.bib, and that of this program."""
    about, works = metadata(PROGRAM), Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    note = f"Python package, version {about['Version']}"
    ours = f"@misc{{{PROGRAM},\n  title = {{{{{PROGRAM}}}: {about['Summary']}}},\n  note = {{{note}}},\n}}"
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in (ours, *works.strip().split("\n\n"))}


def works_of_class(declared: object) -> tuple[str, ...]:
    """The keys of the works that a class, or an object of it, leans on; a class of one's own may name none."""
    return tuple(key for key in getattr(declared, "works", ()) if key in entries_of_works())


def works_of_rule(rule: SelectionRule) -> tuple[str, ...]:
    """The keys of the works that a rule leans on, those on its part of the records first."""
    own, run = works_of_class(rule) or WORKS.get(type(rule).name, ()), rule.final_run
    if run is None or run.share is None:
        return own
    return ("koskela2023practical", "balle2018privacy", *own) if run.is_secret else ("mcsherry2009privacy",)


@dataclass(frozen=True)
class _Citations:
    """The keys of the works that were cited so far, in order."""

    works: dict[str, None] = field(default_factory=dict)

    def cite_works(self, *works: str) -> str:
        """A citation that follows a word; empty without works."""
        self.works.update(dict.fromkeys(works))
        return f"~\\cite{{{','.join(dict.fromkeys(works))}}}" if works else ""


def methods_text_for_paper(context: Context) -> MethodsText | None:
    """The paragraph; None for data declared public and for an infinite epsilon, for which nothing is claimed."""
    if context.sweep.plan.has_public_data or math.isinf(context.bill.epsilon):
        return None
    citations = _Citations()
    sentences = [
        *_search_sentences(context, citations),
        *_run_sentences(context, citations),
        *_price_sentences(context, citations),
    ]
    return MethodsText(text=" ".join(sentences), works=tuple(citations.works))


def escape_tex(text: str) -> str:
    """A text with LaTeX's special characters escaped, and with control and bidirectional ones as visible escapes.

    >>> escape_tex("clip_norm at 5 %")
    'clip\\\\_norm at 5 \\\\%'
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in escape_invisible_characters(text))


def tex_number(text: str) -> str:
    """A number, with its exponent as a power of ten.

    >>> tex_number("0.25"), tex_number("1e-5"), tex_number("2.5e-6")
    ('0.25', '10^{-5}', '2.5 \\\\times 10^{-6}')
    """
    parts = re.fullmatch(r"(.+)e(-?\d+)", text)
    if parts is None:
        return text
    factor = "" if parts[1] == "1" else parts[1] + r" \times "
    return f"{factor}10^{{{parts[2]}}}"


def _search_sentences(context: Context, citations: _Citations) -> Iterator[str]:
    """What was searched, by which program and rule."""
    plan = context.sweep.plan
    configs = {trial.method: trial.config.get("trainer", {}) for trial in plan.trials}
    ours = citations.cite_works(PROGRAM)
    methods = [
        escape_tex(method_label(name)) + citations.cite_works(*_works_of_class_and_fields(node, "trainer"))
        for name, node in configs.items()
    ]
    keys = [escape_tex(axis_label(key)) for key in context.sweep.swept_keys]
    over = f" over {enumeration_text(list(dict.fromkeys(keys)))}" if keys and len(plan.trials) > 1 else ""
    points = context.sweep.shown.points_text(methods, over)
    did = f"{_verb_phrase_for_points(context, citations)} {points} on {escape_tex(plan.account)}"
    yield f"We used {PROGRAM} {metadata(PROGRAM)['Version']}{ours} to {did}."
    if not is_one_run_all_that_was_charged(context.sweep, context.bill):
        shown = _SHOWN[most_disclosed(context.sweep.rule.discloses)]
        rule, cited = context.sweep.rule, citations.cite_works(*works_of_rule(context.sweep.rule))
        name = escape_tex(rule.name.replace("_", " "))
        yield f"The best point was chosen by its score under {name}{cited}, whose price covers {shown}."
        if "koskela2024privacy" in citations.works:
            yield f"Other bounds on private selection{citations.cite_works(*RELATED_BOUNDS)} are not part of the price."
    yield from (escape_tex(line.text) for line in line_on_search_that_read_public_data(context))


def _verb_phrase_for_points(context: Context, citations: _Citations) -> str:
    """What was done with the points: each ran, or a sampler proposed those that ran."""
    proposed = context.sweep.plan.proposed
    if proposed is None:
        return "search" if len(context.sweep.plan.trials) > 1 else "train"
    library = WORKS_OF_TAGS.get(tag_or_path_of_class(proposed.sampler).partition(".")[0])
    cited = citations.cite_works(*(() if library is None else (library,)))
    return f"run {count_text(proposed.trials, 'proposal')} of {escape_tex(proposed.sampler_name)}{cited} among"


def _run_sentences(context: Context, citations: _Citations) -> Iterator[str]:
    """How a run trains, and what its score reads."""
    unit = escape_tex(context.sweep.plan.unit)
    configs = [trial.config for trial in context.sweep.plan.all_runs]
    samplers = {
        work: None
        for config in configs
        for part in ("sampler", "noise")
        for work in _works_of_class_and_fields(config.get(part, {}), part)
    }
    names = (tag_or_path_of_class(config.get("engine", {})) for config in configs)
    engines = {name: WORKS_OF_TAGS[name] for name in names if name in WORKS_OF_TAGS}
    steps = ("abadi2016deep",) if {"noise_multiplier", "steps"} <= context.facts.keys() else ()
    yield escape_tex(declared_training_text(context)).removesuffix(".") + citations.cite_works(*steps, *samplers) + "."
    if engines:
        named = [f"{name.capitalize()}{citations.cite_works(work)}" for name, work in engines.items()]
        yield f"{enumeration_text(named)} computed per-example gradients."
    yield from (escape_tex(line.text) for line in final_run_lines(context))
    if context.sweep.has_private_scores:
        yield f"Scores read held-out private {unit}s and are part of the price."
    else:
        yield f"Scores are computed on {unit}s declared public."
    winner = context.sweep.winner_id if Disclosure.WINNER_SCORE in context.sweep.disclosures else None
    told = None if winner is None else told_score_of_run(context.sweep, winner)
    if told is not None and told.interval_text:
        yield escape_tex(told.interval_sentence(context.sweep.score_label))


def _price_sentences(context: Context, citations: _Citations) -> Iterator[str]:
    """The guarantee of the whole search, and the accountants that bound it."""
    facts, charges, unit = context.facts, context.bill.charges, escape_tex(context.sweep.plan.unit)
    change = CHANGES_BETWEEN_NEIGHBOURS[context.sweep.plan.adjacency]
    epsilon, delta = (tex_number(facts[name].text) for name in ("honest_epsilon", "honest_delta"))
    search = "the whole search, the choice of the best point included,"
    yield (
        f"The release of {'this run' if is_one_run_all_that_was_charged(context.sweep, context.bill) else search} "
        "satisfies "
        f"$(\\varepsilon, \\delta)$-differential privacy{citations.cite_works('dwork2014algorithmic')} "
        f"with $\\varepsilon = {epsilon}$ "
        f"and $\\delta = {delta}$ for each {unit}; neighbouring data sets differ in one {unit} that {change}."
    )
    kinds = (class_of_tag(tag, family) for tag, family in FAMILY_OF.items() if family == "accountant")
    works = {kind().name: works_of_class(kind) for kind in kinds if kind is not None and works_of_class(kind)}

    def accountant_name_with_citation(name: str) -> str:
        return escape_tex(name) + citations.cite_works(*works.get(name, ()))

    claimants = sorted({name for charge in charges for name in charge_facts(charge).claimed_by.split(" and ")})
    others = {name: total for name, total in context.bill.upper_bounds.items() if name not in claimants}
    bound = f"This is an upper bound by {enumeration_text([accountant_name_with_citation(name) for name in claimants])}"
    compared = [
        f"{accountant_name_with_citation(name)} gives ${epsilon_text_rounded_up(total)}$"
        for name, total in others.items()
    ]
    yield "; ".join([bound, *compared]) + "."


def _works_of_class_and_fields(node: Mapping[str, Any], family: str) -> tuple[str, ...]:
    """The works of a class of ours in a configuration, and of the classes in its fields."""
    tag = tag_or_path_of_class(node)
    own = works_of_class(class_of_tag(tag, family)) if FAMILY_OF.get(tag) == family else ()
    parts = (
        (name, value)
        for name, value in fields_without_class_name(node).items()
        if name in NESTED and isinstance(value, Mapping)
    )
    return (*own, *(work for name, value in parts for work in _works_of_class_and_fields(value, NESTED[name])))
