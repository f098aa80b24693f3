"""The state of an account, read from its entries: budget, policy, reserved amounts, and the attempts paid for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from dpsweep.accounting.chain.hash_chain import INTERRUPTED, SPENDING, Entry, Kind, Lines
from dpsweep.accounting.codec import Stored, require_nonnegative_amount, shortest_decimal_of_float
from dpsweep.accounting.errors import BadInput, BudgetRefused, ContractBroken, LedgerDamaged
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.bodies import (
    Body,
    Charged,
    Closed,
    Ended,
    Launched,
    Opened,
    Raised,
    Released,
    ReleaseManifest,
    Resumed,
    Spending,
    Started,
    read_body,
)
from dpsweep.accounting.ledger.composition_policy import (
    DELTA,
    DIVERGENCE,
    EPSILON,
    Amounts,
    Policy,
    StoredPolicy,
    add_decimals_exactly,
    subtract_decimals_exactly,
)
from dpsweep.accounting.ledger.sealed_parts import SealedCharge
from dpsweep.accounting.notation import (
    delta_text_rounded_up,
    demand_and_remainder_texts,
    epsilon_text_rounded_down,
    epsilon_text_rounded_up,
    text_with_all_digits,
)
from dpsweep.accounting.validation import turn_read_errors_into_refusal


@dataclass(frozen=True, kw_only=True)
class Balance(Stored):
    """An account's limits and its reserved amounts; every entry stores the balance after it."""

    budget: Guarantee
    policy: StoredPolicy
    reserved: Amounts
    closed: bool = False

    def has_room_for_amounts(self, takes: Mapping[str, float]) -> bool:
        """Whether a charge that takes these amounts stays within every limit."""
        limits = self.policy.amount_limits(self.budget)
        return not self.closed and all(amount <= limits[name] for name, amount in self._amounts_after(takes).items())

    def remaining_amounts_phrase(self, takes: Mapping[str, float]) -> str:
        """A phrase with the rest and the limit of each amount that a charge takes.

        The rest is written with as many digits as show whether the charge takes more.
        """
        limits = self.policy.amount_limits(self.budget)
        return " and ".join(
            f"{name} {left} of {limit_text(name, limits[name])}"
            for name, (_, left) in self.charge_and_remainder_texts(takes).items()
        )

    def charge_and_remainder_texts(self, takes: Mapping[str, float]) -> dict[str, tuple[str, str]]:
        """The charge and the rest of each amount that it takes, in digits that show which is larger."""
        limits = self.policy.amount_limits(self.budget)
        texts = {}
        for name, more in takes.items():
            rest = subtract_decimals_exactly(limits[name], self.reserved.get(name, Decimal(0)))
            texts[name] = demand_and_remainder_texts(more, max(Decimal(0), rest), name)
        return texts

    def balance_after_entry(self, body: Body) -> Balance:
        """The balance after an entry; charges only ever add."""
        if isinstance(body, Spending):
            return replace(self, reserved={**self.reserved, **self._amounts_after(body.takes)})
        if isinstance(body, Raised):
            return replace(self, budget=replace(body.budget, epsilon=float(body.budget.epsilon)))
        return replace(self, closed=True) if isinstance(body, Closed) else self

    @classmethod
    def for_opened_account(cls, body: Opened) -> Balance:
        """The balance of an account that was just opened."""
        return cls(budget=replace(body.budget, epsilon=float(body.budget.epsilon)), policy=body.policy, reserved={})

    def _amounts_after(self, takes: Mapping[str, float]) -> dict[str, Decimal]:
        """The reserved amounts after a charge, of those that it takes."""
        return {
            name: add_decimals_exactly(self.reserved.get(name, Decimal(0)), require_nonnegative_amount(name, more))
            for name, more in takes.items()
        }


