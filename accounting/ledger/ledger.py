"""The durable account book of data sets: budgets, charges, and started attempts.

Why it exists: an epsilon kept in a process is lost with it, and the next run starts from zero. Invariants:

* Entries are only ever added, and every entry holds the hash of the one before (`accounting/chain/storage.py`).
* A charge is priced here, from the declared accesses: no number of anybody's is charged but a cost from outside.
* A charge and its budget check are one transaction, so that two sweeps at once cannot overspend.
* An attempt can be started only against a charge that covers it; every started attempt stays charged, whatever its
  end. There is no refund.
* Every opening of the ledger compares it with its mirrors (`accounting/ledger/mirrored_chain.py`), by the identity in
  its first line and by its place.
* The composition of charges is fixed when an account is opened (`accounting/ledger/composition_policy.py`). Sums are
  exact decimals, not floats.

Rules for changing this file: no method edits an entry, and none may lower `Statement.reserved_epsilon_and_delta`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_data_path

from dpsweep.accounting.chain.hash_chain import End, Entry, Kind, Lines
from dpsweep.accounting.errors import BadInput, BudgetRefused, ContractBroken, LedgerDamaged
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger import bodies
from dpsweep.accounting.ledger.account import (
    Attempts,
    Balance,
    Statement,
    append_line_with_balance,
    balance_of_account,
    sealed_charges_of_entries,
)
from dpsweep.accounting.ledger.bodies import (
    Charged,
    Ended,
    Released,
    ReleaseManifest,
    SpentOutside,
    charged_points,
    read_body,
    require_plan_charge_body,
)
from dpsweep.accounting.ledger.composition_policy import Addition, Policy
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint, Relation, message_about_new_data_or_none
from dpsweep.accounting.ledger.mirror import data_lines_of_other_ledgers
from dpsweep.accounting.ledger.mirrored_chain import MirroredChain, named_mirrors
from dpsweep.accounting.ledger.paid_events import (
    Declared,
    digest_of_declared_events,
    require_paid_events,
    require_point_for_each_spare,
)
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.ledger.restoration import restore_ledger
from dpsweep.accounting.ledger.sealed_parts import SealedCharge, numbered_for_charge
from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.selection.interface import rule_from_config
from dpsweep.accounting.validation import turn_read_errors_into_refusal

if TYPE_CHECKING:
    from dpsweep.accounting.upper_bounds import Opinions

ADDITION = Addition()

FIELDS = frozenset(one.name for one in fields(Charged))
"""What the ledger says of a charge, so that no further fact is called like it."""


class Ledger:
    """An append-only, hash-chained account book: one file, or a PostgreSQL database shared by several machines.

    `Ledger.user_ledger_place()` gives the user's ledger. It lies outside every sweep folder, so that deleting a folder
    does not lower the reserved amounts. `home` is the folder of the private stores of rehearsals, for a rehearsal's
    ledger, which has no mirror.
    """

    def __init__(self, place: str | Path, home: Path | None = None) -> None:
        self._chain = MirroredChain(place, mirrored=home is None)
        self.path, self.name, self.home = self._chain.chain.file, self._chain.chain.name, home

    @staticmethod
    def user_ledger_place() -> str:
        """`DPSWEEP_LEDGER`, a file or a `postgresql+psycopg://` address; or a file in the user's data directory."""
        return os.environ.get("DPSWEEP_LEDGER") or str(user_data_path("dpsweep") / "ledger.sqlite")

    def identity(self) -> str:
        """The ledger's identity; a ledger without a line gets the one that is told here, if this object opens it."""
        return self._chain.identity()

    def named_mirrors(self) -> tuple[Path, ...]:
        """The files of mirrors that lines of the ledger name."""
        with self._chain.read_transaction() as lines:
            return () if lines is None else tuple(mirror.path for mirror in named_mirrors(lines))

    def name_mirror(self, path: Path | None) -> None:
        """Begins a mirror in this file, None for the user's own, by a line; whoever writes keeps it from then on."""
        self._chain.name_mirror(path)

    def drop_mirror(self, path: Path) -> None:
        """Adds the line that the mirror in this file is kept no longer."""
        self._chain.drop_mirror(path)

    def restore(self) -> tuple[str, ...]:
        """Charges what only a mirror has, where two ledgers have a common beginning; a sentence for each charge."""
        return restore_ledger(self._chain)

    @property
    def folder_for_local_files(self) -> Path:
        """The folder for this machine's files beside the ledger: locks, and measured step times."""
        return user_data_path("dpsweep") if self.path is None else self.path.parent

    def open_account(self, account: str, budget: Guarantee, policy: Policy = ADDITION) -> Statement:
        """Opens a new account and records its budget, neighbours and policy."""
        with self._write_transaction_creating_ledger(account) as lines:
            if (balance := balance_of_account(lines, account)) is not None:
                raise BadInput(f"Expected account={account} to be new; it is open with {balance.budget}.")
            return _append_account_opening(lines, account, budget, policy)

    def open_account_or_check_budget(self, account: str, budget: Guarantee) -> Statement:
        """The account, opened with `budget` if it is new; else `budget` must be one that was recorded for it.

        The budget recorded last is in force. A value that was never recorded raises `BadInput`, with the command that
        raises the budget.
        """
        statement = self.open_account_or_check_neighbours(account, budget)
        if budget not in statement.recorded_budgets:
            raise BadInput(
                f"Expected the budget of {account} to be {statement.budget}, as its account stands, got {budget}. To "
                f"raise it: dpsweep budget raise dataset={account} budget.epsilon="
                f"{text_with_all_digits(budget.epsilon)} budget.delta={text_with_all_digits(budget.delta)}"
            )
        return statement

    def open_account_or_check_neighbours(self, account: str, budget: Guarantee) -> Statement:
        """The account, opened with `budget` if it is new; else the neighbours must be the same."""
        with self._write_transaction_creating_ledger(account) as lines:
            if lines.last_line_of_account(account) is None:
                _append_account_opening(lines, account, budget, ADDITION)
            statement = _statement_from_lines(lines, account, plan="")
        statement.require_same_unit_and_neighbours(budget)
        statement.require_same_public_or_private(budget)
        return statement

    def record_data_and_return_message(self, account: str, data: Fingerprint) -> str:
        """Compares the data files with all accounts, records new ones, and returns `message_about_new_data_or_none`."""
        with self._write_transaction_on_open_account(account) as (lines, balance):
            news = message_about_new_data_or_none(data, account, _account_and_fingerprint_pairs(lines), self.name)
            if news is not None:
                append_line_with_balance(lines, account, bodies.Recognised(data=data), before=balance)
        return news or ""

    def account_and_fingerprint_pairs(self) -> tuple[tuple[str, Fingerprint], ...]:
        """Every recorded data set, each after the name of its account."""
        with self._chain.read_transaction() as lines:
            return () if lines is None else _account_and_fingerprint_pairs(lines)

    def same_data_in_other_ledgers_sentences(self, data: Fingerprint) -> tuple[str, ...]:
        """A sentence for each other ledger of this user with a file of these data."""
        accounts = [
            (place, account)
            for place, account, form in data_lines_of_other_ledgers(self.identity())
            if data.relation_to_other(Fingerprint.from_json(form)) in (Relation.SAME, Relation.SHARED)
        ]
        return tuple(
            f"The ledger {place} has these data as its account {account}: what the two ledgers spent on them adds up, "
            "and this one does not count it. DPSWEEP_LEDGER names the ledger that is used."
            for place, account in dict.fromkeys(accounts)
        )

    def raise_budget(self, account: str, budget: Guarantee) -> Statement:
        """Records a higher budget. Refuses a lower one, other neighbours, or a closed account."""
        with self._write_transaction_on_open_account(account) as (lines, balance):
            Statement(account=account, balance=balance, entries=()).require_same_unit_and_neighbours(budget)
            if balance.closed:
                raise BadInput(f"Expected account={account} to be open; it was closed.")
            if not balance.budget.is_within_budget(budget) or balance.budget == budget or budget.promises_nothing:
                epsilon, delta = map(text_with_all_digits, (balance.budget.epsilon, balance.budget.delta))
                raise BadInput(
                    f"The budget of {account} is epsilon {epsilon}, delta {delta} already, and is never lowered; say "
                    "budget.epsilon= something larger."
                )
            append_line_with_balance(lines, account, bodies.Raised(budget=budget), before=balance)
            return _statement_from_lines(lines, account)

    def close_account(self, account: str) -> Statement:
        """Closes the account for ever: later charges are refused. Trials that are already charged may still finish."""
        with self._write_transaction_on_open_account(account) as (lines, balance):
            if balance.closed:
                raise BadInput(f"Expected account={account} to be open; it was closed before.")
            append_line_with_balance(lines, account, bodies.Closed(), before=balance)
            return _statement_from_lines(lines, account)

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

        The search is by `rule`, in its stored form, over `points`; `query` is what a card reads. Their event is made
        and priced here (`accounting/upper_bounds.py`); `opinions` may raise the price or refuse it. `record` is stored
        beside it. `sealed` says which units the runs leave out; a card gets the number of its part here. The check and
        the charge are one transaction. Raises `BadInput` if a card is asked for and no part is left, `UnderCharged` if
        the account waits for what an earlier version charged too little.
        """
        from dpsweep.accounting.ledger import shortfall  # scipy: .2 s that nothing else here needs
        from dpsweep.accounting.upper_bounds import PRICES, quote_for_charge

        if len(set(trials)) != len(trials) or spares < 0:
            raise ValueError(f"Expected trials={list(trials)} to be distinct and spares={spares} >= 0.")
        require_point_for_each_spare(trials, spares, points)
        own, opened = rule_from_config(rule), self.statement(account, plan="")
        if any(map(shortfall.is_of_earlier_version, self._charges_on_account(account))):
            shortfall.require_paid_charges(self.statement(account))
        if own.draws_in_secret and (len(trials), spares) != (1, 0):
            raise ValueError(f"Expected one attempt at a search by {own.name}, got {len(trials)} and {spares} spares.")
        event = replace(own.event(points), sealed=query)
        quote = quote_for_charge(event, delta, opened.budget.adjacency, opened.budget.unit, opinions)
        total = opinions.total_variation(event, opened.budget.adjacency)
        cost = replace(opened.budget, epsilon=quote.epsilon, delta=delta)  # opinions may raise the epsilon alone
        takes = opened.policy.amounts_of_charge(cost, event)  # before the write lock: it may take long
        body = Charged(
            epsilon=quote.epsilon,
            delta=delta,
            takes=takes,
            trials=tuple(trials),
            spares=spares,
            event=event.to_json(),
            points=charged_points(points),
            prices=PRICES,
            record={
                **{key: value for key, value in record.items() if key not in FIELDS},
                **quote.to_record(),
                **({} if total is None else {"total_variation": total}),
                "rule": {**rule, "name": own.name},
            },
        )
        with self._write_transaction_on_open_account(account) as (lines, balance):
            if not balance.has_room_for_amounts(takes):
                refused = Statement(account=account, balance=balance, entries=())
                raise BudgetRefused(refused.charge_refusal_text(cost, event))
            if sealed is not None:
                earlier = sealed_charges_of_entries(lines.lines_of_account(account, None))
                body = replace(body, sealed=numbered_for_charge(earlier, sealed, account))
            return append_line_with_balance(lines, account, body, plan=plan, before=balance)

    def record_outside_cost(self, account: str, cost: Guarantee, note: str) -> Statement:
        """Records a cost on these data outside this tool. It has already happened, so it is never refused."""
        if cost.epsilon == float("inf"):
            raise BadInput(f"Expected epsilon={cost.epsilon} to be finite.")
        with self._write_transaction_on_open_account(account) as (lines, balance):
            Statement(account=account, balance=balance, entries=()).require_same_unit_and_neighbours(cost)
            takes = balance.policy.amounts_of_charge(cost, None)
            body = SpentOutside(epsilon=cost.epsilon, delta=cost.delta, takes=takes, note=note)
            append_line_with_balance(lines, account, body, before=balance)
            return _statement_from_lines(lines, account)

    def record_starts_and_return_receipts(
        self, account: str, *, plan: str, trials: Sequence[str], declared: Declared
    ) -> tuple[Receipt, ...]:
        """Records one more attempt at each trial as started, before it is launched, and returns the receipts.

        Raises `ContractBroken` unless a charge that no earlier attempt used covers every one of them, for the accesses
        that its name is `declared` with.
        """
        with self._write_transaction_on_open_account(account) as (lines, balance):
            receipts = []
            own = Attempts(lines.lines_of_account(account, plan))
            for trial in trials:
                attempt = own.started[trial] + 1
                if not own.is_next_attempt_paid_for(trial):
                    raise ContractBroken(f"Attempt {attempt} at trial {trial} is covered by no charge on {account}.")
                own.started[trial] += 1
                charge = own.charge_entry_covering_attempt(trial, attempt).digest
                accesses = digest_of_declared_events(declared.get(trial, ()))
                body = bodies.Started(trial=trial, attempt=attempt, charge=charge, accesses=accesses)
                entry = append_line_with_balance(lines, account, body, plan=plan, before=balance)
                own.starts[trial, attempt] = body
                receipts.append(Receipt.from_entry(entry, body))
            paid_by = {receipt.charge for receipt in receipts}
            for entry in (entry for entry in own.charges if entry.digest in paid_by):
                starts = [body for body in own.starts.values() if body.charge == entry.digest]
                require_paid_events(require_plan_charge_body(entry), starts, declared)
        return tuple(receipts)

    def record_resumes_and_return_receipts(
        self, account: str, *, plan: str, trials: Sequence[str]
    ) -> tuple[Receipt, ...]:
        """Records that the last attempt at each trial resumes from its checkpoint, and returns receipts for that.

        It costs nothing: an attempt's steps are counted and priced beforehand, including steps that run twice.
        Raises `ContractBroken` for a trial that never started, and for an attempt with a final end.
        """
        with self._write_transaction_on_open_account(account) as (lines, balance):
            receipts = []
            own = Attempts(lines.lines_of_account(account, plan))
            for trial in trials:
                attempt = own.started[trial]
                if not attempt:
                    raise ContractBroken(f"Trial {trial} was never started, so there is nothing to go on with.")
                if own.final_end_record_of_attempt(trial, attempt) is not None:
                    raise ContractBroken(f"Attempt {attempt} at trial {trial} has ended, so it does not resume.")
                own.resumed[trial, attempt] += 1
                body = bodies.Resumed(trial=trial, attempt=attempt, resume=own.resumed[trial, attempt])
                entry = append_line_with_balance(lines, account, body, plan=plan, before=balance)
                receipts.append(Receipt.from_entry(entry, own.starts[trial, attempt]))
        return tuple(receipts)

    def record_ended_attempts(self, account: str, *, plan: str, ended: Sequence[Ended]) -> None:
        """Records the ends of attempts, each once; their costs do not change."""
        with self._write_transaction_on_open_account(account) as (lines, balance):
            own = Attempts(lines.lines_of_account(account, plan))
            known = set(own.settled)
            for one in ended:
                if one.attempt > own.started[one.trial]:
                    raise ContractBroken(f"Attempt {one.attempt} at trial {one.trial} ended without having started.")
                if one.session_key not in known:
                    append_line_with_balance(lines, account, one, plan=plan, before=balance)
                    known.add(one.session_key)

    def record_launch(self, account: str, *, plan: str, nonce: str) -> None:
        """Records that a coordinator will hand out receipts of a plan; receipts of earlier launches are void."""
        with self._write_transaction_on_open_account(account) as (lines, balance):
            append_line_with_balance(lines, account, bodies.Launched(nonce=nonce), plan=plan, before=balance)

    def record_release(self, account: str, *, plan: str, winner: Released, manifest: ReleaseManifest) -> None:
        """Records the winner of a charge, once, and the files of a release of it, unless the last one had them.

        Raises `BadInput`, and records nothing, if another winner of the same charge was released before.
        """
        with self._write_transaction_on_open_account(account) as (lines, balance):
            for body in Attempts(lines.lines_of_account(account, plan)).entry_bodies_to_add_for_release(
                winner, manifest
            ):
                append_line_with_balance(lines, account, body, plan=plan, before=balance)

    def statement(self, account: str, plan: str | None = None) -> Statement:
        """The state of the account, with all entries or one plan's; raises `BadInput` if it was never opened."""
        if (statement := self.statement_or_none(account, plan)) is None:
            raise BadInput(_NOT_OPEN.format(account=account))
        return statement

    def statement_or_none(self, account: str, plan: str | None = None) -> Statement | None:
        """The state of the account as `statement` has it; None if it was never opened. Creates nothing."""
        with self._chain.read_transaction() as lines:
            if lines is None or lines.last_line_of_account(account) is None:
                return None
            return _statement_from_lines(lines, account, plan)

    def attempts_of_plan(self, account: str, plan: str) -> Attempts:
        """The attempts at the runs of a plan; raises `BadInput` if the account was never opened."""
        return self.statement(account, plan).attempts_of_plan(plan)

    def account_names(self) -> tuple[str, ...]:
        """The names of all accounts."""
        with self._chain.read_transaction() as lines:
            return () if lines is None else lines.account_names()

    def verify_and_count_entries(self, remembered: Sequence[End] = ()) -> int:
        """Walks the chain and returns the number of entries; raises `LedgerDamaged` naming the first bad one.

        Detects any altered, missing or reordered inner entry, and any balance that does not follow. `remembered` are
        earlier ends, for example of receipts: if one of them is missing, the ledger was replaced.
        """
        return self._chain.verify_and_count_entries(remembered)

    def hold_named_lock(self, name: str, what: str) -> AbstractContextManager[None]:
        """Holds a lock of this name on a server; `BadInput` names the process that runs `what` and holds it."""
        return self._chain.chain.hold_lock_or_refuse(name, what)

    def _charges_on_account(self, account: str) -> tuple[Entry, ...]:
        with self._chain.read_transaction() as lines:
            return () if lines is None else lines.entries(account=account, kind=Kind.CHARGE)

    @contextmanager
    def _write_transaction_creating_ledger(self, account: str) -> Iterator[Lines]:
        """A transaction on a ledger, created if missing unless another one lay at its place."""
        if not (account and account.isprintable()) or ".." in account.split("/"):
            raise BadInput(f"Expected account={account!r} to be a name.")
        self._chain.create_if_missing()
        with self._chain.write_transaction() as lines:
            if lines is None:
                raise LedgerDamaged(f"The ledger {self.name} was taken away while it was being opened.")
            yield lines

    @contextmanager
    def _write_transaction_on_open_account(self, account: str) -> Iterator[tuple[Lines, Balance]]:
        """A transaction on an account that is open."""
        with self._chain.write_transaction() as lines:
            if lines is None:
                raise BadInput(_NOT_OPEN.format(account=account))
            yield lines, _account_balance(lines, account)


