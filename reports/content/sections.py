"""The parts of a page as plain values, texts already written: the page only lays them out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dpsweep.accounting.names.stored_classes import class_name
from dpsweep.accounting.notation import noise_down
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.charges import Bill
from dpsweep.reports.content.facts import Fact
from dpsweep.reports.content.formatting import axis_label, count, method_label, number
from dpsweep.reports.content.sweep_table import State, Sweep, noise_multiplier

SECRET = (
    "Tries of a secret draw. How many there are, which, how they did and how long they took is covered by no price: "
    "none of it may be passed on. release/ holds what may."
)
NOTHING = "The search gave nothing. Why is not told: its price does not cover that."


@dataclass(frozen=True, kw_only=True)
class Best:
    """A configuration that came out on top, of all or of its method; hidden texts are empty.

    `also` are other numbers that the counts of its score tell, with their intervals.
    """

    method: str
    overall: bool
    settings: tuple[tuple[str, str], ...]
    score: str
    interval: str
    also: tuple[tuple[str, str], ...] = ()


class Tone(StrEnum):
    """How a stretch of a bar is coloured, by what it means."""

    OTHERS = "others"
    OWN = "own"
    TROUBLE = "trouble"
    LEFT = "left"


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One stretch of a bar, as a share of the whole."""

    name: str
    tone: Tone
    start: float
    share: float
    text: str


def best(sweep: Sweep, *, trials: Sequence[str], with_score: bool) -> tuple[Best, ...]:
    """The named winners, the best of all first; `with_score` says whether the rule discloses scores."""
    rows = sorted((sweep.row(trial) for trial in trials), key=lambda row: row["trial"] != sweep.winner)
    return tuple(
        Best(
            method=method_label(str(row["method"])),
            overall=row["trial"] == sweep.winner,
            settings=_settings(sweep, str(row["trial"])),
            score=f"{notation.percent(row['accuracy'])} %" if with_score else "",
            interval=_interval(row) if with_score else "",
            also=tuple(_also(sweep, str(row["trial"]))) if with_score else (),
        )
        for row in rows
    )


def _also(sweep: Sweep, trial: str) -> Iterator[tuple[str, str]]:
    """What the counts of a score tell besides."""
    result = sweep.results.get(trial)
    score: Mapping[str, Any] = {} if result is None or result.score is None else result.score
    for name, other in score.get("also", {}).items():
        yield f"{name}{sweep.positive}", f"{notation.percent(other['value'])} % ({_ends(other['low'], other['high'])})"


def outcome(sweep: Sweep) -> str:
    """That a search by a secret draw is over and nothing won, which its rule lets out; else nothing."""
    return NOTHING if sweep.runs.drawn and sweep.runs.over and sweep.winner is None else ""


def errors(sweep: Sweep) -> tuple[str, ...]:
    """What failed runs said, in the table's order; for the curator only."""
    said = enumerate(sweep.table["error"], start=1)
    return tuple(f"{sweep.runs.noun.capitalize()} {place}: {error}" for place, error in said if error is not None)


def budget(bill: Bill, facts: Mapping[str, Fact]) -> tuple[Segment, ...]:
    """The account's epsilon: other sweeps, this one, and what is left; together they are the whole bar.

    Nothing where the data were declared public: no part of infinity is used up.
    """
    if math.isinf(bill.budget[0]):
        return ()
    total = max(bill.budget[0], bill.reserved[0])
    segments: list[Segment] = []
    start = 0.0
    for name, tone, value, fact in (
        ("other sweeps", Tone.OTHERS, bill.others[0], facts["other_epsilon"]),
        ("this sweep", Tone.OWN, bill.epsilon, facts["honest_epsilon"]),
        ("left", Tone.LEFT, bill.left[0], facts["left_epsilon"]),
    ):
        share = value / total if total > 0 else 0.0
        segments.append(Segment(name=name, tone=tone, start=start, share=share, text=fact.text))
        start += share
    return tuple(segment for segment in segments if segment.share > 0 or segment.tone is Tone.LEFT)


def trouble(facts: Mapping[str, Fact]) -> tuple[str, ...]:
    """What went wrong, in words; empty where nothing did."""
    meanings = {
        State.DIVERGED: "diverged: parameters ceased to be finite",
        State.FAILED: "failed with an error",
        State.KILLED: "started without a result: killed, or still running",
        State.NOT_RUN: "never started",
    }
    found = [
        f"{facts[f'points_{state.name.lower()}'].text} {meaning}"
        for state, meaning in meanings.items()
        if facts[f"points_{state.name.lower()}"].value
    ]
    if facts["runs_to_come"].value:
        found.append(f"{facts['runs_to_come'].text} not proposed yet")
    repeats = facts["repeats_charged"]
    return (*found, f"{repeats.text} charged again to be repeated") if repeats.value else tuple(found)


def _settings(sweep: Sweep, trial: str) -> tuple[tuple[str, str], ...]:
    """A point's swept values, and its noise where points differ in it."""
    row = sweep.row(trial)
    settings = {axis_label(key): number(row[key]) for key in sweep.axes if row[key] is not None}
    noise = row["noise_multiplier"]
    planned = {noise_multiplier(trial) for trial in sweep.plan.trials} - {None}
    if noise is not None and len(planned) > 1:
        settings["noise_multiplier"] = noise_down(noise)
    return tuple(settings.items())


def _interval(row: Mapping[str, Any]) -> str:
    low, high = row["accuracy_low"], row["accuracy_high"]
    return "" if low is None or high is None else _ends(low, high)


def _ends(low: float, high: float) -> str:
    return f"95 %: {notation.interval(low, high)}"


def headline(sweep: Sweep, facts: Mapping[str, Fact]) -> str:
    """What was searched, in one line."""
    plan = sweep.plan.trials
    methods = notation.listed([method_label(name) for name in dict.fromkeys(trial.method for trial in plan)])
    models = dict.fromkeys(class_name(trial.config.get("model", {})) for trial in plan)
    batches = dict.fromkeys(trial.config.get("sampler", {}).get("batch_size") for trial in plan)
    known = [number(batch) for batch in batches if batch is not None]
    parts = [
        f"{_runs(sweep)}{count(len(plan), 'point')} of {methods}",
        notation.listed([model for model in models if model]),
        f"{facts['steps'].text} steps" if "steps" in facts else "",
        f"expected batch size {notation.listed(known)}" if known else "",
    ]
    return " · ".join(part for part in parts if part)


def _runs(sweep: Sweep) -> str:
    """How many runs a sampler chooses points for."""
    proposed = sweep.plan.proposed
    return "" if proposed is None else f"{count(proposed.trials, 'run')} proposed among "
