"""Price tables of a plan, under its own rule and under every other, printed before anything is charged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat

from dpsweep.accounting.cautions import cautions, is_large, left_out_records_sentence
from dpsweep.accounting.events.build import FINAL
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.notation import (
    agreement,
    all_digits,
    delta_up,
    epsilon_down,
    epsilon_up,
    noise_down,
    noise_up,
    population,
)
from dpsweep.accounting.pricing.alternatives import RequiredNoise
from dpsweep.accounting.pricing.outlook import Outlook, RuleOutlook, RuleOutlooks
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.rule_prices import cheapest
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.step_log import steps_priced
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.sweeper.terminal import FRAME, PLAIN, Terminal, TerminalTable
from dpsweep.sweeper.timing.time_estimate import about
from dpsweep.sweeper.trial.spec import declare

_WORDS = {
    Disclosure.ALL_SCORES: "everything",
    Disclosure.WINNER_SCORE: "the winner and its score",
    Disclosure.WINNER: "the winner without its score",
}
_UNPROTECTED = (("the whole search", "PROTECTS NOBODY: you declared these data public (dataset.public=true)"),)
_SHORT = {
    "everything": "all",
    "the winner and its score": "winner",
    "the winner without its score": "no score",
    "nothing": "nothing",
}


def show_offers(priced: PricedPlan, outlooks: RuleOutlooks, results: str) -> None:
    """Prints the price of the search under each rule, then which one to take, and advice if the search does not fit.

    Rules that show the results that the user asked for come first, the cheapest of them on top.
    """
    rules, needs = outlooks.rules, outlooks.needs
    if priced.plan.finals and not needs and not outlooks.advice:
        return  # other rules have other points, so there is nothing to compare
    title = f"{len(priced.plan.trials)} points on {priced.plan.account}, priced by each rule at this noise"
    table = TerminalTable(title=title, pad_edge=False, box=PLAIN, padding=(0, 1, 0, 0))
    table.add_column("rule", no_wrap=True)
    for column in ("tries", "top 10 %", "epsilon"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("shows", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    for column in ("noise\nneeded", "one\nrun") if needs else ():
        table.add_column(column, justify="right", no_wrap=True)
    for one in sorted(rules, key=lambda one: (not one.offer.shows(results), one.offer.epsilon)):
        offer = one.offer
        marks = f"{'>' if one.taken else ''}{'*' if one.cheapest else ''}"
        table.add_row(
            f"{offer.label} {marks}".rstrip(),
            f"{offer.expected_tries:.4g}",
            f"{offer.chance_of_best:.0%}" if priced.plan.proposed is None else "?",
            "none" if offer.quote is None else epsilon_up(offer.epsilon),
            _SHORT[short_disclosure_name(offer.rule.discloses)],
            "yes" if one.admitted else "no",
            *(_required_noise_cells(needs[offer.label]) if needs else ()),
            style="bold" if one.taken else None,
        )
    Terminal(soft_wrap=True).print_table(table)
    print_line("tries: expected runs; top 10 %: the chance to try one of the best 10 % of the points")
    if needs:
        print_line(
            "noise needed: the noise multiplier at which the search fits what is left; one run: its epsilon then"
        )
    print_line(f"> this plan's rule; * the cheapest that runs and shows what you asked for (show={results})")
    for one in rules:
        if one.offer.quote is None:
            print_line(f"{one.offer.label}: {one.offer.refusal}")
    for sentence in _which_to_take(rules, results):
        print_line(sentence)
    if outlooks.advice:
        Terminal().print_line(outlooks.advice)


def _which_to_take(rules: Sequence[RuleOutlook], results: str) -> Iterator[str]:
    """Which rule to take for the results that the user asked for, and for other ones, in words."""
    own = next((one.offer for one in rules if one.cheapest), None)
    if own is None:
        yield f"No rule that runs has a price and shows what you asked for (show={results})."
        return
    winner = cheapest([one.offer for one in rules], "winner")
    if results != "all":
        yield f"For one model: {own.label}, the cheapest rule that may show its winner."
        return
    yield f"For every score: {own.label}, which pays for every run."
    if winner is not None and winner.label != own.label:
        yield f"For one model, without a map: tuning={winner.label} at epsilon {epsilon_up(winner.epsilon)}."


def show(
    priced: PricedPlan,
    statement: Statement | None,
    outlook: Outlook,
    time: str | None,
    data: Mapping[str, str],
) -> None:
    """Prints the plan's own price: the whole search first, the price of a single run, as often quoted, near the end.

    `time` is left out if it is None, as where steps are still being timed. `data` has further rows, about the records.
    """
    plan = priced.plan
    terminal = Terminal()
    table = TerminalTable(title=f"Plan {plan.id} on {plan.account}", show_header=False, box=FRAME, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    methods = sorted({trial.method for trial in plan.trials})
    first = [plan.trials[point] for point in dict.fromkeys(plan.points)]
    count = {method: sum(trial.method == method for trial in first) for method in methods}
    table.add_row("points", f"{len(first)} ({', '.join(f'{n} {method}' for method, n in count.items())})")
    if len(plan.trials) > len(first) and not priced.rule.draws_in_secret:
        table.add_row("runs", f"{len(plan.trials)}, {len(plan.trials) // len(first)} of each point")
    if plan.proposed is not None:
        proposals = f"of the points that {plan.proposed.sampler_name} proposes from the scores so far"
        table.add_row("runs", f"{plan.proposed.trials}, {proposals}")
    if plan.spares:
        table.add_row("spare attempts", f"{plan.spares}, paid for like the dearest run, for what is killed")
    steps = sorted({trial.config["steps"] for trial in plan.trials})
    repeats = sorted({steps_priced(trial) - trial.config["steps"] for trial in plan.trials} - {0})
    again = f", and {' or '.join(map(str, repeats))} that a crash may make run twice" if repeats else ""
    table.add_row("steps of a run", ", ".join(map(str, steps)) + again)
    table.add_row("rule", f"{priced.rule.name}; may be shown: {short_disclosure_name(priced.rule.discloses)}")
    for name, text in _UNPROTECTED if plan.public else _price(priced, outlook.envelope):
        table.add_row(name, text)
    noises = sorted({trial.config["privacy"]["noise_multiplier"] for trial in plan.trials})
    for name, text in _final(priced):
        table.add_row(name, text)
    other = outlook.other_subsample
    table.add_row("noise multiplier", ", ".join(map(noise_down, noises)) + (f"; {other}" if other else ""))
    if plan.shared:
        table.add_row("subsamples", "the same for all runs at every step, and priced as that")
    table.add_row("scores", _scores(priced))
    table.add_row("budget", _budget(priced, statement, outlook))
    if not plan.public:
        table.add_row(
            "one run alone", f"epsilon {epsilon_up(priced.single_run.epsilon)} (not the price of this search)"
        )
    if time is not None:
        table.add_row("time", time)
    for name, text in data.items():
        table.add_row(name, text)
    terminal.print_table(table)
    for note in plan.notes:
        terminal.print_line(note)
    for sentence in () if plan.public else _cautions(priced):
        terminal.print_line(sentence)


def time_in_words(seconds: float | None, device: str) -> str:
    """The estimated time on this device; None is a time that nobody knows."""
    return "unknown" if seconds is None else f"{about(seconds)} on {device}"


def short_disclosure_name(discloses: frozenset[Disclosure]) -> str:
    """A short name for the results that a rule discloses."""
    return next((word for disclosure, word in _WORDS.items() if disclosure in discloses), "nothing")


def _price(priced: PricedPlan, envelope: float | None) -> Iterator[tuple[str, str]]:
    """The price of the search, the accountants' bounds, and the lower bound by an attack."""
    plan, quote = priced.plan, priced.quote
    what = (
        f"epsilon {epsilon_up(quote.epsilon)} at delta {all_digits(plan.delta)} per {plan.unit}, {plan.adjacency.value}"
    )
    yield "the whole search", what
    yield from zip(chain(("accountants",), repeat("")), _by_population(priced), strict=False)
    if envelope is not None:
        yield (
            "the same search",
            f"epsilon {epsilon_up(envelope)} by the envelope bound, as under private_selection",
        )
    if quote.lower > 0:
        yield "at least", f"epsilon {epsilon_down(quote.lower)}, by an explicit attack (aligned canary, worst score)"


