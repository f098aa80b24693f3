"""A sweep's charges and its account's balance, from the ledger alone; and every number of a page with its source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import FINAL, mechanisms_with_counts, noise_std_of_noisy_table
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Charged, Spending, body_of_kind
from dpsweep.accounting.ledger.statement import (
    charge_facts,
    charged_event,
    paid_attempts,
    remaining_amounts,
    reserved_amounts,
)
from dpsweep.accounting.meaning import Meaning
from dpsweep.accounting.notation import (
    delta_text_rounded_down,
    delta_text_rounded_up,
    epsilon_text_rounded_down,
    epsilon_text_rounded_up,
    noise_text_rounded_down,
    percent_text_rounded_up,
    sampling_rate_text_rounded_up,
    text_with_all_digits,
)
from dpsweep.accounting.pricing.price import NOT_PROVEN, proven_gaussian_mu
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.stored_names.stored_classes import (
    class_name_without_module,
    fields_without_class_name,
    tag_or_path_of_class,
)
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.sweep_table import Alone, State, Sweep, noise_multipliers_of_steps


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The balance of an account, with this sweep's part of it.

    *Guarantee*: `epsilon` and `delta` are the sums over all charges of the plan, repeats included, so the
    sweep as a whole satisfies (epsilon, delta)-differential privacy. *Source*: basic composition, Dwork and
    Roth 2014, Theorem 3.16. `others` is the sum over all other sweeps on the account. `units` is the declared
    number of records, or of units if a unit has several; None if neither ledger nor plan declares it.
    """

    epsilon: float
    delta: float
    others: tuple[float, float]
    reserved: tuple[float, float]
    left: tuple[float, float]
    budget: tuple[float, float]
    charges: tuple[Charged, ...]
    units: int | None = None

    @property
    def accepted_delta(self) -> float | None:
        """The delta that was accepted last; None if none was."""
        return next(
            (delta for one in reversed(self.charges) if (delta := charge_facts(one).accepted_delta) is not None), None
        )

    @property
    def upper_bounds(self) -> dict[str, float]:
        """The bound on all charges together by each accountant that bounds every one of them."""
        bounds = [charge_facts(charge).bounds for charge in self.charges]
        return {
            name: sum_in_exact_decimals(one[name] for one in bounds)
            for name in bounds[0]
            if all(name in one for one in bounds)
        }

    @property
    def total_variation(self) -> float | None:
        """An upper bound on the total variation between neighbours' results; None if a charge does not state its own.

        *Source*: the bounds of adaptively composed mechanisms add up, as each is a delta at epsilon 0.
        """
        stated = [charge_facts(charge).total_variation for charge in self.charges]
        known = [one for one in stated if one is not None]
        return min(1.0, sum_in_exact_decimals(known)) if len(known) == len(stated) else None

    def meaning_for_plan(self, plan: Plan) -> Meaning:
        """The meaning of epsilon and delta for a unit of this plan's data."""
        whole = Guarantee(epsilon=self.epsilon, delta=self.delta, adjacency=plan.adjacency, unit=plan.unit)
        return Meaning(guarantee=whole, total_variation=self.total_variation)

    @property
    def charges_for_repeated_runs(self) -> tuple[Charged, ...]:
        """Charges for repeated runs."""
        return tuple(charge for charge in self.charges if charge_facts(charge).reason == "repeat")


def read_bill(sweep: Sweep) -> Bill:
    """Reads the sweep's charges and its account's balance."""
    account = sweep.account
    charges = tuple(body_of_kind(entry, Charged) for entry in account.charges if entry.plan == sweep.plan_id)
    others = [body_of_kind(entry, Spending) for entry in account.charges if entry.plan != sweep.plan_id]
    dataset = sweep.plan.trials[0].config["dataset"]
    declared = dataset.get("units" if dataset.get("unit_column") else "records")
    units = (*(charge_facts(charge).units for charge in charges), declared)
    return Bill(
        epsilon=sum_in_exact_decimals(charge.epsilon for charge in charges),
        delta=sum_in_exact_decimals(charge.delta for charge in charges),
        others=(
            sum_in_exact_decimals(charge.epsilon for charge in others),
            sum_in_exact_decimals(charge.delta for charge in others),
        ),
        reserved=reserved_amounts(account),
        left=remaining_amounts(account),
        budget=(account.budget.epsilon, account.budget.delta),
        charges=charges,
        units=next((number for number in units if isinstance(number, int) and number > 0), None),
    )


