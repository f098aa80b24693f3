"""The durable account book of data sets: budgets, charges, and started attempts. Invariants:

* Entries are only ever added, and every entry holds the hash of the one before (`accounting/chain/hash_chain.py`). No
  method edits one, or lowers an amount of `Balance.reserved`. Sums are exact decimals, not floats.
* A charge is priced here, from the declared accesses: no number of anybody's is charged but a cost from outside.
* A charge and its budget check are one transaction, so that two sweeps at once cannot overspend.
* An attempt starts only on a charge that covers it, and stays charged, whatever its end. There is no refund.
* Every opening compares the ledger with its mirrors (`accounting/ledger/mirror.py`), by identity and by place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.chain.hash_chain import Entry, Lines
from dpsweep.accounting.durable_files import user_folder
from dpsweep.accounting.errors import (
    BadInput,
    BudgetRefused,
    ContractBroken,
    LedgerDamaged,
    turn_read_errors_into_refusal,
)
from dpsweep.accounting.events.types import DpEvent, PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger import book, charges
from dpsweep.accounting.ledger.book import Attempts, Balance, Body, Charged, Policy, Statement, body_of_kind
from dpsweep.accounting.ledger.mirror import MirroredChain
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.ledger.sealed_parts import SealedCharge, numbered_for_charge
from dpsweep.accounting.selection.rules import rule_from_config

if TYPE_CHECKING:
    from dpsweep.accounting.upper_bounds import Opinions

FIELDS = frozenset(one.name for one in fields(Charged))  # no further fact of a charge is called like these


class Ledger:
    """An append-only, hash-chained account book: one file, or a PostgreSQL database shared by several machines.

    It lies outside every sweep folder, so that deleting one lowers no reserved amount. `home` is the folder of private
    stores of a rehearsal's ledger, which has no mirror.
    """

    def __init__(self, place: str | Path, home: Path | None = None) -> None:
        self.chain = MirroredChain(place, mirrored=home is None)
        self.path, self.name, self.home = self.chain.chain.file, self.chain.chain.name, home

    @property
    def folder_for_local_files(self) -> Path:
        """The folder for this machine's files beside the ledger: locks, and measured step times."""
        return user_folder("data") if self.path is None else self.path.parent

    def open_account(self, account: str, budget: Guarantee, policy: Policy | None = None) -> Statement:
        """Opens an account with its budget, neighbours and policy (by default addition), or finds it open.

        Raises `BadInput` for a policy of an open one, and for other neighbours; `BudgetRefused` if private data become
        public, or public ones private.
        """
        if not (account and account.isprintable()) or ".." in account.split("/"):
            raise BadInput(f"Expected account={account!r} to be a name.")
        self.chain.create_if_missing()
        with self.chain.write_transaction() as lines:
            if lines is None:
                raise LedgerDamaged(f"The ledger {self.name} was taken away while it was being opened.")
            if (balance := book.balance_of_account(lines, account)) is None:
                body = book.Opened(budget=budget, policy=policy or book.Addition())
                body.policy.amount_limits(budget)
                book.append_body(lines, account, body, before=Balance.opened(body))
            elif policy is not None:
                epsilon = balance.budget.epsilon
                raise BadInput(f"Expected account={account} to be new; it is open with epsilon {epsilon}.")
        statement = self.statement(account, plan="")
        statement.balance.require_same_neighbours(account, budget)
        if budget.promises_nothing != (public := statement.budget.promises_nothing):
            raise BudgetRefused(
                f"The data of {account} were declared {'public' if public else 'private'} when its account was opened, "
                f"and that stays: set dataset.public={str(public).lower()}."
            )
        return statement

    def charge(
        self,
        account: str,
        *,
        plan: str,
        trials: Sequence[str],
        rule: Mapping[str, Any],
        points: Sequence[PlanEvent],
        delta: float,
        opinions: Opinions,
        record: Mapping[str, Any],
        query: DpEvent | None = None,
        spares: int = 0,
        sealed: SealedCharge | None = None,
    ) -> Entry:
        """Takes the price of a search for one attempt at each of `trials` and `spares` more, or raises `BudgetRefused`.

        The search is by `rule`, in its stored form, over `points`; `query` is what a card reads, whose part of those
        that runs leave out (`sealed`) is numbered here. `opinions` may raise the price or refuse it. Raises `BadInput`
        if no part is left, `UnderCharged` if the account waits for what an earlier version charged too little.
        """
        from dpsweep.accounting.upper_bounds import PRICES, quote_for_charge  # scipy: .2 s that nothing else here needs

        beyond = max(0, len(points) - len(trials)) + any(point.final is not None for point in points)
        if len(set(trials)) != len(trials) or not 0 <= spares <= beyond:
            raise ValueError(f"Expected trials={list(trials)} to be distinct and spares={spares} in [0, {beyond}].")
        own, opened = rule_from_config(rule), self.statement(account, plan="")
        if own.draws_in_secret and (len(trials), spares) != (1, 0):
            raise ValueError(f"Expected one attempt at a search by {own.name}, got {len(trials)} and {spares} spares.")
        if any(body_of_kind(one, Charged).prices < PRICES for one in self.entries(account=account, kind=Charged.kind)):
            charges.require_paid_charges(self.statement(account))
        event = replace(own.event(points), sealed=query)
        quote = quote_for_charge(event, delta, opened.budget.adjacency, opened.budget.unit, opinions)
        total = opinions.total_variation(event, opened.budget.adjacency)
        cost = replace(opened.budget, epsilon=quote.epsilon, delta=delta)  # opinions may raise the epsilon alone
        takes = opened.balance.policy.amounts_of_charge(cost, event)  # before the write lock: it may take long
        alike: dict[object, list[PlanEvent]] = {}
        for point in points:
            key = tuple((name, id(part)) for name, part in point.events_by_population.items())
            alike.setdefault(key, []).append(point)
        body = Charged(
            epsilon=quote.epsilon,
            delta=delta,
            takes=takes,
            trials=tuple(trials),
            spares=spares,
            event=event.to_json(),
            points=tuple(book.ChargedPoint(runs=len(same), event=same[0].to_json()) for same in alike.values()),
            prices=PRICES,
            record={
                **{key: value for key, value in record.items() if key not in FIELDS},
                **quote.to_record(),
                **({} if total is None else {"total_variation": total}),
                "rule": {**rule, "name": own.name},
            },
        )
        with self.transaction(account, plan) as (lines, balance, append):
            if not balance.has_room(takes):
                rests = " and ".join(f"{name} {rest}" for name, rest in balance.left.items())
                left = rests or "nothing, as it was closed,"
                sentence = f"This costs epsilon {quote.epsilon} at delta {delta}; {account} has {left} left."
                raise BudgetRefused(sentence, cost=cost, takes=takes, balance=balance)
            if sealed is not None:
                earlier = book.sealed_charges(lines.entries(account=account))
                body = replace(body, sealed=numbered_for_charge(earlier, sealed, account))
            return append(body)

    def start(
        self, account: str, *, plan: str, trials: Sequence[str], declared: charges.Declared
    ) -> tuple[Receipt, ...]:
        """Records one more attempt at each trial, before it is launched, and returns the receipts.

        Raises `ContractBroken` unless an unused part of a charge covers each, for the accesses it is `declared` with.
        """
        with self.transaction(account, plan) as (lines, _, append):
            receipts, own = [], Attempts(lines.entries(account=account, plan=plan))
            for trial in trials:
                own.started[trial] += 1
                key = trial, own.started[trial]
                charge, accesses = own.charge_of(*key), charges.digest_of_declared_events(declared.get(trial, ()))
                body = book.Started(trial=trial, attempt=key[1], charge=charge.digest, accesses=accesses)
                own.starts[key] = body
                receipts.append(Receipt.from_entry(append(body), body))
            for charge in own.charges:
                if charge.digest in {receipt.charge for receipt in receipts}:
                    starts = [body for body in own.starts.values() if body.charge == charge.digest]
                    charges.require_paid_events(body_of_kind(charge, Charged), starts, declared)
        return tuple(receipts)

    def resume(self, account: str, *, plan: str, trials: Sequence[str]) -> tuple[Receipt, ...]:
        """Records that the last attempt at each trial resumes from its checkpoint, and returns receipts for that.

        It is free: steps that run twice are priced. Raises `ContractBroken` for one that never started, or has ended.
        """
        with self.transaction(account, plan) as (lines, _, append):
            receipts, own = [], Attempts(lines.entries(account=account, plan=plan))
            for trial in trials:
                key = trial, own.started[trial]
                if key not in own.starts or own.final_end(*key) is not None:
                    why = "has ended" if key in own.starts else "was never started"
                    raise ContractBroken(f"Attempt {key[1]} at trial {trial} {why}, so it does not resume.")
                own.resumed[key] += 1
                body = book.Resumed(trial=trial, attempt=key[1], resume=own.resumed[key])
                receipts.append(Receipt.from_entry(append(body), own.starts[key]))
        return tuple(receipts)

    def end(self, account: str, *, plan: str, ended: Sequence[book.Ended]) -> None:
        """Records the ends of attempts, each once; their costs do not change."""
        with self.transaction(account, plan) as (lines, _, append):
            own = Attempts(lines.entries(account=account, plan=plan))
            for one in ended:
                if one.attempt > own.started[one.trial]:
                    raise ContractBroken(f"Attempt {one.attempt} at trial {one.trial} ended without having started.")
                if (one.trial, one.attempt, one.resume) not in own.settled:
                    append(one)
                    own.settled[one.trial, one.attempt, one.resume] = one.realised

    def launch(self, account: str, *, plan: str, nonce: str) -> None:
        """Records that a coordinator hands out receipts of a plan; receipts of earlier launches are void."""
        with self.transaction(account, plan) as (_, _, append):
            append(book.Launched(nonce=nonce))

    def statement(self, account: str, plan: str | None = None) -> Statement:
        """The state of the account, with all entries or one plan's; raises `BadInput` if it was never opened."""
        if (statement := self.statement_or_none(account, plan)) is None:
            raise _not_open(account)
        return statement

    @turn_read_errors_into_refusal("the ledger", LedgerDamaged)
    def statement_or_none(self, account: str, plan: str | None = None) -> Statement | None:
        """The state of the account as `statement` has it; None if it was never opened. Creates nothing."""
        with self.chain.read_transaction() as lines:
            if lines is None or (balance := book.balance_of_account(lines, account)) is None:
                return None
            return Statement(account=account, balance=balance, entries=lines.entries(account=account, plan=plan))

    def attempts_of_plan(self, account: str, plan: str) -> Attempts:
        """The attempts of a plan; raises `BadInput` if the account was never opened."""
        return self.statement(account, plan).attempts_of_plan(plan)

    def entries(self, **columns: str) -> tuple[Entry, ...]:
        """The entries of all accounts with these values in their columns, in order."""
        with self.chain.read_transaction() as lines:
            return () if lines is None else lines.entries(**columns)

    def account_names(self) -> tuple[str, ...]:
        """The names of all accounts."""
        with self.chain.read_transaction() as lines:
            return () if lines is None else lines.account_names()

    @contextmanager
    def transaction(self, account: str, plan: str = "") -> Iterator[tuple[Lines, Balance, Callable[[Body], Entry]]]:
        """All lines, the balance, and a function that adds a line; no line is kept if anything is raised."""
        with self.chain.write_transaction() as lines:
            if lines is None or (balance := book.balance_of_account(lines, account)) is None:
                raise _not_open(account)
            yield lines, balance, partial(book.append_body, lines, account, plan=plan, before=balance)


def _not_open(account: str) -> BadInput:
    return BadInput(f"Expected account={account} to be open; the first sweep or `dpsweep budget open` opens it.")