_NOT_OPEN = "Expected account={account} to be open; the first sweep or `dpsweep budget open` opens it."


def _append_account_opening(lines: Lines, account: str, budget: Guarantee, policy: Policy) -> Statement:
    policy.amount_limits(budget)
    body = bodies.Opened(budget=budget, policy=policy)
    append_line_with_balance(lines, account, body, before=Balance.for_opened_account(body))
    return _statement_from_lines(lines, account)


@turn_read_errors_into_refusal("the ledger", LedgerDamaged)
def _account_and_fingerprint_pairs(lines: Lines) -> tuple[tuple[str, Fingerprint], ...]:
    known = [(entry.account, read_body(entry)) for entry in lines.entries(kind=Kind.DATA)]
    return tuple((account, body.data) for account, body in known if isinstance(body, bodies.Recognised))


@turn_read_errors_into_refusal("the ledger", LedgerDamaged)
def _statement_from_lines(lines: Lines, account: str, plan: str | None = None) -> Statement:
    balance = _account_balance(lines, account)
    return Statement(account=account, balance=balance, entries=lines.lines_of_account(account, plan))


def _account_balance(lines: Lines, account: str) -> Balance:
    if (balance := balance_of_account(lines, account)) is None:
        raise BadInput(_NOT_OPEN.format(account=account))
    return balance