class Attempts:
    """The attempts of one plan, read from its entries: how many are paid for, started and resumed, and how each ended.

    `charges` are the entries that pay for them, `bodies` the bodies of these entries. `covered` and `started` count the
    attempts at each trial that are paid for by name, and that were started. `starts` has the body of
    each start, `resumed` counts its resumes, and `settled` has the end of each session. `launch` is the nonce
    of the coordinator's last launch, None if there was none. `released` maps the digest of a charge to the digest of
    the winner that was released on it. `manifests` are the releases and exports, each with the time of its entry.
    """

    @turn_read_errors_into_refusal("the ledger", LedgerDamaged)
    def __init__(self, entries: Sequence[Entry]) -> None:
        bodies = [read_body(entry) for entry in entries]
        starts = [body for body in bodies if isinstance(body, Started)]
        launches = [body.nonce for body in bodies if isinstance(body, Launched)]
        self.bodies = tuple(body for body in bodies if isinstance(body, Charged))
        self.charges = tuple(entry for entry in entries if entry.kind == Kind.CHARGE)
        self.covered = Counter(trial for body in self.bodies for trial in body.trials)
        self.started = Counter(body.trial for body in starts)
        self.starts = {(body.trial, body.attempt): body for body in starts}
        self.resumed = Counter((body.trial, body.attempt) for body in bodies if isinstance(body, Resumed))
        self.settled = {body.session_key: body.realised for body in bodies if isinstance(body, Ended)}
        self.launch = launches[-1] if launches else None
        self.released = {body.charge: body.winner for body in bodies if isinstance(body, Released)}
        releases = zip(entries, bodies, strict=True)
        self.manifests = tuple((entry.at, body) for entry, body in releases if isinstance(body, ReleaseManifest))

    @property
    def charge_of_card(self) -> SealedCharge | None:
        """What the last charge that pays for a card says of its sealed part; None without one."""
        known = [body.sealed for body in self.bodies if body.sealed is not None and body.sealed.card is not None]
        return known[-1] if known else None

    @property
    def part_of_card(self) -> int | None:
        """The number of the card's sealed part; None without a card."""
        return None if self.charge_of_card is None else self.charge_of_card.card

    @property
    def number_of_spare_attempts(self) -> int:
        """The number of further attempts, at any trial, that are paid for and unused."""
        bought = sum(body.spares for body in self.bodies)
        return bought - sum(max(0, count - self.covered[trial]) for trial, count in self.started.items())

    def is_next_attempt_paid_for(self, trial: str) -> bool:
        """Whether one more attempt at a trial is paid for, by its own charges or by a spare attempt."""
        return self.started[trial] < self.covered[trial] or self.number_of_spare_attempts > 0

    def charge_entry_covering_attempt(self, trial: str, attempt: int) -> Entry:
        """The charge that an attempt was or will be started on; raises `ContractBroken` if no charge covers it."""
        charges = list(zip(self.charges, self.bodies, strict=True))
        used = Counter((start.charge, start.trial) for start in self.starts.values())
        if (start := self.starts.get((trial, attempt))) is not None:
            covering = [entry for entry in self.charges if entry.digest == start.charge]
        else:
            named = [entry for entry, body in charges if trial in body.trials and not used[entry.digest, trial]]
            covering = named or [entry for entry, body in charges if body.spares > _unnamed(used, entry.digest, body)]
        if not covering:
            raise ContractBroken(f"Attempt {attempt} at trial {trial} is covered by no charge.")
        return covering[0]

    def final_end_record_of_attempt(self, trial: str, attempt: int) -> Mapping[str, Any] | None:
        """The final end of an attempt; None if it did not start, is running, or may resume from a checkpoint."""
        end = self.settled.get((trial, attempt, self.resumed[trial, attempt]))
        return None if end is None or end["status"] == INTERRUPTED else end

    def last_sessions_without_final_end(self) -> tuple[tuple[str, int, int], ...]:
        """The last session of every started attempt without a final end."""
        sessions = self._last_session_of_each_attempt()
        return tuple(key for key in sessions if self.final_end_record_of_attempt(key[0], key[1]) is None)

    def last_sessions_without_recorded_end(self) -> tuple[tuple[str, int, int], ...]:
        """The last session of every attempt whose end is not recorded."""
        return tuple(key for key in self._last_session_of_each_attempt() if key not in self.settled)

    def entry_bodies_to_add_for_release(self, winner: Released, manifest: ReleaseManifest) -> tuple[Body, ...]:
        """The entries that a release adds: the winner of its charge, once, and its files unless the last one has them.

        Raises `BadInput` if another winner of this charge was released before.
        """
        known = self.released.get(winner.charge, winner.winner)
        if known != winner.winner:
            raise BadInput(
                "Expected the winner to be the one that was released before: its charge pays for one winner, and this "
                "folder has another one."
            )
        last = [body for _, body in self.manifests if body.folder == manifest.folder][-1:]
        first = () if winner.charge in self.released else (winner,)
        return first + (() if last == [manifest] else (manifest,))

    def _last_session_of_each_attempt(self) -> list[tuple[str, int, int]]:
        return [
            (trial, attempt, self.resumed[trial, attempt])
            for trial, count in self.started.items()
            for attempt in range(1, count + 1)
        ]


