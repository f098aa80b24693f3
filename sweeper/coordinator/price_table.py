"""Price tables of a plan, under its own rule and under every other, printed before anything is charged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from dpsweep.accounting.cautions import caution_sentences, is_large_delta, left_out_records_sentence
from dpsweep.accounting.events.build import FINAL
from dpsweep.accounting.ledger.book import Statement
from dpsweep.accounting.notation import (
    accountants_upper_bounds_text,
    delta_text_rounded_up,
    epsilon_text_rounded_down,
    epsilon_text_rounded_up,
    noise_text_rounded_down,
    noise_text_rounded_up,
    short_population_name,
    text_with_all_digits,
)
from dpsweep.accounting.pricing.alternatives import RequiredNoise
from dpsweep.accounting.pricing.outlook import Outlook, RuleOutlooks
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.rule_prices import Offer, cheapest_offer_showing_results
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.rule_words import compared_quantity_text
from dpsweep.accounting.searches.interface import declared_search_class
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.sweeper.terminal import FRAME, PLAIN, Terminal, TerminalTable
from dpsweep.sweeper.trial.spec import declaration_from_config

_MAY_BE_SHOWN = {
    Disclosure.ALL_SCORES: "every score, the map of them, and every model",
    Disclosure.WINNER_SCORE: "the winner and its score, and nothing of the other runs",
    Disclosure.WINNER: "the winner without its score, and nothing of the other runs",
}
_SHORT = {
    Disclosure.ALL_SCORES: "all",
    Disclosure.WINNER_SCORE: "winner",
    Disclosure.WINNER: "no score",
}


def print_price_under_each_rule(priced: PricedPlan, outlooks: RuleOutlooks, results: str) -> None:
    """Prints the price of the search under each rule, then which one to take.

    Rules that show the results that the user asked for come first, the cheapest of them on top.
    """
    offers, needs = outlooks.offers, outlooks.needs
    cheapest = cheapest_offer_showing_results(offers, results)
    if priced.plan.final_runs and not needs:
        print_line("Other rules would run other points than this search with its final run: no prices to compare.")
        return
    title = f"{len(priced.plan.trials)} points on {priced.plan.account}, priced by each rule at this noise"
    table = TerminalTable(title=title, pad_edge=False, box=PLAIN, padding=(0, 1, 0, 0))
    table.add_column("rule", no_wrap=True)
    for column in ("tries", "top 10 %", "epsilon"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("shows", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    for column in ("noise\nneeded", "one\nrun") if needs else ():
        table.add_column(column, justify="right", no_wrap=True)
    for offer in sorted(offers, key=lambda offer: (not offer.can_show_results(results), offer.epsilon)):
        is_taken = offer.rule == priced.rule
        marks = f"{'>' if is_taken else ''}{'*' if offer is cheapest else ''}"
        table.add_row(
            f"{offer.label} {marks}".rstrip(),
            f"{offer.expected_tries:.4g}",
            f"{offer.chance_of_best:.0%}" if priced.plan.proposed is None else "?",
            "none" if offer.quote is None else epsilon_text_rounded_up(offer.epsilon),
            _text_by_disclosure(_SHORT, offer.rule.discloses),
            "yes" if offer.label in outlooks.admitted else "no",
            *(_required_noise_cells(needs[offer.label]) if needs else ()),
            style="bold" if is_taken else None,
        )
    Terminal(soft_wrap=True).print_table(table)
    print_line("tries: expected runs; top 10 %: the chance to try one of the best 10 % of the points")
    if needs:
        print_line(
            "noise needed: the noise multiplier at which the search fits what is left; one run: its epsilon then"
        )
    print_line(f"> this plan's rule; * the cheapest that runs and shows what you asked for (show={results})")
    for offer in offers:
        if offer.quote is None:
            print_line(f"{offer.label}: {offer.refusal}")
    for sentence in _recommended_rule_sentences(offers, cheapest, results):
        print_line(sentence)
    print_line("`dpsweep help tuning` says what each rule does.")


def _recommended_rule_sentences(offers: Sequence[Offer], own: Offer | None, results: str) -> Iterator[str]:
    """Which rule to take for the results that the user asked for, and for other ones, in words."""
    if own is None:
        yield f"No rule that runs has a price and shows what you asked for (show={results})."
        return
    winner = cheapest_offer_showing_results(offers, "winner")
    if results != "all":
        yield f"To show one model: {own.label}, the cheapest rule that may show its winner."
        return
    yield f"To show every score: {own.label}, which pays for every run."
    if winner is not None and winner.label != own.label:
        yield (
            f"To show one model, without a map: tuning={winner.label} at epsilon "
            f"{epsilon_text_rounded_up(winner.epsilon)}."
        )


def print_price_of_plan(
    priced: PricedPlan,
    statement: Statement | None,
    outlook: Outlook,
    time_text: Callable[[], str],
    data: Mapping[str, str],
    width: str | None,
) -> None:
    """Prints price, budget, what may be shown, time and width of the scores, then a table of the details.

    `time_text` may wait until a step is timed, so it is called after the first three lines. `data` has further rows,
    about the records, `width` says how well scores will be known.
    """
    words = (
        _words_on_public_data(priced, statement)
        if priced.plan.has_public_data
        else _words_on_private_data(priced, statement, outlook)
    )
    print_line(f"price: {words.price}")
    print_line(f"budget: {words.budget}")
    print_line(f"may be shown: {_text_by_disclosure(_MAY_BE_SHOWN, priced.rule.discloses)}")
    sys.stdout.flush()
    print_line(f"time: {time_text()}")
    if width is not None:
        print_line(width)
    _print_details_of_plan(priced, words, data)


@dataclass(frozen=True, kw_only=True)
class _PriceWords:
    """What is said of the price of a plan, of its account's budget, and of what the scores cost.

    `rows` have the bounds behind the price. `single_run` is the cost of one run alone, empty if it says nothing more.
    `cautions` are sentences on large numbers.
    """

    price: str
    budget: str
    scores: str
    rows: tuple[tuple[str, str], ...] = ()
    single_run: str = ""
    cautions: tuple[str, ...] = ()


def _words_on_private_data(priced: PricedPlan, statement: Statement | None, outlook: Outlook) -> _PriceWords:
    plan, price = priced.plan, epsilon_text_rounded_up(priced.quote.epsilon)
    alone = epsilon_text_rounded_up(priced.single_run.epsilon)
    said = f"What a paper would report for one run: {alone}. You pay {price}."
    return _PriceWords(
        price=f"epsilon {price} at delta {text_with_all_digits(plan.delta)} per {plan.unit}, for the whole search of "
        f"{declared_search_class(plan).size_text(plan)}",
        budget=_private_budget_text(priced, statement, outlook),
        scores=_score_cost_text(priced),
        rows=tuple(_search_price_rows(priced)),
        single_run=said if len(plan.trials) > 1 and alone != price else "",
        cautions=tuple(_caution_sentences(priced)),
    )


def _words_on_public_data(priced: PricedPlan, statement: Statement | None) -> _PriceWords:
    plan, budget = priced.plan, "none: these data were declared public"
    if statement is not None and not statement.budget.promises_nothing:
        budget = "REFUSED: the account was opened for data private"
    return _PriceWords(
        price=f"the whole search of {declared_search_class(plan).size_text(plan)} PROTECTS NOBODY: you declared these "
        "data public (dataset.public=true)",
        budget=budget,
        scores=declaration_from_config(plan.trials[0].config).score.statement,
    )


def _print_details_of_plan(priced: PricedPlan, words: _PriceWords, data: Mapping[str, str]) -> None:
    """Prints the points, the bounds, the noise and the scores of a plan, then its notes and cautions.

    The price of a single run, as often quoted, stands near the end.
    """
    terminal = Terminal()
    plan = priced.plan
    table = TerminalTable(title=f"Plan {plan.id} on {plan.account}", show_header=False, box=FRAME, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    methods = sorted({trial.method for trial in plan.trials})
    first = [plan.trials[point] for point in dict.fromkeys(plan.point_index_of_each_trial)]
    count = {method: sum(trial.method == method for trial in first) for method in methods}
    table.add_row("points", f"{len(first)} ({', '.join(f'{n} {method}' for method, n in count.items())})")
    if runs := declared_search_class(plan).number_of_runs_text(plan):
        table.add_row("runs", runs)
    if plan.spares:
        table.add_row("spare attempts", f"{plan.spares} for killed runs, each paid for like the most expensive run")
    steps = sorted({trial.config["steps"] for trial in plan.trials})
    repeats = sorted({trial.priced_steps - trial.config["steps"] for trial in plan.trials} - {0})
    again = f", and up to {' or '.join(map(str, repeats))} more after a crash" if repeats else ""
    table.add_row("steps of a run", ", ".join(map(str, steps)) + again)
    table.add_row("rule", f"{priced.rule.name} (dpsweep help tuning)")
    noises = sorted({trial.config["privacy"]["noise_multiplier"] for trial in plan.trials})
    for name, text in (*words.rows, *_final_run_rows(priced)):
        table.add_row(name, text)
    table.add_row("noise multiplier", ", ".join(map(noise_text_rounded_down, noises)))
    bands = max((trial.config["noise"]["bands"] for trial in plan.trials if "noise" in trial.config), default=1)
    if bands > 1:
        table.add_row("noise", f"correlated over up to {bands} steps: {8 * (bands - 1)} bytes of memory per weight")
    if plan.has_shared_subsamples:
        table.add_row("subsamples", "the same for all runs at every step, which the price counts")
    table.add_row("scores", words.scores)
    if words.single_run:
        table.add_row("one run alone", words.single_run)
    for name, text in data.items():
        table.add_row(name, text)
    terminal.print_table(table)
    for sentence in (*plan.notes, *words.cautions):
        terminal.print_line(sentence)


def _text_by_disclosure(texts: Mapping[Disclosure, str], discloses: frozenset[Disclosure]) -> str:
    """The text of the most that a rule discloses."""
    return next((text for disclosure, text in texts.items() if disclosure in discloses), "nothing")


def _search_price_rows(priced: PricedPlan) -> Iterator[tuple[str, str]]:
    """Which data sets are neighbours, the accountants' bounds, and the best lower bound."""
    quote = priced.quote
    yield "adjacency", priced.plan.adjacency.value
    yield from zip(chain(("accountants",), repeat("")), _bound_lines_by_population(priced), strict=False)
    if quote.lower > 0:
        yield "true cost", f"at least {epsilon_text_rounded_down(quote.lower)}"


