"""The durable account book of data sets: budgets, charges, and started attempts.

Why it exists: an epsilon kept in a process is lost with it, and the next run starts from zero. Invariants:

* Entries are only ever added, and every entry holds the hash of the one before (`accounting/chain/storage.py`).
* A charge and its budget check are one transaction, so that two sweeps at once cannot overspend.
* An attempt can be started only against a charge that covers it; every started attempt stays charged, whatever its
  end. There is no refund.
* Every opening of the ledger compares it with the end that this machine remembers
  (`accounting/ledger/compared_chain.py`), by the identity in its first line and by its place.
* The composition of charges is fixed when an account is opened (`accounting/ledger/composition_policy.py`). Sums are
  exact decimals, not floats.

Rules for changing this file: no method edits an entry, and none may lower `Statement.reserved`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from dpsweep.accounting.chain.hash_chain import End, Entry, Kind, Lines
from dpsweep.accounting.errors import BadInput, BudgetRefused, ContractBroken, LedgerDamaged
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger import bodies
from dpsweep.accounting.ledger.account import Attempts, Balance, Statement, append_body
from dpsweep.accounting.ledger.bodies import Charged, Ended, Released, ReleaseManifest, SpentOutside, read_body
from dpsweep.accounting.ledger.compared_chain import ComparedChain
from dpsweep.accounting.ledger.composition_policy import Addition, Policy
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint, news_of
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.notation import all_digits
from dpsweep.accounting.validation import as_written

ADDITION = Addition()


class Ledger:
    """An append-only, hash-chained account book: one file, or a PostgreSQL database shared by several machines.

    `Ledger.locate()` gives the user's ledger. It lies outside every sweep folder, so that deleting a folder does not
    lower the reserved amounts. `home` is the folder of the private stores of rehearsals, for a rehearsal's ledger,
    whose memory lies beside it.
    """

    def __init__(self, place: str | Path, home: Path | None = None) -> None:
        self._chain = ComparedChain(place, None if home is None else Path(place).parent / "ends")
        self.path, self.home = self._chain.file, home

    @staticmethod
    def locate() -> str:
        """`DPSWEEP_LEDGER`, a file or a `postgresql+psycopg://` address; or a file in the user's data directory."""
        return os.environ.get("DPSWEEP_LEDGER") or str(user_data_path("dpsweep") / "ledger.sqlite")

    @property
    def name(self) -> str:
        """The ledger's name in messages."""
        return self._chain.name

    def identity(self) -> str:
        """The ledger's identity; a ledger without a line gets the one that is told here, if this object opens it."""
        return self._chain.identity()

    def witness(self) -> str | None:
        """The name of the witness that the ledger's lines say it has, None without one."""
        with self._chain.reading() as lines:
            return None if lines is None else bodies.witness_in(lines.last_of_kind(Kind.WITNESS))

    @property
    def beside(self) -> Path:
        """The folder for this machine's files beside the ledger: locks, and measured step times."""
        return user_data_path("dpsweep") if self.path is None else self.path.parent

    def open(self, account: str, budget: Guarantee, policy: Policy = ADDITION) -> Statement:
        """Opens a new account and records its budget, neighbours and policy."""
        with self._creating_transaction(account) as lines:
            if (last := lines.last(account)) is not None:
                raise BadInput(f"Expected account={account} to be new; it is open with {_balance_of(last).budget}.")
            return _append_opening(lines, account, budget, policy)

    def use(self, account: str, budget: Guarantee) -> Statement:
        """The account, opened with `budget` if it is new; else `budget` must be one that was recorded for it.

        The budget recorded last is in force. A value that was never recorded raises `BadInput`, with the command that
        raises the budget.
        """
        statement = self.find(account, budget)
        if budget not in statement.recorded_budgets:
            raise BadInput(
                f"Expected the budget of {account} to be {statement.budget}, as its account stands, got {budget}. "
                f"To raise it on the record: dpsweep budget raise dataset={account} "
                f"budget.epsilon={all_digits(budget.epsilon)} budget.delta={all_digits(budget.delta)}"
            )
        return statement

    def find(self, account: str, budget: Guarantee) -> Statement:
        """The account, opened with `budget` if it is new; else the neighbours must be the same."""
        with self._creating_transaction(account) as lines:
            if lines.last(account) is None:
                _append_opening(lines, account, budget, ADDITION)
            statement = _statement(lines, account, plan="")
        statement.require_same_neighbours(budget)
        statement.require_same_promise(budget)
        return statement

    def recognise(self, account: str, data: Fingerprint) -> str:
        """Compares the data files with all accounts, as `news_of` does, records new ones, and returns a message."""
        with self._writing(account) as (lines, balance):
            news = news_of(data, account, _recorded_data_sets(lines), self.name)
            if news is not None:
                append_body(lines, account, bodies.Recognised(data=data), before=balance)
        return news or ""

    def data_sets(self) -> tuple[tuple[str, Fingerprint], ...]:
        """Every recorded data set, each after the name of its account."""
        with self._chain.reading() as lines:
            return () if lines is None else _recorded_data_sets(lines)

    def raise_budget(self, account: str, budget: Guarantee) -> Statement:
        """Records a higher budget. Refuses a lower one, other neighbours, or a closed account."""
        with self._writing(account) as (lines, balance):
            _summary(account, balance).require_same_neighbours(budget)
            if balance.closed:
                raise BadInput(f"Expected account={account} to be open; it was closed.")
            if not balance.budget.fits(budget) or balance.budget == budget or budget.vacuous:
                raise BadInput(f"Expected budget={budget} of {account} to be higher than {balance.budget}.")
            append_body(lines, account, bodies.Raised(budget=budget), before=balance)
            return _statement(lines, account)

    def close(self, account: str) -> Statement:
        """Closes the account for ever: later charges are refused. Trials that are already charged may still finish."""
        with self._writing(account) as (lines, balance):
            if balance.closed:
                raise BadInput(f"Expected account={account} to be open; it was closed before.")
            append_body(lines, account, bodies.Closed(), before=balance)
            return _statement(lines, account)

    def charge(
        self,
        account: str,
        *,
        plan: str,
        trials: Sequence[str],
        cost: Guarantee,
        record: Mapping[str, Any],
        event: PlanEvent | None = None,
        spares: int = 0,
    ) -> Entry:
        """Takes `cost` for one attempt at each of `trials` and for `spares` more, or raises `BudgetRefused`.

        The check and the charge are one transaction. `event` is the declared event; `record` is stored beside it: rule,
        accountants, reason.
        """
        if len(set(trials)) != len(trials) or spares < 0:
            raise ValueError(f"Expected trials={list(trials)} to be distinct and spares={spares} >= 0.")
        opened = self.statement(account, plan="")
        opened.require_same_neighbours(cost)
        takes = opened.policy.takes(cost, event)  # before the write lock: an accountant may take long
        body = Charged(
            epsilon=cost.epsilon,
            delta=cost.delta,
            takes=takes,
            trials=tuple(trials),
            spares=spares,
            event=None if event is None else {name: events.to_json(part) for name, part in event.parts.items()},
            record=record,
        )
        with self._writing(account) as (lines, balance):
            if not balance.admits(takes):
                raise BudgetRefused(_summary(account, balance).refusal(cost, event))
            return append_body(lines, account, body, plan=plan, before=balance)

    def record_outside(self, account: str, cost: Guarantee, note: str) -> Statement:
        """Records a cost on these data outside this tool. It has already happened, so it is never refused."""
        if cost.epsilon == float("inf"):
            raise BadInput(f"Expected epsilon={cost.epsilon} to be finite.")
        with self._writing(account) as (lines, balance):
            _summary(account, balance).require_same_neighbours(cost)
            takes = balance.policy.takes(cost, None)
            body = SpentOutside(epsilon=cost.epsilon, delta=cost.delta, takes=takes, note=note)
            append_body(lines, account, body, before=balance)
            return _statement(lines, account)

    def start(self, account: str, *, plan: str, trials: Sequence[str]) -> tuple[Receipt, ...]:
        """Records one more attempt at each trial as started, before it is launched, and returns the receipts.

        Raises `ContractBroken` unless a charge that no earlier attempt used covers every one of them.
        """
        with self._writing(account) as (lines, balance):
            receipts = []
            own = Attempts.of(lines.of(account, plan))
            for trial in trials:
                attempt = own.started[trial] + 1
                if not own.is_paid_for(trial):
                    raise ContractBroken(f"Attempt {attempt} at trial {trial} is covered by no charge on {account}.")
                own.started[trial] += 1
                charge = own.charge_of(trial, attempt).digest
                body = bodies.Started(trial=trial, attempt=attempt, charge=charge)
                receipts.append(Receipt.of(append_body(lines, account, body, plan=plan, before=balance), charge))
        return tuple(receipts)

    def resume(self, account: str, *, plan: str, trials: Sequence[str]) -> tuple[Receipt, ...]:
        """Records that the last attempt at each trial resumes from its checkpoint, and returns receipts for that.

        It costs nothing: an attempt's steps are counted and priced beforehand, including steps that run twice.
        """
        with self._writing(account) as (lines, balance):
            receipts = []
            own = Attempts.of(lines.of(account, plan))
            for trial in trials:
                attempt = own.started[trial]
                if not attempt:
                    raise ContractBroken(f"Trial {trial} was never started, so there is nothing to go on with.")
                own.resumed[trial, attempt] += 1
                body = bodies.Resumed(trial=trial, attempt=attempt, resume=own.resumed[trial, attempt])
                entry = append_body(lines, account, body, plan=plan, before=balance)
                receipts.append(Receipt.of(entry, own.charge_of(trial, attempt).digest))
        return tuple(receipts)

    def settle(self, account: str, *, plan: str, ended: Sequence[Ended]) -> None:
        """Records the ends of attempts, each once; their costs do not change."""
        with self._writing(account) as (lines, balance):
            own = Attempts.of(lines.of(account, plan))
            known = set(own.settled)
            for one in ended:
                if one.attempt > own.started[one.trial]:
                    raise ContractBroken(f"Attempt {one.attempt} at trial {one.trial} ended without having started.")
                if one.key not in known:
                    append_body(lines, account, one, plan=plan, before=balance)
                    known.add(one.key)

    def launch(self, account: str, *, plan: str, nonce: str) -> None:
        """Records that a coordinator will hand out receipts of a plan; receipts of earlier launches are void."""
        with self._writing(account) as (lines, balance):
            append_body(lines, account, bodies.Launched(nonce=nonce), plan=plan, before=balance)

    def release(self, account: str, *, plan: str, winner: Released, manifest: ReleaseManifest) -> None:
        """Records the winner of a charge, once, and the files of a release of it, unless the last one had them.

        Raises `BadInput`, and records nothing, if another winner of the same charge was released before.
        """
        with self._writing(account) as (lines, balance):
            for body in Attempts.of(lines.of(account, plan)).lines_of_release(winner, manifest):
                append_body(lines, account, body, plan=plan, before=balance)

    def statement(self, account: str, plan: str | None = None) -> Statement:
        """The state of the account, with all entries or one plan's; raises `BadInput` if it was never opened."""
        with self._chain.reading() as lines:
            return _statement(self._require_ledger(lines, account), account, plan)

    def accounts(self) -> tuple[str, ...]:
        """The names of all accounts."""
        with self._chain.reading() as lines:
            return () if lines is None else lines.accounts()

    def end(self) -> End:
        """The current end of the chain."""
        with self._chain.reading() as lines:
            return End() if lines is None else lines.end()

    def verify(self, remembered: Sequence[End] = ()) -> int:
        """Walks the chain and returns the number of entries; raises `LedgerDamaged` naming the first bad one.

        Detects any altered, missing or reordered inner entry, and any balance that does not follow. `remembered` are
        earlier ends, for example of receipts: if one of them, or this machine's, is missing, the ledger was replaced.
        """
        return self._chain.verify(remembered)

    def hold(self, name: str, what: str) -> AbstractContextManager[None]:
        """Holds a lock of this name on a server; `BadInput` names the process that runs `what` and holds it."""
        return self._chain.hold(name, what)

    @contextmanager
    def _creating_transaction(self, account: str) -> Iterator[Lines]:
        """A transaction on a ledger, created if missing unless this machine remembers one at its place."""
        if not (account and account.isprintable()):
            raise BadInput(f"Expected account={account!r} to be a name.")
        self._chain.make()
        with self._chain.writing() as lines:
            if lines is None:
                raise LedgerDamaged(f"The ledger {self.name} was taken away while it was being opened.")
            yield lines

    @contextmanager
    def _writing(self, account: str) -> Iterator[tuple[Lines, Balance]]:
        """A transaction on an account that is open."""
        with self._chain.writing() as stored:
            lines = self._require_ledger(stored, account)
            yield lines, _balance(lines, account)

    def _require_ledger(self, lines: Lines | None, account: str) -> Lines:
        """The entries; raises if there is no ledger, so that no account is open."""
        if lines is None:
            raise BadInput(_NOT_OPEN.format(account=account))
        return lines


