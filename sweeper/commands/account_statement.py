"""Statement of an account for people: its charges, its reserved and remaining amounts, and the runs that still fit.

The statement shows *reserved* and *left*, each amount as the account's policy counts it. "Spent so far" would be a
different claim, which needs a different theorem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.chain.sqlite_file import ROLE
from dpsweep.accounting.codec import plain
from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.book import (
    DELTA,
    EPSILON,
    Charged,
    Restored,
    Spending,
    SpentOutside,
    Statement,
    body_of_kind,
    read_body,
)
from dpsweep.accounting.ledger.statement import (
    charge_facts,
    charged_event,
    limit_text,
    paid_attempts,
    policy_name,
    sharing_sentence,
)
from dpsweep.accounting.ledger.upkeep import writer_text
from dpsweep.accounting.notation import (
    delta_text_rounded_down,
    delta_text_rounded_up,
    epsilon_text_rounded_down,
    epsilon_text_rounded_up,
    guarantee_text,
)
from dpsweep.accounting.pricing.calibration import LARGEST_COUNT
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.price import NOT_PROVEN, proven_gaussian_mu
from dpsweep.accounting.pricing.remaining_budget import RemainingBudget
from dpsweep.accounting.printing import print_line
from dpsweep.reports.content.formatting import count_text
from dpsweep.sweeper.terminal import FRAME, Terminal, TerminalTable

SEARCH = "search"

PANEL = Panel(claimants=(Pld(), Rdp()))
"""The accountants that price further runs: the tighter of two, as with `accountant=auto`."""


@dataclass(frozen=True, kw_only=True)
class FurtherRuns:
    """The number of further runs or searches like those of the last charge, of plan `plan`, that still fit.

    Runs are those of one more sweep. `sweeps` counts further charges like the last one, of `each` runs: fewer runs in
    all, since a sweep of many runs costs less than several of a few.
    """

    number: int
    what: str
    plan: str
    sweeps: int
    each: int

    def __str__(self) -> str:
        many = self.number >= LARGEST_COUNT
        if many or self.what == SEARCH or not self.number:
            how_many = "any number of" if many else str(self.number or "no")
            ending = "" if self.number == 1 else "es" if self.what == SEARCH else "s"
            return f"{how_many} more {self.what}{ending} like the last one"
        runs, one_sweep = count_text(self.each, "run"), f"one sweep of {count_text(self.number, 'run')}"
        if not self.sweeps:
            return f"{one_sweep}, and none like the last one ({runs})"
        sweeps = "one more sweep" if self.sweeps == 1 else f"{self.sweeps} more sweeps"
        return f"{sweeps} like the last one ({runs})" + (f", or {one_sweep}" if self.number > self.each else "")


def further_runs_that_fit(statement: Statement) -> FurtherRuns | None:
    """The further runs of the last charge's kind that still fit; None without a charge, or if no accountant prices it.

    Runs are counted as one more plan of them, at the same delta; if their costs differ, in the same mixture. A search
    that does not reveal its runs is counted as a whole.
    """
    if statement.budget.promises_nothing:
        return None
    charges = [entry for entry in statement.entries if isinstance(body := read_body(entry), Charged) and body.event]
    if not charges:
        return None
    last, body = charges[-1], body_of_kind(charges[-1], Charged)
    times = RemainingBudget(balance=statement.balance, panel=PANEL, delta=0.0).number_of_admissible_repeats(body.takes)
    if _is_charge_of_hidden_search(last) or charge_facts(body).final:
        return FurtherRuns(number=times, what=SEARCH, plan=last.plan, sweeps=times, each=1)
    room = RemainingBudget(balance=statement.balance, panel=PANEL, delta=body.delta)
    try:
        event, runs = charged_event(body) or PlanEvent(training=events.no_access()), paid_attempts(body)
        number = _largest_admitted_count(room, lambda more: _event_of_more_runs(event, more, runs))
        return FurtherRuns(number=number, what="run", plan=last.plan, sweeps=times, each=runs)
    except DpsweepError:
        return None


def print_account(statement: Statement) -> None:
    """Prints an account: a row for every charge, then its amounts, then the runs that still fit."""
    terminal = Terminal(soft_wrap=True)
    closed = " (closed: nothing more is charged on it)" if statement.balance.closed else ""
    terminal.print_line(f"{statement.account}: {guarantee_text(statement.budget)}{closed}", style="bold")
    if statement.charges:
        terminal.print_table(_table_of_charges(statement))
    terminal.print_table(_table_of_reserved_and_left(statement))
    print_line(sharing_sentence(statement.balance.policy, statement.budget))
    if (fits := further_runs_that_fit(statement)) is not None:
        print_line(f"Left: {fits}.")


def to_json(statement: Statement) -> dict[str, Any]:
    """The same facts as plain values."""
    budget = statement.budget
    amounts = _reserved_left_and_limit_by_amount(statement)
    fits = further_runs_that_fit(statement)
    form: dict[str, Any] = plain(
        {
            "account": statement.account,
            "adjacency": budget.adjacency.value,
            "unit": budget.unit,
            "closed": statement.balance.closed,
            "budget": {"epsilon": budget.epsilon, "delta": budget.delta},
            "policy": statement.balance.policy.to_json() | {"name": policy_name(statement.balance.policy)},
            "sharing": sharing_sentence(statement.balance.policy, budget),
            "reserved": {name: float(reserved) for name, (reserved, _, _) in amounts.items()},
            "left": {name: float(left) for name, (_, left, _) in amounts.items()},
            "limits": {name: float(limit) for name, (_, _, limit) in amounts.items()},
            "fits": None if fits is None else asdict(fits),
            "charges": [_charge_to_json(entry, budget.adjacency) for entry in statement.charges],
        }
    )
    return form


def purpose_of_charge_text(entry: Entry) -> str:
    """The purpose of a charge: a number of runs, a search that hides its runs, or the note of an outside charge."""
    if isinstance(note := read_body(entry), (SpentOutside, Restored)):
        return note.note
    body = body_of_kind(entry, Charged)
    if _is_charge_of_hidden_search(entry):
        return "1 search"
    facts = charge_facts(body)
    spares = body.spares - facts.final
    if body.trials:
        extra = [count_text(spares, "spare attempt")] if spares else []
        words = [count_text(len(body.trials), "run"), *extra]
    else:
        words = [f"{count_text(spares, 'run')} of points to be proposed"]
    words += [count_text(facts.final, "final run")] if facts.final else []
    return " and ".join(words) + ("" if facts.reason == "plan" else " again")


def _table_of_charges(statement: Statement) -> TerminalTable:
    """A row for every charge: its claim, and its share of the policy's other amounts, which are not claims."""
    table = TerminalTable(box=FRAME, pad_edge=False)
    others = [name for name in statement.balance.policy.amount_limits(statement.budget) if name not in (EPSILON, DELTA)]
    for column in ("plan", "what for"):
        table.add_column(column)
    for column in (EPSILON, DELTA, *others):
        table.add_column(column, justify="right")
    for column in ("when", "who"):
        table.add_column(column)
    for entry in statement.charges:
        body = body_of_kind(entry, Spending)
        table.add_row(
            entry.plan or entry.kind,
            purpose_of_charge_text(entry),
            epsilon_text_rounded_up(body.epsilon),
            delta_text_rounded_up(body.delta),
            *(epsilon_text_rounded_up(body.takes[name]) if name in body.takes else "none" for name in others),
            entry.at[:10],
            writer_text(entry),
        )
    return table