def _final_run_rows(priced: PricedPlan) -> Iterator[tuple[str, str]]:
    """The final run: its records, its noise and its own cost."""
    plan, run = priced.plan, priced.rule.final_run
    if run is None:
        return
    noises = sorted({final.config["privacy"]["noise_multiplier"] for final in plan.final_runs})
    noises_text = ", ".join(map(noise_text_rounded_down, noises))
    cost = "included in the price"
    if plan.event.final is not None:
        own = (share for name, share in priced.quote.parts.items() if name.startswith(FINAL))
        cost = f"epsilon {epsilon_text_rounded_up(max(own))}"
    records = "the same records" if run.share is None else "all records"
    if run.share is not None and not run.is_secret:
        records = f"the {1 - run.share:.0%} of the records"
    if run.share is not None and not run.reads_all:
        records += " that the search does not read"
    yield "final run", f"the best point again, on {records}, {cost}; noise multiplier {noises_text}"


def _caution_sentences(priced: PricedPlan) -> Iterator[str]:
    """What the price means, and cautions about a large epsilon or delta of the search, or delta of its account."""
    plan, units = priced.plan, priced.units
    yield from filter(None, (left_out_records_sentence(plan.trials[0].config["dataset"]),))
    meaning = priced.meaning
    yield meaning.coin_sentence
    yield from caution_sentences(meaning, units, priced.large_accepted_delta_or_none)
    if is_large_delta(plan.budget.delta, units):
        yield (
            f"The delta of the account's budget, {delta_text_rounded_up(plan.budget.delta)}, is 1 / {units} or more: "
            f"all sweeps on the account together may leave a {plan.unit} without protection."
        )


