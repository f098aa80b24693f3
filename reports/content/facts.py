"""Every number of a page with the place it comes from: what the page writes, and what `report.json` lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dpsweep.accounting.events import build as events
from dpsweep.accounting.names.stored_classes import class_name, fields_of
from dpsweep.accounting.notation import delta_down, delta_up, epsilon_down, epsilon_up, noise_down, rate_up, typed
from dpsweep.accounting.records.step_log import steps_priced
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.charges import Bill
from dpsweep.reports.content.sweep_table import Alone, State, Sweep

LEDGER, PLAN, RESULTS = "ledger", "plan.json", "trials/*/result.json"
ALONE = "priced by the accountants from one run's event in plan.json"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A value, how the page writes it, and its source."""

    value: float | int | str | None
    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all runs declare about their steps; a tuple holds the distinct values in ascending order.

    A run whose noise multiplier changes has a range of them, and `bounds` says how.
    """

    sample_rates: tuple[float, ...]
    batches: tuple[str, ...]
    epochs: tuple[int, ...]
    noise_multipliers: tuple[float | str, ...]
    bounds: tuple[str, ...]
    steps: tuple[int, ...]
    lost_steps: tuple[int, ...]
    counts_std: tuple[float, ...]
    minimised_noises: tuple[float, ...]


def read_facts(sweep: Sweep, bill: Bill) -> dict[str, Fact]:
    """The page's numbers by name."""
    found = dict(_prices(bill)) | dict(_states(sweep, bill)) | dict(_settings(sweep))
    alone = alone_epsilon(sweep)
    if alone is not None:
        found["alone_epsilon"] = Fact(value=alone, text=epsilon_up(alone), source=ALONE)
    return found


def alone_epsilon(sweep: Sweep) -> float | None:
    """What the best run alone would be quoted at, the dearest where nothing won; never a search's price."""
    if sweep.winner is not None:
        epsilon: float | None = sweep.row(sweep.winner)["epsilon_alone"]
        return epsilon
    alone = Alone(delta=sweep.plan.delta, adjacency=sweep.plan.adjacency, quoted={})
    known = [epsilon for trial in sweep.plan.trials if (epsilon := alone.epsilon(trial)) is not None]
    return max(known, default=None)


def settings(sweep: Sweep) -> Settings:
    """The declared steps, read off the events that were priced."""
    told = [] if sweep.plan.public else sweep.plan.trials  # an access that protects nobody tells of no sample or noise
    leaves = [leaf for trial in told for leaf, _ in events.flatten(trial.event.training)]
    epochs = [epoch for leaf in leaves if (epoch := events.as_epoch(leaf)) is not None]
    others = [leaf for leaf in leaves if events.as_epoch(leaf) is None and not events.is_output_perturbation(leaf)]
    steps = [step for leaf in others if (step := events.as_gaussian_step(leaf)) is not None]
    fixed = [batch for leaf in leaves if (batch := events.as_fixed_size_step(leaf)) is not None]
    stds = {
        step[1]
        for trial in sweep.plan.trials
        if trial.event.validation is not None
        for leaf, _ in events.flatten(trial.event.validation)
        if (step := events.as_gaussian_step(leaf)) is not None
    }
    return Settings(
        sample_rates=tuple(sorted({rate for rate, _ in steps})),
        batches=tuple(sorted({f"{size} of {records}" for size, records, _ in fixed})),
        epochs=tuple(sorted({size for size, _ in epochs})),
        noise_multipliers=_noises(sweep),
        bounds=_bounds(sweep),
        steps=tuple(sorted({trial.config["steps"] for trial in sweep.plan.trials})),
        lost_steps=tuple(sorted({steps_priced(trial) - trial.config["steps"] for trial in sweep.plan.trials} - {0})),
        counts_std=tuple(sorted(stds)),
        minimised_noises=tuple(
            sorted({leaf.noise_multiplier for leaf in leaves if events.is_output_perturbation(leaf)})
        ),
    )


def to_json(facts: Mapping[str, Fact]) -> dict[str, dict[str, object]]:
    """Plain values."""
    return {name: {"value": fact.value, "text": fact.text, "source": fact.source} for name, fact in facts.items()}