def sum_in_exact_decimals(values: Iterable[float]) -> float:
    """The sum in exact decimals, like the ledger's sums."""
    return float(sum((Decimal(repr(float(value))) for value in values), Decimal(0)))


LEDGER, PLAN, RESULTS = "ledger", "plan.json", "trials/*/result.json"
GAUSSIAN_MU = "the events in the ledger: Gaussian differential privacy at every delta, sampling not counted"
ALONE = "priced by the accountants from one run's event in plan.json"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A value, its text on the page, and its source."""

    value: float | int | str | None
    text: str
    source: str


def page_facts_by_name(sweep: Sweep, bill: Bill) -> dict[str, Fact]:
    """The page's numbers by name."""
    facts = (
        dict(_epsilon_and_delta_facts(bill))
        | dict(_run_count_facts(sweep, bill))
        | dict(_training_setting_facts(sweep))
    )
    mu = gaussian_mu_or_not_proven(sweep, bill)
    facts["gaussian_mu"] = Fact(
        value=mu, text=mu if isinstance(mu, str) else epsilon_text_rounded_up(mu), source=GAUSSIAN_MU
    )
    if sweep.plan.event.final is not None:
        facts |= dict(_search_and_final_run_epsilon_facts(bill))
    alone = None if is_one_run_all_that_was_charged(sweep, bill) else epsilon_of_best_run_alone(sweep)
    if alone is not None and alone < bill.epsilon:
        facts["alone_epsilon"] = Fact(value=alone, text=epsilon_text_rounded_up(alone), source=ALONE)
    return facts


def gaussian_mu_or_not_proven(sweep: Sweep, bill: Bill) -> float | str:
    """The mu of Gaussian differential privacy that all charges of the sweep together prove, or that none is proven."""
    mu = proven_gaussian_mu((charged_event(charge) for charge in bill.charges), sweep.plan.adjacency)
    return NOT_PROVEN if mu is None or math.isinf(bill.epsilon) else mu


def is_one_run_all_that_was_charged(sweep: Sweep, bill: Bill) -> bool:
    """Whether what was charged is one run and nothing else, so that the price of the search is that of the run."""
    runs, whole = sweep.plan.all_runs, sweep.plan.event.events_by_population
    return (
        len(runs) == 1
        and not bill.charges_for_repeated_runs
        and whole.keys() == (own := runs[0].event.events_by_population).keys()
        and all(events.are_same_events(whole[part], own[part]) for part in whole)
    )


def epsilon_of_best_run_alone(sweep: Sweep) -> float | None:
    """The epsilon of the best run alone, or of the most expensive one if there is no winner; never a search's price."""
    if sweep.winner_id is not None:
        epsilon: float | None = sweep.row_of_trial(sweep.winner_id)["epsilon_alone"]
        return epsilon
    alone = Alone(plan=sweep.plan)
    bounds = [epsilon for trial in sweep.plan.trials if (epsilon := alone.epsilon(trial)) is not None]
    return max(bounds, default=None)


def to_json(facts: Mapping[str, Fact]) -> dict[str, dict[str, object]]:
    """The facts as plain values for JSON."""
    return {name: {"value": fact.value, "text": fact.text, "source": fact.source} for name, fact in facts.items()}


