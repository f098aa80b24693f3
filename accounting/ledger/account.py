"""The state of an account, read from its entries: budget, policy, reserved amounts, and the attempts paid for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from dpsweep.accounting.chain.hash_chain import INTERRUPTED, SPENDING, Entry, Kind, Lines
from dpsweep.accounting.codec import Stored, require_nonnegative_amount
from dpsweep.accounting.errors import ContractBroken, LedgerDamaged
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger import bodies
from dpsweep.accounting.ledger.bodies import Body, Charged, Spending, body_of_kind, read_body
from dpsweep.accounting.ledger.composition_policy import (
    Amounts,
    Policy,
    StoredPolicy,
    add_decimals_exactly,
    subtract_decimals_exactly,
)
from dpsweep.accounting.ledger.sealed_parts import SealedCharge
from dpsweep.accounting.validation import turn_read_errors_into_refusal


@dataclass(frozen=True, kw_only=True)
class Balance(Stored):
    """An account's limits and its reserved amounts; every entry stores the balance after it."""

    budget: Guarantee
    policy: StoredPolicy
    reserved: Amounts
    closed: bool = False

    @classmethod
    def opened(cls, body: bodies.Opened) -> Balance:
        """The balance at the opening."""
        return cls(budget=replace(body.budget, epsilon=float(body.budget.epsilon)), policy=body.policy, reserved={})

    def after(self, body: Body) -> Balance:
        """The balance after an entry; charges only ever add."""
        if isinstance(body, Spending):
            return replace(self, reserved={**self.reserved, **self._reserved_after(body.takes)})
        if isinstance(body, bodies.Raised):
            return replace(self, budget=replace(body.budget, epsilon=float(body.budget.epsilon)))
        return replace(self, closed=True) if isinstance(body, bodies.Closed) else self

    def has_room(self, takes: Mapping[str, float]) -> bool:
        """Whether a charge that takes these amounts stays within every limit."""
        limits = self.policy.amount_limits(self.budget)
        return not self.closed and all(amount <= limits[name] for name, amount in self._reserved_after(takes).items())

    @property
    def left(self) -> Amounts:
        """The rest of each amount that the policy counts, 0 or more; no amount of a closed account."""
        limits = {} if self.closed else self.policy.amount_limits(self.budget)
        return {
            name: max(Decimal(0), subtract_decimals_exactly(limit, self.reserved.get(name, Decimal(0))))
            for name, limit in limits.items()
        }

    def _reserved_after(self, takes: Mapping[str, float]) -> dict[str, Decimal]:
        return {
            name: add_decimals_exactly(self.reserved.get(name, Decimal(0)), require_nonnegative_amount(name, more))
            for name, more in takes.items()
        }