def _bound_lines_by_population(priced: PricedPlan) -> Iterator[str]:
    """A line for each population of records: its accountants' bounds, and those that have none there."""
    quote = priced.quote
    for part, bounds in quote.bounds_by_part.items():
        unable = [f"{name} gives no bound" for name in quote.refusals if name not in bounds]
        yield (
            f"{short_population_name(part)} {priced.plan.unit}s: "
            f"{'; '.join((accountants_upper_bounds_text(bounds, quote.parts[part]), *unable))}"
        )


def _score_cost_text(priced: PricedPlan) -> str:
    """What is measured of a model, on which records, and what that costs."""
    metric = declaration_from_config(priced.plan.trials[0].config).score.measured
    name = "" if metric is None else f"{metric.label}, "
    if priced.plan.event.validation is None:
        return f"{name}exact, on a test set declared public; not charged"
    cost = f"epsilon {epsilon_text_rounded_up(priced.quote.parts['validation'])}"
    if (comparison := compared_quantity_text(priced.rule)) is not None:
        return f"{comparison.format(unit=priced.plan.unit)} and never shown, {cost}"
    return (
        f"{name}noisy counts on held-out private {priced.plan.unit}s, {cost}. Training and scoring use different "
        f"{priced.plan.unit}s, so you pay the larger, not the sum."
    )


def _private_budget_text(priced: PricedPlan, statement: Statement | None, outlook: Outlook) -> str:
    """The budget of the plan's account, and whether the plan fits it."""
    if statement is None:
        budget = priced.plan.budget
        opens = f"epsilon {text_with_all_digits(budget.epsilon)}, delta {text_with_all_digits(budget.delta)}"
        return f"the account opens with {opens}: {_whether_sweep_fits_text(outlook)}"
    if statement.budget.promises_nothing:
        return "REFUSED: the account was opened for data declared public"
    if any(entry.plan == priced.plan.id for entry in statement.charges):
        return f"already charged; {outlook.rest}"
    return f"{outlook.rest}: {_whether_sweep_fits_text(outlook)}"


def _whether_sweep_fits_text(outlook: Outlook) -> str:
    """Whether this sweep fits, and how many such sweeps would, which is not how many runs one sweep may have."""
    if not outlook.admitted:
        return "IT DOES NOT FIT"
    return f"it fits ({'once' if outlook.times <= 1 else f'{outlook.times} such sweeps would'})"


def _required_noise_cells(required: RequiredNoise | None) -> tuple[str, str]:
    if required is None:
        return "none", ""
    return noise_text_rounded_up(required.noise_multiplier), epsilon_text_rounded_up(required.single_run)
