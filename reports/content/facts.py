"""Every number of a page with its source, for the page and for `report.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import FINAL, table_noise
from dpsweep.accounting.names.stored_classes import class_name, fields_of, name_of
from dpsweep.accounting.notation import delta_down, delta_up, epsilon_down, epsilon_up, noise_down, rate_up, typed
from dpsweep.accounting.records.step_log import steps_priced
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.charges import Bill, exact_sum
from dpsweep.reports.content.sweep_table import Alone, State, Sweep

LEDGER, PLAN, RESULTS = "ledger", "plan.json", "trials/*/result.json"
ALONE = "priced by the accountants from one run's event in plan.json"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A value, its text on the page, and its source."""

    value: float | int | str | None
    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The declared settings of all runs' steps; a tuple holds the distinct values in ascending order.

    If a run's noise multiplier changes, `noise_multipliers` has its range and `bounds` the schedule.
    """

    sample_rates: tuple[float, ...]
    batches: tuple[str, ...]
    epochs: tuple[int, ...]
    allocations: tuple[int, ...]
    noise_multipliers: tuple[float | str, ...]
    bounds: tuple[str, ...]
    steps: tuple[int, ...]
    lost_steps: tuple[int, ...]
    counts_std: tuple[float, ...]
    minimised_noises: tuple[float, ...]


def read_facts(sweep: Sweep, bill: Bill) -> dict[str, Fact]:
    """The page's numbers by name."""
    facts = dict(_prices(bill)) | dict(_states(sweep, bill)) | dict(_settings(sweep))
    if sweep.plan.event.final is not None:
        facts |= dict(_by_part(bill))
    alone = None if is_one_run(sweep, bill) else alone_epsilon(sweep)
    if alone is not None and alone < bill.epsilon:
        facts["alone_epsilon"] = Fact(value=alone, text=epsilon_up(alone), source=ALONE)
    return facts


def is_one_run(sweep: Sweep, bill: Bill) -> bool:
    """Whether what was charged is one run and nothing else, so that the price of the search is that of the run."""
    runs, whole = sweep.plan.trials + sweep.plan.finals, sweep.plan.event.parts
    return (
        len(runs) == 1
        and not bill.repeats
        and whole.keys() == (own := runs[0].event.parts).keys()
        and all(events.same(whole[part], own[part]) for part in whole)
    )


def alone_epsilon(sweep: Sweep) -> float | None:
    """The epsilon of the best run alone, or of the most expensive one if there is no winner; never a search's price."""
    if sweep.winner is not None:
        epsilon: float | None = sweep.row(sweep.winner)["epsilon_alone"]
        return epsilon
    alone = Alone(delta=sweep.plan.delta, adjacency=sweep.plan.adjacency, quoted={})
    bounds = [epsilon for trial in sweep.plan.trials if (epsilon := alone.epsilon(trial)) is not None]
    return max(bounds, default=None)


def settings(sweep: Sweep) -> Settings:
    """The declared settings of the steps, from the events that were priced."""
    every = sweep.plan.trials + sweep.plan.finals
    trials = () if sweep.plan.public else every  # a non-private event states no sampling or noise
    leaves = [leaf for trial in trials for leaf, _ in events.flatten(trial.event.training)]
    epochs = [(events.is_allocation(leaf), epoch[0]) for leaf in leaves if (epoch := events.as_epoch(leaf)) is not None]
    others = [leaf for leaf in leaves if events.as_epoch(leaf) is None and events.output_noise(leaf) is None]
    steps = [step for leaf in others if (step := events.as_gaussian_step(leaf)) is not None]
    fixed = [batch for leaf in leaves if (batch := events.as_fixed_size_step(leaf)) is not None]
    stds = {
        std
        for trial in every
        if trial.event.validation is not None
        for leaf, _ in events.flatten(trial.event.validation)
        if (std := table_noise(leaf)) is not None
    }
    return Settings(
        sample_rates=tuple(sorted({rate for rate, _ in steps})),
        batches=tuple(sorted({f"{size} of {records}" for size, records, _ in fixed})),
        epochs=tuple(sorted({size for random, size in epochs if not random})),
        allocations=tuple(sorted({size for random, size in epochs if random})),
        noise_multipliers=_noises(sweep),
        bounds=_bounds(sweep),
        steps=tuple(sorted({trial.config["steps"] for trial in sweep.plan.trials})),
        lost_steps=tuple(sorted({steps_priced(trial) - trial.config["steps"] for trial in sweep.plan.trials} - {0})),
        counts_std=tuple(sorted(stds)),
        minimised_noises=tuple(sorted({noise for leaf in leaves if (noise := events.output_noise(leaf)) is not None})),
    )


def to_json(facts: Mapping[str, Fact]) -> dict[str, dict[str, object]]:
    """The facts as plain values for JSON."""
    return {name: {"value": fact.value, "text": fact.text, "source": fact.source} for name, fact in facts.items()}


def _prices(bill: Bill) -> Iterator[tuple[str, Fact]]:
    pairs = {
        "honest": ((bill.epsilon, bill.delta), epsilon_up, delta_up, "sum of this plan's charges"),
        "other": (bill.others, epsilon_up, delta_up, "sum of the account's other charges"),
        "reserved": (bill.reserved, epsilon_up, delta_up, "sum of the account's charges"),
        "left": (bill.left, epsilon_down, delta_down, "budget less the account's charges"),
        "budget": (bill.budget, typed, typed, "the account's budget"),
    }
    for name, ((epsilon, delta), write_epsilon, write_delta, origin) in pairs.items():
        source = f"{LEDGER}: {origin}"
        yield f"{name}_epsilon", Fact(value=epsilon, text=write_epsilon(epsilon), source=source)
        yield f"{name}_delta", Fact(value=delta, text=write_delta(delta), source=source)