def _prices(bill: Bill) -> Iterator[tuple[str, Fact]]:
    pairs = {
        "honest": ((bill.epsilon, bill.delta), epsilon_up, delta_up, "sum of this plan's charges"),
        "other": (bill.others, epsilon_up, delta_up, "sum of the account's other charges"),
        "reserved": (bill.reserved, epsilon_up, delta_up, "sum of the account's charges"),
        "left": (bill.left, epsilon_down, delta_down, "budget less the account's charges"),
        "budget": (bill.budget, typed, typed, "the account's budget"),
    }
    for name, ((epsilon, delta), write_epsilon, write_delta, what) in pairs.items():
        source = f"{LEDGER}: {what}"
        yield f"{name}_epsilon", Fact(value=epsilon, text=write_epsilon(epsilon), source=source)
        yield f"{name}_delta", Fact(value=delta, text=write_delta(delta), source=source)


def _states(sweep: Sweep, bill: Bill) -> Iterator[tuple[str, Fact]]:
    yield "points", _whole(len(sweep.plan.trials), PLAN)
    yield "runs", _whole(len(sweep.table), f"{PLAN}, or the draw that is stored beside it")
    turns = 0 if sweep.plan.proposed is None else sweep.plan.proposed.trials - len(sweep.table)
    yield "runs_to_come", _whole(turns, f"{PLAN}, and the proposals that are stored beside it")
    for state in State:
        many = int((sweep.table["state"] == state).sum())
        yield f"points_{state.name.lower()}", _whole(many, f"{RESULTS} and {LEDGER}: started attempts")
    runs = sum(charge.runs for charge in bill.charges)
    yield "runs_charged", _whole(runs, f"{LEDGER}: this plan's charges")
    yield "runs_started", _whole(int(sweep.table["attempts_started"].sum()), f"{LEDGER}: this plan's starts")
    yield (
        "repeats_charged",
        _whole(sum(charge.runs for charge in bill.repeats), f"{LEDGER}: charges for repeats"),
    )
    yield "ledger_entries", _whole(sweep.entries, f"{LEDGER}: its verified chain")
    seconds = sum(result.seconds for result in sweep.results.values())
    yield "seconds", Fact(value=seconds, text=notation.duration(seconds), source=RESULTS)


def _settings(sweep: Sweep) -> Iterator[tuple[str, Fact]]:
    found = settings(sweep)
    for name, values in (
        ("sample_rate", found.sample_rates),
        ("batches", found.batches),
        ("epochs", found.epochs),
        ("noise_multiplier", found.noise_multipliers),
        ("bounds", found.bounds),
        ("steps", found.steps),
        ("lost_steps", found.lost_steps),
        ("counts_std", found.counts_std),
        ("minimised_noise", found.minimised_noises),
    ):
        if values:
            texts = [_setting(value, rate_up if name == "sample_rate" else noise_down) for value in values]
            written = texts[0] if len(texts) == 1 else notation.listed(texts)
            single = values[0] if len(values) == 1 else written
            yield name, Fact(value=single, text=written, source=f"{PLAN}: the events")


def _setting(value: float | str, write: Callable[[float], str]) -> str:
    """A number as it is written on its honest side: sampling rates up, noise down."""
    return write(value) if isinstance(value, float) else str(value)


def _noises(sweep: Sweep) -> tuple[float | str, ...]:
    """The runs' noise multipliers, or the least and the largest of those that change."""
    found = set()
    for trial in sweep.plan.trials:
        leaves = [leaf for leaf, _ in events.flatten(trial.event.training)]
        steps = [events.as_gaussian_step(leaf) or events.as_fixed_size_step(leaf) for leaf in leaves]
        noises = [step[-1] for step in steps if step is not None]
        found |= {(min(noises), max(noises))} if noises else set()
    ranges = sorted(found)
    changing = (f"{noise_down(low)} rising to {noise_down(high)}" for low, high in ranges if low < high)
    return (*(low for low, high in ranges if low == high), *changing)


def _bounds(sweep: Sweep) -> tuple[str, ...]:
    """The runs' bound schedules in words; none where no bound changes."""
    schedules = [trial.config.get("bounds") for trial in sweep.plan.trials]
    found = {"constant" if schedule is None else _schedule(schedule) for schedule in schedules}
    return tuple(sorted(found)) if found != {"constant"} else ()


def _schedule(config: Mapping[str, object]) -> str:
    """A bound schedule in words, from its configuration.

    >>> _schedule({"kind": "linear_clip_norm", "least": 0.5, "over": None, "noise": "absolute"})
    'linear: least 0.5, noise absolute'
    """
    given = ", ".join(f"{key} {value}" for key, value in fields_of(config).items() if value is not None)
    return f"{class_name(config).lower()}: {given}"


def _whole(value: int, source: str) -> Fact:
    return Fact(value=value, text=str(value), source=source)
