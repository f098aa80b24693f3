"""What a sweep cost and what its account has left, from the ledger's charges alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from dpsweep.accounting.chain.entries import Entry
from dpsweep.accounting.ledger.bodies import charged, spending
from dpsweep.reports.content.sweep_table import Sweep


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One charge of the sweep: what it took, and what each accountant said about it.

    `bounds` maps an accountant to its upper bound, `refusals` one to its reason, `parts` a population to its
    share. `attack` is a lower bound by an explicit attack, 0 where none is known. `accepted_delta` is the delta of
    1 / units or more that whoever ran the search accepted, None where there was none to accept, or nobody was asked.
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
    accepted_delta: float | None = None


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The account with this sweep in it.

    *Guarantee*: `epsilon` and `delta` are the sums over all charges of the plan, repeats included, so the
    sweep as a whole satisfies (epsilon, delta)-differential privacy. *Source*: basic composition, Dwork and
    Roth 2014, Theorem 3.16. `others` is what every other sweep on the account has taken. `units` is the declared
    number of records, or of units where they have several; None where neither ledger nor plan tells.
    """

    epsilon: float
    delta: float
    others: tuple[float, float]
    reserved: tuple[float, float]
    left: tuple[float, float]
    budget: tuple[float, float]
    charges: tuple[Charge, ...]
    units: int | None = None

    @property
    def accepted_delta(self) -> float | None:
        """What was accepted last; None where nothing was."""
        return next((one.accepted_delta for one in reversed(self.charges) if one.accepted_delta is not None), None)

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
        epsilon=exact_sum(spending(entry).epsilon for entry in own),
        delta=exact_sum(spending(entry).delta for entry in own),
        others=(
            exact_sum(spending(entry).epsilon for entry in rest),
            exact_sum(spending(entry).delta for entry in rest),
        ),
        reserved=account.reserved,
        left=account.left,
        budget=(account.budget.epsilon, account.budget.delta),
        charges=tuple(_charge(entry) for entry in own),
        units=_units(sweep, own),
    )


def _units(sweep: Sweep, own: Iterable[Entry]) -> int | None:
    """As the charges have it, or, where they are older, as the plan's data set declares it."""
    dataset = sweep.plan.trials[0].config["dataset"]
    declared = dataset.get("units" if dataset.get("unit_column") else "records")
    known = [charged(entry).units for entry in own]
    return next((units for units in (*known, declared) if isinstance(units, int) and units > 0), None)


def _charge(entry: Entry) -> Charge:
    body = charged(entry)
    return Charge(
        seq=entry.seq,
        epsilon=body.epsilon,
        delta=body.delta,
        runs=body.attempts,
        reason=body.reason,
        claimed_by=body.claimed_by,
        bounds=body.bounds,
        refusals=body.refusals,
        parts=body.parts,
        attack=body.attack,
        accepted_delta=body.accepted_delta,
    )


def exact_sum(values: Iterable[float]) -> float:
    """Exact in decimals, like the ledger's own sums."""
    return float(sum((Decimal(repr(float(value))) for value in values), Decimal(0)))