def _epsilon_and_delta_facts(bill: Bill) -> Iterator[tuple[str, Fact]]:
    pairs = {
        "honest": (
            (bill.epsilon, bill.delta),
            epsilon_text_rounded_up,
            delta_text_rounded_up,
            "sum of this plan's charges",
        ),
        "other": (bill.others, epsilon_text_rounded_up, delta_text_rounded_up, "sum of the account's other charges"),
        "reserved": (bill.reserved, epsilon_text_rounded_up, delta_text_rounded_up, "sum of the account's charges"),
        "left": (bill.left, epsilon_text_rounded_down, delta_text_rounded_down, "budget less the account's charges"),
        "budget": (bill.budget, text_with_all_digits, text_with_all_digits, "the account's budget"),
    }
    if bill.total_variation is not None:
        total = bill.total_variation
        source = f"{LEDGER}: sum of this plan's charges, from the privacy profile at epsilon 0"
        yield "total_variation", Fact(value=total, text=f"{percent_text_rounded_up(total)} %", source=source)
    for name, ((epsilon, delta), write_epsilon, write_delta, origin) in pairs.items():
        source = f"{LEDGER}: {origin}"
        yield f"{name}_epsilon", Fact(value=epsilon, text=write_epsilon(epsilon), source=source)
        yield f"{name}_delta", Fact(value=delta, text=write_delta(delta), source=source)


def _search_and_final_run_epsilon_facts(bill: Bill) -> Iterator[tuple[str, Fact]]:
    """The price of the search and of the final run, where they read different records."""
    for name, final in (("search_epsilon", False), ("final_epsilon", True)):
        own = [
            [cost for part, cost in charge_facts(one).parts.items() if part.startswith(FINAL) is final]
            for one in bill.charges
        ]
        epsilon = sum_in_exact_decimals(max(costs, default=0.0) for costs in own)
        yield (
            name,
            Fact(
                value=epsilon, text=epsilon_text_rounded_up(epsilon), source=f"{LEDGER}: this plan's charges, by part"
            ),
        )


def _run_count_facts(sweep: Sweep, bill: Bill) -> Iterator[tuple[str, Fact]]:
    yield "points", _integer_fact(len(sweep.plan.trials), PLAN)
    runs = sweep.all_run_rows
    yield "runs", _integer_fact(len(runs), f"{PLAN}, or the draw that is stored beside it")
    yield "runs_to_come", _integer_fact(sweep.shown.to_come, f"{PLAN}, and the proposals that are stored beside it")
    for state in State:
        number = int((runs["state"] == state).sum())
        yield f"points_{state.name.lower()}", _integer_fact(number, f"{RESULTS} and {LEDGER}: started attempts")
    charged = sum(paid_attempts(charge) for charge in bill.charges)
    yield "runs_charged", _integer_fact(charged, f"{LEDGER}: this plan's charges")
    yield "runs_started", _integer_fact(int(runs["attempts_started"].sum()), f"{LEDGER}: this plan's starts")
    repeated = sum(paid_attempts(charge) for charge in bill.charges_for_repeated_runs)
    yield "repeats_charged", _integer_fact(repeated, f"{LEDGER}: charges for repeats")
    yield "ledger_entries", _integer_fact(sweep.entries, f"{LEDGER}: its verified chain")
    seconds = sum(result.seconds for result in sweep.results_by_trial.values())
    yield "seconds", Fact(value=seconds, text=notation.duration_text(seconds), source=RESULTS)


