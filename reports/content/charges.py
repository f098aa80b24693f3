"""A sweep's charges and its account's balance, from the ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from dpsweep.accounting.chain.entries import Entry
from dpsweep.accounting.ledger.bodies import charged, spending
from dpsweep.reports.content.sweep_table import Sweep


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One charge of the sweep, with the bound of each accountant.

    `bounds` maps an accountant to its upper bound, `refusals` an accountant to the reason why it has none, `parts` a
    population to its share, `bounds_by_part` a population to the bounds of the accountants that have one there.
    `attack` is a lower bound by an explicit attack, 0 if none is known. `accepted_delta` is the delta of 1 / units or
    more that the curator accepted, None if delta was smaller or no question was asked.
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
    bounds_by_part: Mapping[str, Mapping[str, float]]
    attack: float
    accepted_delta: float | None = None


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
    charges: tuple[Charge, ...]
    units: int | None = None

    @property
    def accepted_delta(self) -> float | None:
        """The delta that was accepted last; None if none was."""
        return next((one.accepted_delta for one in reversed(self.charges) if one.accepted_delta is not None), None)

    @property
    def repeats(self) -> tuple[Charge, ...]:
        """Charges for repeated runs."""
        return tuple(charge for charge in self.charges if charge.reason == "repeat")


def read_bill(sweep: Sweep) -> Bill:
    """Reads the sweep's charges and its account's balance."""
    account = sweep.account
    own_charges = [entry for entry in account.charges if entry.plan == sweep.plan_id]
    other_charges = [entry for entry in account.charges if entry.plan != sweep.plan_id]
    return Bill(
        epsilon=exact_sum(spending(entry).epsilon for entry in own_charges),
        delta=exact_sum(spending(entry).delta for entry in own_charges),
        others=(
            exact_sum(spending(entry).epsilon for entry in other_charges),
            exact_sum(spending(entry).delta for entry in other_charges),
        ),
        reserved=account.reserved,
        left=account.left,
        budget=(account.budget.epsilon, account.budget.delta),
        charges=tuple(_charge(entry) for entry in own_charges),
        units=_units(sweep, own_charges),
    )


def _units(sweep: Sweep, charges: Iterable[Entry]) -> int | None:
    """The number of units in the charges, or else as the plan's data set declares it."""
    dataset = sweep.plan.trials[0].config["dataset"]
    declared = dataset.get("units" if dataset.get("unit_column") else "records")
    recorded = [charged(entry).facts.units for entry in charges]
    return next((units for units in (*recorded, declared) if isinstance(units, int) and units > 0), None)


def _charge(entry: Entry) -> Charge:
    body = charged(entry)
    facts = body.facts
    return Charge(
        seq=entry.seq,
        epsilon=body.epsilon,
        delta=body.delta,
        runs=body.attempts,
        reason=facts.reason,
        claimed_by=facts.claimed_by,
        bounds=facts.bounds,
        refusals=facts.refusals,
        parts=facts.parts,
        bounds_by_part=facts.bounds_by_part,
        attack=facts.attack,
        accepted_delta=facts.accepted_delta,
    )


def exact_sum(values: Iterable[float]) -> float:
    """The sum in exact decimals, like the ledger's sums."""
    return float(sum((Decimal(repr(float(value))) for value in values), Decimal(0)))