def _by_part(bill: Bill) -> Iterator[tuple[str, Fact]]:
    """The price of the search and of the final run, where they read different records."""
    for name, final in (("search_epsilon", False), ("final_epsilon", True)):
        own = [[cost for part, cost in one.parts.items() if part.startswith(FINAL) is final] for one in bill.charges]
        epsilon = exact_sum(max(costs, default=0.0) for costs in own)
        yield name, Fact(value=epsilon, text=epsilon_up(epsilon), source=f"{LEDGER}: this plan's charges, by part")


def _states(sweep: Sweep, bill: Bill) -> Iterator[tuple[str, Fact]]:
    yield "points", _whole(len(sweep.plan.trials), PLAN)
    runs = sweep.all_runs
    yield "runs", _whole(len(runs), f"{PLAN}, or the draw that is stored beside it")
    runs_to_come = 0 if sweep.plan.proposed is None else sweep.plan.proposed.trials - len(sweep.table)
    runs_to_come += (
        bool(sweep.plan.finals) and sweep.final.empty and not (sweep.rule.draws_in_secret and sweep.runs.over)
    )
    yield "runs_to_come", _whole(runs_to_come, f"{PLAN}, and the proposals that are stored beside it")
    for state in State:
        number = int((runs["state"] == state).sum())
        yield f"points_{state.name.lower()}", _whole(number, f"{RESULTS} and {LEDGER}: started attempts")
    charged = sum(charge.runs for charge in bill.charges)
    yield "runs_charged", _whole(charged, f"{LEDGER}: this plan's charges")
    yield "runs_started", _whole(int(runs["attempts_started"].sum()), f"{LEDGER}: this plan's starts")
    yield (
        "repeats_charged",
        _whole(sum(charge.runs for charge in bill.repeats), f"{LEDGER}: charges for repeats"),
    )
    yield "ledger_entries", _whole(sweep.entries, f"{LEDGER}: its verified chain")
    seconds = sum(result.seconds for result in sweep.results.values())
    yield "seconds", Fact(value=seconds, text=notation.duration(seconds), source=RESULTS)


def _settings(sweep: Sweep) -> Iterator[tuple[str, Fact]]:
    declared = settings(sweep)
    for name, values in (
        ("sample_rate", declared.sample_rates),
        ("batches", declared.batches),
        ("epochs", declared.epochs),
        ("allocations", declared.allocations),
        ("noise_multiplier", declared.noise_multipliers),
        ("bounds", declared.bounds),
        ("steps", declared.steps),
        ("lost_steps", declared.lost_steps),
        ("counts_std", declared.counts_std),
        ("minimised_noise", declared.minimised_noises),
    ):
        if values:
            texts = [_setting(value, rate_up if name == "sample_rate" else noise_down) for value in values]
            text = texts[0] if len(texts) == 1 else notation.listed(texts)
            single = values[0] if len(values) == 1 else text
            yield name, Fact(value=single, text=text, source=f"{PLAN}: the events")


def _setting(value: float | str, write: Callable[[float], str]) -> str:
    """A number rounded to the safe side: sampling rates up, noise down."""
    return write(value) if isinstance(value, float) else str(value)


def _noises(sweep: Sweep) -> tuple[float | str, ...]:
    """The runs' noise multipliers; for one that changes, its smallest and its largest value."""
    pairs = set()
    for trial in sweep.plan.trials + sweep.plan.finals:
        leaves = [leaf for leaf, _ in events.flatten(trial.event.training)]
        steps = [
            events.as_gaussian_step(leaf) or events.as_fixed_size_step(leaf) or events.as_epoch(leaf) for leaf in leaves
        ]
        noises = [step[-1] for step in steps if step is not None]
        pairs |= {(min(noises), max(noises))} if noises else set()
    ranges = sorted(pairs)
    changing = (f"{noise_down(low)} rising to {noise_down(high)}" for low, high in ranges if low < high)
    return (*(low for low, high in ranges if low == high), *changing)


def _bounds(sweep: Sweep) -> tuple[str, ...]:
    """The runs' clip schedules in words; empty if no clip norm changes."""
    schedules = [trial.config["clip_schedule"] for trial in sweep.plan.trials]
    changing = any(name_of(schedule) != "constant_clip_norm" for schedule in schedules)
    return tuple(sorted({_schedule(schedule) for schedule in schedules})) if changing else ()


def _schedule(config: Mapping[str, object]) -> str:
    """A clip schedule in words, from its configuration.

    >>> _schedule({"kind": "linear_clip_norm", "least": 0.5, "over": None, "noise": "absolute"})
    'linear: least 0.5, noise absolute'
    """
    fields = ", ".join(f"{key} {value}" for key, value in fields_of(config).items() if value is not None)
    return f"{class_name(config).lower()}: {fields}" if fields else class_name(config).lower()


def _whole(value: int, source: str) -> Fact:
    return Fact(value=value, text=str(value), source=source)