def _final(priced: PricedPlan) -> Iterator[tuple[str, str]]:
    """The final run: its records, its noise and its own cost."""
    plan, run = priced.plan, priced.rule.final_run
    if run is None or not plan.finals:
        return
    noises = ", ".join(map(noise_down, sorted({final.config["privacy"]["noise_multiplier"] for final in plan.finals})))
    cost = "included in the price"
    if plan.event.final is not None:
        own = (share for name, share in priced.quote.parts.items() if name.startswith(FINAL))
        cost = f"epsilon {epsilon_up(max(own))}"
    yield "final run", f"the best point again, on {run.records}, {cost}; noise multiplier {noises}"


def _cautions(priced: PricedPlan) -> Iterator[str]:
    """Cautions about a large epsilon or delta of the search, and about a large delta of its account."""
    plan, units = priced.plan, priced.units
    yield from filter(None, (left_out_records_sentence(plan.trials[0].config["dataset"]),))
    yield from cautions(priced.quote.epsilon, plan.delta, units, plan.unit, priced.accepted_delta)
    if is_large(plan.budget.delta, units):
        yield (
            f"The account's own delta, {delta_up(plan.budget.delta)}, is 1 / {units} or more: all sweeps on it "
            f"together may promise no single {plan.unit} anything."
        )