def _training_setting_facts(sweep: Sweep) -> Iterator[tuple[str, Fact]]:
    """The declared settings of all runs' steps, from the events that were priced: the distinct values, ascending.

    If a run's noise multiplier changes, `noise_multiplier` has its range and `bounds` the schedule. Numbers are rounded
    to the safe side: sampling rates up, noise down.
    """
    trials, every = sweep.plan.trials, sweep.plan.all_runs
    private = () if sweep.plan.has_public_data else every  # a non-private event states no sampling or noise
    leaves = [leaf for trial in private for leaf, _ in mechanisms_with_counts(trial.event.training)]
    epochs = [
        (
            events.is_random_allocation(leaf),
            epoch[0],
            (events.as_gaussian_step(leaf) or (1.0,))[0],
        )
        for leaf in leaves
        if (epoch := events.as_epoch(leaf)) is not None
    ]
    others = [
        leaf
        for leaf in leaves
        if events.as_epoch(leaf) is None and events.noise_multiplier_of_perturbed_output(leaf) is None
    ]
    fixed = [batch for leaf in leaves if (batch := events.as_fixed_batch_step(leaf)) is not None]
    scores = [trial.event.validation for trial in every if trial.event.validation is not None]
    stds = (noise_std_of_noisy_table(leaf) for score in scores for leaf, _ in mechanisms_with_counts(score))
    found: dict[str, Iterable[float | str | None]] = {
        "sample_rate": {step[0] for leaf in others if (step := events.as_gaussian_step(leaf)) is not None},
        "batches": {f"{size} of {records}" for size, records, _ in fixed},
        "epochs": {size for random, size, rate in epochs if not random and rate == 1},
        "cycles": {
            f"{size} fixed parts with probability {sampling_rate_text_rounded_up(rate)}"
            for _, size, rate in epochs
            if rate < 1
        },
        "bands": {trial.config["noise"]["bands"] for trial in every if "noise" in trial.config},
        "allocations": {size for random, size, _ in epochs if random},
        "noise_multiplier": _noise_multiplier_values(sweep),
        "bounds": _clip_schedule_texts(sweep),
        "steps": {trial.config["steps"] for trial in trials},
        "lost_steps": {trial.priced_steps - trial.config["steps"] for trial in trials} - {0},
        "counts_std": {*stds} - {None},
        "minimised_noise": {events.noise_multiplier_of_perturbed_output(leaf) for leaf in leaves} - {None},
    }
    for name, values in found.items():
        write = sampling_rate_text_rounded_up if name == "sample_rate" else noise_text_rounded_down
        ordered = sorted(values) if isinstance(values, set) else [*values]
        if ordered:
            text = notation.enumeration_text(
                [write(value) if isinstance(value, float) else str(value) for value in ordered]
            )
            yield name, Fact(value=ordered[0] if len(ordered) == 1 else text, text=text, source=f"{PLAN}: the events")


def _noise_multiplier_values(sweep: Sweep) -> tuple[float | str, ...]:
    """The runs' noise multipliers; for one that changes, its smallest and its largest value."""
    pairs = set()
    for trial in sweep.plan.all_runs:
        noises = [noise for noise in noise_multipliers_of_steps(trial) if noise is not None]
        pairs |= {(min(noises), max(noises))} if noises else set()
    ranges = sorted(pairs)
    changing = (
        f"{noise_text_rounded_down(low)} rising to {noise_text_rounded_down(high)}"
        for low, high in ranges
        if low < high
    )
    return (*(low for low, high in ranges if low == high), *changing)


def _clip_schedule_texts(sweep: Sweep) -> set[str]:
    """The runs' clip schedules in words; empty if no clip norm changes."""
    schedules = [trial.config["clip_schedule"] for trial in sweep.plan.trials]
    changing = any(tag_or_path_of_class(schedule) != "constant_clip_norm" for schedule in schedules)
    return {*map(_clip_schedule_text, schedules)} if changing else set()


def _clip_schedule_text(config: Mapping[str, object]) -> str:
    """A clip schedule in words, from its configuration.

    >>> _clip_schedule_text({"kind": "linear_clip_norm", "least": 0.5, "over": None, "noise": "absolute"})
    'linear: least 0.5, noise absolute'
    """
    fields = ", ".join(
        f"{key} {value}" for key, value in fields_without_class_name(config).items() if value is not None
    )
    return (
        f"{class_name_without_module(config).lower()}: {fields}"
        if fields
        else class_name_without_module(config).lower()
    )


def _integer_fact(value: int, source: str) -> Fact:
    return Fact(value=value, text=str(value), source=source)