def _unnamed(used: Counter[tuple[str, str]], charge: str, body: Charged) -> int:
    """The attempts on a charge beyond one for each name that it has."""
    return sum(count - (trial in body.trials) for (digest, trial), count in used.items() if digest == charge)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The current state of an account, with its entries in order: all of them, or those of one plan."""

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
    def recorded_budgets(self) -> tuple[Guarantee, ...]:
        """The budget that the account was opened with, and every raise since."""
        return tuple(body.budget for body in map(read_body, self.entries) if isinstance(body, (Opened, Raised)))

    @property
    def charges(self) -> tuple[Entry, ...]:
        """The entries that take something out of the budget."""
        return tuple(entry for entry in self.entries if entry.kind in SPENDING)

    @property
    def first_swept_plan(self) -> str | None:
        """The plan of the first charge that is no cost from outside; None without any. Empty where no plan is known."""
        return next((entry.plan for entry in self.charges if entry.kind != Kind.OUTSIDE), None)

    @property
    def has_outside_costs(self) -> bool:
        """Whether costs of work outside dpsweep were recorded."""
        return any(entry.kind == Kind.OUTSIDE for entry in self.entries)

    @property
    def reserved_epsilon_and_delta(self) -> tuple[float, float]:
        """(epsilon, delta) that charges have reserved."""
        return self.policy.guaranteed_epsilon_and_delta(self.budget, self.balance.reserved)

    @property
    def remaining_epsilon_and_delta(self) -> tuple[float, float]:
        """(epsilon, delta) that later charges may still take; 0 for a closed account."""
        if self.balance.closed:
            return 0.0, 0.0
        pairs = zip((self.budget.epsilon, self.budget.delta), self.reserved_epsilon_and_delta, strict=True)
        epsilon, delta = (subtract_decimals_exactly(*map(shortest_decimal_of_float, pair)) for pair in pairs)
        return float(max(Decimal(0), epsilon)), float(max(Decimal(0), delta))

    def attempts_of_plan(self, plan: str) -> Attempts:
        """A plan's attempts."""
        if plan not in self._attempts_by_plan:
            own = [entry for entry in self.entries if entry.plan == plan]
            self._attempts_by_plan[plan] = Attempts(own)
        return self._attempts_by_plan[plan]

    def number_of_paid_attempts(self, plan: str, trial: str) -> int:
        """The number of attempts at a trial that the charges pay for, without spare attempts."""
        return self.attempts_of_plan(plan).covered[trial]

    def number_of_started_attempts(self, plan: str, trial: str) -> int:
        """The number of attempts at a trial that were started."""
        return self.attempts_of_plan(plan).started[trial]

    def charge_refusal_text(self, cost: Guarantee, event: PlanEvent | None = None) -> str:
        """The message for a charge of `cost`, for this event, that does not fit: the numbers and the next step."""
        if self.balance.closed:
            return f"The account of {self.account} was closed; nothing more is charged on it."
        takes = self.policy.amounts_of_charge(cost, event)
        costs = {EPSILON: epsilon_text_rounded_up(cost.epsilon), DELTA: delta_text_rounded_up(cost.delta)}
        costs |= {name: more for name, (more, _) in self.balance.charge_and_remainder_texts(takes).items()}
        divergence = f", which takes {DIVERGENCE} {costs[DIVERGENCE]}" if DIVERGENCE in costs else ""
        return (
            f"This costs epsilon {costs[EPSILON]} at delta {costs[DELTA]}{divergence}; on {self.account} "
            f"{self.balance.remaining_amounts_phrase(takes)} are left."
        )

    def require_same_unit_and_neighbours(self, claim: Guarantee) -> None:
        """Requires the unit and neighbours fixed when the account was opened; claims about others do not add up."""
        fixed = self.budget
        if (claim.adjacency, claim.unit) != (fixed.adjacency, fixed.unit):
            raise BadInput(
                f"Expected privacy.adjacency={claim.adjacency.value}, unit {claim.unit}, to be "
                f"{fixed.adjacency.value}, {fixed.unit}, as the account of {self.account} was opened: claims about "
                "different neighbours do not add up."
            )

    def require_same_public_or_private(self, budget: Guarantee) -> None:
        """Refuses to mix private and public data: no guarantee can be given for data that were declared public."""
        if self.budget.promises_nothing != budget.promises_nothing:
            public = self.budget.promises_nothing
            raise BudgetRefused(
                f"The data of {self.account} were declared {'public' if public else 'private'} when its account was "
                f"opened, and that stays: set dataset.public={str(public).lower()}."
            )

    @cached_property
    def _attempts_by_plan(self) -> dict[str, Attempts]:
        return {}


def sealed_charges_of_entries(entries: Sequence[Entry]) -> tuple[SealedCharge | None, ...]:
    """What the charges among these entries say of sealed parts; None for one that may have read any unit."""
    bodies = (read_body(entry) for entry in entries if entry.kind in SPENDING)
    return tuple(body.sealed if isinstance(body, Charged) else None for body in bodies)


@turn_read_errors_into_refusal("the ledger", LedgerDamaged)
def balance_of_account(lines: Lines, account: str) -> Balance | None:
    """The balance after the account's last line; None if it was never opened."""
    last = lines.last_line_of_account(account)
    return None if last is None else Balance.from_json(last.balance)


def append_line_with_balance(
    lines: Lines, account: str, body: Body, *, plan: str = "", before: Balance | None = None
) -> Entry:
    """Adds a line with the balance after it; `before` is that before it, the one of the account's last line if None.

    Raises `LedgerDamaged` if that account has no line.
    """
    before = before or balance_of_account(lines, account)
    if before is None:
        raise LedgerDamaged(f"Expected account={account} to have been opened before plan {plan} was charged on it.")
    after = before.balance_after_entry(body).to_json()
    return lines.append(account=account, kind=str(body.kind), plan=plan, body=body.to_json(), balance=after)


def limit_text(name: str, limit: Decimal) -> str:
    """The limit of an amount, digit by digit as a user typed it; a divergence is computed, so rounded down."""
    return epsilon_text_rounded_down(limit) if name == DIVERGENCE else text_with_all_digits(limit)