def _by_population(priced: PricedPlan) -> Iterator[str]:
    """A line for each population of records: its accountants' bounds, and those that have none there."""
    quote = priced.quote
    for part, bounds in quote.bounds_by_part.items():
        unable = [f"{name} gives no bound" for name in quote.refusals if name not in bounds]
        yield f"{population(part)} {priced.plan.unit}s: {'; '.join((agreement(bounds), *unable))}"


def _scores(priced: PricedPlan) -> str:
    score = declare(priced.plan.trials[0].config).score
    if priced.plan.public:
        return score.statement
    metric = score.measured
    name = "" if metric is None else f"{metric.label}, "
    if priced.plan.event.validation is None:
        return f"{name}exact, on a test set declared public; not charged"
    cost = f"epsilon {epsilon_up(priced.quote.parts['validation'])}"
    if (comparison := priced.rule.comparison) is not None:
        return f"{comparison.format(unit=priced.plan.unit)} and never shown, {cost}"
    return (
        f"{name}noisy counts on held-out private {priced.plan.unit}s, {cost}; they are not trained on, so the larger "
        "part counts"
    )


def _budget(priced: PricedPlan, statement: Statement | None, outlook: Outlook) -> str:
    public = priced.plan.public
    if statement is not None and statement.budget.vacuous != public:
        promise = "private" if public else "declared public"
        return f"REFUSED: the account was opened for data {promise}"
    if public:
        return "an account of its own for data declared public: nothing runs out"
    if statement is None:
        budget = priced.plan.budget
        opens = f"epsilon {all_digits(budget.epsilon)}, delta {all_digits(budget.delta)}"
        return f"the account opens with {opens}: {_fits(outlook)}"
    if any(entry.plan == priced.plan.id for entry in statement.charges):
        return f"already charged; {outlook.rest}"
    return f"{outlook.rest}: {_fits(outlook)}"


def _fits(outlook: Outlook) -> str:
    """Whether this sweep fits, and how many such sweeps would, which is not how many runs one sweep may have."""
    if not outlook.admitted:
        return "IT DOES NOT FIT"
    return f"it fits ({'once' if outlook.times <= 1 else f'{outlook.times} such sweeps would'})"


def _required_noise_cells(required: RequiredNoise | None) -> tuple[str, str]:
    if required is None:
        return "none", ""
    return noise_up(required.noise_multiplier), epsilon_up(required.single_run)