_NOT_OPEN = "Expected account={account} to be open; the first sweep or `dpsweep budget open` opens it."


def _append_opening(lines: Lines, account: str, budget: Guarantee, policy: Policy) -> Statement:
    policy.limits(budget)
    body = bodies.Opened(budget=budget, policy=policy)
    append_body(lines, account, body, before=Balance.opened(body))
    return _statement(lines, account)


@as_written("the ledger", LedgerDamaged)
def _recorded_data_sets(lines: Lines) -> tuple[tuple[str, Fingerprint], ...]:
    known = [(entry.account, read_body(entry)) for entry in lines.of_kind(Kind.DATA)]
    return tuple((account, body.data) for account, body in known if isinstance(body, bodies.Recognised))


def _summary(account: str, balance: Balance) -> Statement:
    return Statement(account=account, balance=balance, entries=())


@as_written("the ledger", LedgerDamaged)
def _statement(lines: Lines, account: str, plan: str | None = None) -> Statement:
    balance = _balance(lines, account)
    return Statement(account=account, balance=balance, entries=lines.of(account, plan))


def _balance(lines: Lines, account: str) -> Balance:
    last = lines.last(account)
    if last is None:
        raise BadInput(_NOT_OPEN.format(account=account))
    return _balance_of(last)


@as_written("the ledger", LedgerDamaged)
def _balance_of(entry: Entry) -> Balance:
    return Balance.from_json(entry.balance)