def _table_of_reserved_and_left(statement: Statement) -> TerminalTable:
    table = TerminalTable(box=None, pad_edge=False)
    for column in ("", "reserved", "left", "of"):
        table.add_column(column, justify="right" if column else "left")
    for name, (reserved, left, limit) in _reserved_left_and_limit_by_amount(statement).items():
        up, down = (
            (delta_text_rounded_up, delta_text_rounded_down)
            if name == DELTA
            else (epsilon_text_rounded_up, epsilon_text_rounded_down)
        )
        table.add_row(name, up(reserved), down(left), limit_text(name, limit))
    return table


def _charge_to_json(entry: Entry, adjacency: Adjacency) -> dict[str, Any]:
    body = body_of_kind(entry, Spending)
    mu = proven_gaussian_mu([charged_event(body)], adjacency) if isinstance(body, Charged) else None
    return {
        "kind": entry.kind,
        "plan": entry.plan,
        "for": purpose_of_charge_text(entry),
        "reason": charge_facts(body).reason if isinstance(body, Charged) else entry.kind,
        "runs": len(body.trials) if isinstance(body, Charged) else 0,
        "spares": body.spares if isinstance(body, Charged) else 0,
        "epsilon": body.epsilon,
        "delta": body.delta,
        "gaussian_mu": NOT_PROVEN if mu is None else mu,
        "takes": dict(body.takes),
        "at": entry.at,
        "who": entry.who,
        "writer": "database role" if entry.who.startswith(ROLE) else "self-declared",
    }


def _reserved_left_and_limit_by_amount(statement: Statement) -> dict[str, tuple[Decimal, Decimal, Decimal]]:
    """(reserved, left, limit) of every amount that the policy counts."""
    balance = statement.balance
    room = RemainingBudget(balance=balance, panel=PANEL, delta=0.0)
    return {
        name: (balance.reserved.get(name, Decimal(0)), room.amounts_left.get(name, Decimal(0)), limit)
        for name, limit in balance.policy.amount_limits(balance.budget).items()
    }


def _is_charge_of_hidden_search(entry: Entry) -> bool:
    return body_of_kind(entry, Charged).trials == (entry.plan,)


def _largest_admitted_count(room: RemainingBudget, event_of: Callable[[int], PlanEvent]) -> int:
    """The largest admitted count; the search starts from the count that Renyi curves, which are cheap, admit."""
    sure = replace(room, panel=Panel(claimants=(Rdp(),))).largest_admitted_count(event_of, LARGEST_COUNT)
    return sure + room.largest_admitted_count(lambda more: event_of(sure + more), LARGEST_COUNT - sure)


def _event_of_more_runs(event: PlanEvent, more: int, runs: int) -> PlanEvent:
    """The event of `more` runs, given the event of `runs` runs; every number of accesses is rounded up."""
    return PlanEvent.from_events_by_population(
        {
            name: events.compose(
                events.repeat(leaf, -(-times * more // runs)) for leaf, times in events.leaves_with_counts(part)
            )
            for name, part in event.events_by_population.items()
        }
    )
