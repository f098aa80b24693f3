"""Amounts that a ledger lost, by account: entries that this machine remembers and the ledger no longer holds.

A remembered chain and the ledger's share their first entries. *Guarantee*: for every amount of an account, the
remembered amount less the amount at the last common entry is the amount that the lost entries took, and no less.
Entries that the ledger added after the common one are a separate matter and stay. If the number of common entries is
unknown, a lower number is assumed, so that more is charged and never less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from dpsweep.accounting.chain.hash_chain import End, Kind, Lines
from dpsweep.accounting.codec import shortest_decimal_of_float
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.account import Balance
from dpsweep.accounting.ledger.bodies import Restored, read_body
from dpsweep.accounting.ledger.compared_chain import verified_entries_with_balances
from dpsweep.accounting.ledger.composition_policy import (
    DELTA,
    EPSILON,
    Amounts,
    float_rounded_up,
    subtract_decimals_exactly,
)
from dpsweep.accounting.ledger.remembered_ends import WIDTH, Memory, digest_prefix_bytes


@dataclass(frozen=True, kw_only=True)
class Base:
    """A whole chain as the base of a restoration: its balances now, and at its last entry that is remembered too.

    `paid` are the digests of the charges that it holds or has restored, `restored` the remembered ends whose loss is on
    its record.
    """

    end: End
    balances: Mapping[str, Balance]
    common: Mapping[str, Balance]
    paid: frozenset[str]
    restored: frozenset[End]


def balances_now_and_at_remembered_entry(lines: Lines, name: str, remembered: bytes) -> Base:
    """Walks the chain, beside the `remembered` digests; raises `LedgerDamaged` at the first entry that is not whole."""
    balances: dict[str, Balance] = {}
    common: dict[str, Balance] = {}
    since: dict[str, Balance] = {}
    paid: set[str] = set()
    restored: set[End] = set()
    end = End()
    for entry, balance in verified_entries_with_balances(lines, name):
        end = End(entries=entry.seq, head=entry.digest)
        balances[entry.account] = since[entry.account] = balance
        if _is_end_among_digests(remembered, end):
            common |= since
            since = {}
        if entry.kind == Kind.CHARGE:
            paid.add(entry.digest)
        elif isinstance(body := read_body(entry), Restored):
            paid |= set(body.charges)
            if body.remembered is not None and body.reserved is not None:
                restored.add(body.remembered)
                if _is_end_among_digests(
                    remembered, body.remembered
                ):  # another machine restored lines that we know too
                    before = common.get(entry.account, replace(balance, reserved={}))
                    common[entry.account] = balance_raised_to_amounts(before, body.reserved)
    return Base(end=end, balances=balances, common=common, paid=frozenset(paid), restored=frozenset(restored))


@dataclass(frozen=True, kw_only=True)
class Lost:
    """The loss of one account: amounts, and a budget or a closing; `there` is its current balance, None if missing."""

    account: str
    remembered: Balance
    there: Balance | None
    takes: Mapping[str, float]
    raised: bool
    closed: bool

    @property
    def epsilon_and_delta(self) -> tuple[float, float]:
        """(epsilon, delta) that the amounts alone imply."""
        amounts = {name: shortest_decimal_of_float(more) for name, more in self.takes.items()}
        return self.remembered.policy.guaranteed_epsilon_and_delta(self.remembered.budget, amounts)


def iterate_account_losses(memory: Memory, base: Base) -> Iterator[Lost]:
    """The loss of every remembered account; raises `BadInput` if it was opened anew for other neighbours."""
    for account, form in sorted(memory.balances.items()):
        remembered, there = Balance.from_json(form), base.balances.get(account)
        before = base.common.get(account)
        if there is not None and (there.budget.adjacency, there.budget.unit) != (
            remembered.budget.adjacency,
            remembered.budget.unit,
        ):
            raise BadInput(
                f"Expected account={account} to have {remembered.budget.adjacency.value} neighbours, unit "
                f"{remembered.budget.unit}, as remembered; it was opened anew for others. Put this ledger aside first."
            )
        amounts = _growth_of_amounts(remembered.reserved, {} if before is None else before.reserved)
        if there is not None and there.policy != remembered.policy:
            guaranteed = remembered.policy.guaranteed_epsilon_and_delta(remembered.budget, amounts)
            amounts = dict(zip((EPSILON, DELTA), map(shortest_decimal_of_float, guaranteed), strict=True))
        current = remembered.budget if there is None else there.budget
        yield Lost(
            account=account,
            remembered=remembered,
            there=there,
            takes={name: float_rounded_up(amount) for name, amount in amounts.items()},
            raised=not remembered.budget.is_within_budget(current),
            closed=remembered.closed and (there is None or not there.closed),
        )


def _growth_of_amounts(later: Amounts, earlier: Amounts) -> dict[str, Decimal]:
    """The growth of each amount; an amount that was infinite before cannot grow."""
    known = {name: earlier.get(name, Decimal(0)) for name in later}
    return {
        name: subtract_decimals_exactly(amount, known[name])
        for name, amount in later.items()
        if not known[name].is_infinite() and amount > known[name]
    }


def balance_raised_to_amounts(balance: Balance, amounts: Amounts) -> Balance:
    """The balance with at least these amounts."""
    names = {*balance.reserved, *amounts}
    zero = Decimal(0)
    return replace(
        balance, reserved={name: max(balance.reserved.get(name, zero), amounts.get(name, zero)) for name in names}
    )


def _is_end_among_digests(digests: bytes, end: End) -> bool:
    place = WIDTH * (end.entries - 1)
    return end.entries > 0 and digests[place : place + WIDTH] == digest_prefix_bytes(end.head)
