"""Spending of the budget by outcome of runs, in an additive unit: Renyi divergence at the order that gives epsilon."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.notation import epsilon_up
from dpsweep.reports.content.sections import Segment, Tone
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit

SOURCE = "the ledger's charges and starts, result files, and Renyi curves of the events in plan.json"
REPEATED = "run again"
ACCOUNTANT = Rdp()

_TONES = {State.FINISHED.value: Tone.OWN, State.NOT_RUN.value: Tone.LEFT, REPEATED: Tone.OTHERS}


@dataclass(frozen=True, kw_only=True)
class Part:
    """Charged runs with the same outcome, and their total Renyi divergence."""

    name: str
    runs: int
    divergence: float


def with_shares(sweep: Sweep) -> Sweep:
    """The sweep with a column `share`: the share of the bill of all attempts at a run, None if it is unknown."""
    shares: list[float | None] = [None] * len(sweep.table)
    if _tells(sweep):
        charged = [[run.trial.event.training] * run.charged for run in sweep.runs.rows]
        try:
            place = _deciding(sweep, [event for own in charged for event in own])
            spent = [sum(_divergence(sweep, event, place) for event in own) for own in charged]
        except UnsupportedEvent:
            spent = []
        if sum(spent) > 0:
            shares = [own / sum(spent) for own in spent]
    return replace(sweep, table=sweep.table.assign(share=pd.Series(shares, dtype=object)))


def _tells(sweep: Sweep) -> bool:
    """Whether the bill is the sum of its runs' shares."""
    plan = sweep.plan
    every_run = plan.proposed is None and plan.paid == tuple(trial.event for trial in plan.trials)
    return every_run and not (sweep.rule.draws_in_secret or plan.public)


def _deciding(sweep: Sweep, charged: Sequence[DpEvent]) -> int:
    """The index of the Renyi order that gives the epsilon of the whole bill."""
    return ACCOUNTANT.deciding(events.compose(charged), sweep.plan.delta, sweep.plan.adjacency)


def _divergence(sweep: Sweep, event: DpEvent, place: int) -> float:
    return float(ACCOUNTANT.curve(event, sweep.plan.adjacency)[place])


def spending(sweep: Sweep) -> Exhibit | None:
    """Spending of finished, broken and repeated runs; None if the runs are one mechanism or have no finite bound."""
    if not _tells(sweep):
        return None
    charged = [*_charged(sweep)]
    whole = [event for _, event in charged]
    try:
        one_more = _epsilon([*whole, max(whole, key=lambda event: _epsilon([event], sweep))], sweep)
        added = one_more - _epsilon(whole, sweep)
        parts, order = _parts(sweep, charged)
    except UnsupportedEvent:
        return None
    if not math.isfinite(added):
        return None
    return Exhibit(
        key="spending",
        title="Where the budget went",
        note="Epsilons do not add; Renyi divergences of one order do. This is the divergence of training at order "
        f"{order:.4g}, at which the Moments Accountant has its smallest epsilon. Scores use other records, which are "
        "not trained on: the price of training covers them.",
        source=SOURCE,
        findings=(
            f"One more run, at the price of the most expensive one, would add epsilon {epsilon_up(added)}, by RDP.",
        ),
        bar=tuple(_segments(parts)),
        sheets=(_sheet(parts),),
    )


def _charged(sweep: Sweep) -> Iterator[tuple[str, DpEvent]]:
    """The outcome and the charged event of every charged attempt; a run's further attempts count as run again."""
    for run, state in zip(sweep.runs.rows, sweep.table["state"], strict=True):
        for attempt in range(run.charged):
            yield (REPEATED if attempt else str(state)), run.trial.event.training


def _parts(sweep: Sweep, charged: Sequence[tuple[str, DpEvent]]) -> tuple[list[Part], float]:
    """The parts in the order of the states, and the Renyi order of their divergences."""
    place = _deciding(sweep, [event for _, event in charged])
    runs, spent = Counter(name for name, _ in charged), defaultdict[str, float](float)
    for name, event in charged:
        spent[name] += _divergence(sweep, event, place)
    names = [name for name in (*map(str, State), REPEATED) if runs[name]]
    return [Part(name=name, runs=runs[name], divergence=spent[name]) for name in names], ACCOUNTANT.orders[place]


def _epsilon(charged: Sequence[DpEvent], sweep: Sweep) -> float:
    return ACCOUNTANT.epsilon(events.compose(charged), sweep.plan.delta, sweep.plan.adjacency)


def _segments(parts: Sequence[Part]) -> Iterator[Segment]:
    whole, start = sum(part.divergence for part in parts), 0.0
    for part in parts:
        share = part.divergence / whole
        yield Segment(
            name=part.name, tone=_TONES.get(part.name, Tone.TROUBLE), start=start, share=share, text=f"{share:.1%}"
        )
        start += share


def _sheet(parts: Sequence[Part]) -> Sheet:
    whole = sum(part.divergence for part in parts)
    rows = tuple(
        (
            Item(text=part.name),
            Item(text=str(part.runs), key=part.runs),
            Item(text=epsilon_up(part.divergence), key=part.divergence),
            Item(text=f"{part.divergence / whole:.1%}", key=part.divergence / whole),
        )
        for part in parts
    )
    columns = ("runs", "how many", "divergence", "share")
    return Sheet(caption="Charged runs by outcome", columns=columns, rows=rows)