class Attempts:
    """The attempts of one plan, read from its entries: how many are paid for, started and resumed, and how each ended.

    `charges` are the entries that pay for them, `bodies` their bodies. `covered` and `started` count the attempts at
    each trial that are paid for by name, and that were started. `starts` has the body of each start, `resumed` counts
    its resumes, `settled` has the end of each session. `launch` is the nonce of the last launch, None without one.
    `released` maps the digest of a charge to that of its released winner. `manifests` are the releases, each with the
    time of its entry.
    """

    @turn_read_errors_into_refusal("the ledger", LedgerDamaged)
    def __init__(self, entries: Sequence[Entry]) -> None:
        every = [(entry, read_body(entry)) for entry in entries]
        contents = [body for _, body in every]
        self.charges = tuple(entry for entry in entries if entry.kind == Kind.CHARGE)
        self.bodies = tuple(body_of_kind(entry, Charged) for entry in self.charges)
        self.covered = Counter(trial for body in self.bodies for trial in body.trials)
        self.starts = {(body.trial, body.attempt): body for body in contents if isinstance(body, bodies.Started)}
        self.started = Counter(body.trial for body in contents if isinstance(body, bodies.Started))
        self.resumed = Counter((body.trial, body.attempt) for body in contents if isinstance(body, bodies.Resumed))
        ends = [body for body in contents if isinstance(body, bodies.Ended)]
        self.settled = {(end.trial, end.attempt, end.resume): end.realised for end in ends}
        self.launch = next((body.nonce for body in reversed(contents) if isinstance(body, bodies.Launched)), None)
        self.released = {body.charge: body.winner for body in contents if isinstance(body, bodies.Released)}
        self.manifests = tuple((entry.at, body) for entry, body in every if isinstance(body, bodies.ReleaseManifest))

    @property
    def spares(self) -> int:
        """The further attempts, at any trial, that are paid for and unused."""
        bought = sum(body.spares for body in self.bodies)
        return bought - sum(max(0, count - self.covered[trial]) for trial, count in self.started.items())

    def charge_of(self, trial: str, attempt: int) -> Entry:
        """The charge that an attempt was or will be started on: one that names the trial, before one with a spare.

        Raises `ContractBroken` if no charge covers it.
        """
        charges = list(zip(self.charges, self.bodies, strict=True))
        used = Counter((start.charge, start.trial) for start in self.starts.values())
        if (start := self.starts.get((trial, attempt))) is not None:
            covering = [entry for entry in self.charges if entry.digest == start.charge]
        else:
            covering = [entry for entry, body in charges if trial in body.trials and not used[entry.digest, trial]]
            covering = covering or [
                entry
                for entry, body in charges
                if body.spares > sum(n - (name in body.trials) for (on, name), n in used.items() if on == entry.digest)
            ]
        if not covering:
            raise ContractBroken(f"Attempt {attempt} at trial {trial} is covered by no charge.")
        return covering[0]

    def final_end(self, trial: str, attempt: int) -> Mapping[str, Any] | None:
        """The final end of an attempt; None if it did not start, is running, or may resume from a checkpoint."""
        end = self.settled.get((trial, attempt, self.resumed[trial, attempt]))
        return None if end is None or end["status"] == INTERRUPTED else end

    def last_sessions(self) -> list[tuple[str, int, int]]:
        """The last session of every started attempt: trial, attempt and resume."""
        return [(*key, self.resumed[key]) for key in self.starts]

    def open_sessions(self) -> list[tuple[str, int, int]]:
        """Those of the attempts without a final end."""
        return [key for key in self.last_sessions() if self.final_end(key[0], key[1]) is None]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The state of an account, with its entries in order: all of them, or those of one plan."""

    account: str
    balance: Balance
    entries: tuple[Entry, ...]

    @property
    def budget(self) -> Guarantee:
        """The budget that was recorded last."""
        return self.balance.budget

    @property
    def policy(self) -> Policy:
        """The policy by which its charges add up."""
        return self.balance.policy

    @property
    def charges(self) -> tuple[Entry, ...]:
        """The entries that take something out of the budget."""
        return tuple(entry for entry in self.entries if entry.kind in SPENDING)

    def attempts_of_plan(self, plan: str) -> Attempts:
        """A plan's attempts."""
        if plan not in self._attempts:
            self._attempts[plan] = Attempts([entry for entry in self.entries if entry.plan == plan])
        return self._attempts[plan]

    @cached_property
    def _attempts(self) -> dict[str, Attempts]:
        return {}


def sealed_charges(entries: Sequence[Entry]) -> tuple[SealedCharge | None, ...]:
    """What the charges among these entries say of sealed parts; None for one that may have read any unit."""
    contents = [body_of_kind(entry, Spending) for entry in entries if entry.kind in SPENDING]
    return tuple(body.sealed if isinstance(body, Charged) else None for body in contents)


@turn_read_errors_into_refusal("the ledger", LedgerDamaged)
def balance_of_account(lines: Lines, account: str) -> Balance | None:
    """The balance after the account's last line; None if it was never opened."""
    last = lines.last_line_of_account(account)
    return None if last is None else Balance.from_json(last.balance)


def append_body(lines: Lines, account: str, body: Body, *, plan: str = "", before: Balance | None = None) -> Entry:
    """Adds a line with the balance after it; the one `before` it is that of the account's last line unless given."""
    before = before or balance_of_account(lines, account)
    if before is None:
        raise LedgerDamaged(f"Expected account={account} to have been opened before plan {plan} was charged on it.")
    after = before.after(body).to_json()
    return lines.append(account=account, kind=str(body.kind), plan=plan, body=body.to_json(), balance=after)
