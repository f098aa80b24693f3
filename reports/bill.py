"""What a sweep cost and what its account has left, from the ledger's charges alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from accounting.account import Entry
from reports.table import Sweep


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One charge of the sweep: what it took, and what each accountant said about it.

    `bounds` maps an accountant to its upper bound, `refusals` one to its reason, `parts` a population to its
    share. `attack` is a lower bound by an explicit attack, 0 where none is known.
    """

    seq: int
    epsilon: float
    delta: float
    runs: int
    reason: str
    claimed_by: str
    bounds: Mapping[str, float]
    refusals: Mapping[str, str]
    parts: Mapping[str, float]
    attack: float


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The account with this sweep in it.

    *Guarantee*: `epsilon` and `delta` are the sums over all charges of the plan, repeats included, so the
    sweep as a whole satisfies (epsilon, delta)-differential privacy. *Source*: basic composition, Dwork and
    Roth 2014, Theorem 3.16. `others` is what every other sweep on the account has taken.
    """

    epsilon: float
    delta: float
    others: tuple[float, float]
    reserved: tuple[float, float]
    left: tuple[float, float]
    budget: tuple[float, float]
    charges: tuple[Charge, ...]

    @property
    def repeats(self) -> tuple[Charge, ...]:
        """Charges for running again what had started before."""
        return tuple(charge for charge in self.charges if charge.reason == "repeat")


def read_bill(sweep: Sweep) -> Bill:
    """The sweep's share of its account."""
    account = sweep.account
    own = [entry for entry in account.charges if entry.plan == sweep.plan_id]
    rest = [entry for entry in account.charges if entry.plan != sweep.plan_id]
    return Bill(
        epsilon=_sum(own, "epsilon"),
        delta=_sum(own, "delta"),
        others=(_sum(rest, "epsilon"), _sum(rest, "delta")),
        reserved=account.reserved,
        left=account.left,
        budget=(account.budget.epsilon, account.budget.delta),
        charges=tuple(_charge(entry) for entry in own),
    )


def _charge(entry: Entry) -> Charge:
    body: Mapping[str, Any] = entry.body
    return Charge(
        seq=entry.seq,
        epsilon=float(body["epsilon"]),
        delta=body["delta"],
        runs=len(body["trials"]) + body.get("spares", 0),
        reason=body.get("reason", "plan"),
        claimed_by=body.get("claimed_by", "unnamed"),
        bounds=_numbers(body.get("bounds", {})),
        refusals=body.get("refusals", {}),
        parts=_numbers(body.get("parts", {})),
        attack=float(body.get("attack", 0.0)),
    )


def _numbers(written: Mapping[str, float | str]) -> dict[str, float]:
    return {name: float(value) for name, value in written.items()}


def exact_sum(values: Iterable[float]) -> float:
    """Exact in decimals, like the ledger's own sums."""
    return float(sum((Decimal(repr(float(value))) for value in values), Decimal(0)))


def _sum(entries: Iterable[Entry], name: str) -> float:
    return exact_sum(entry.body[name] for entry in entries)
