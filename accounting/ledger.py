"""The durable account of a data set: what was allowed, what was charged, what was started.

Why it exists: an epsilon that lives in a process dies with it, and the next run starts from zero. What always holds:

* Entries are only ever added; triggers refuse UPDATE and DELETE, and every entry holds the hash of the one before.
* A charge and its budget check are one transaction, so that two sweeps at once cannot overspend.
* An attempt can be started only against a charge that covers it; every attempt that started stays charged, whatever
  became of it. There is no refund.
* Charges add up: each is one (epsilon, delta) by any accountant, which composes also when later sweeps depend on
  earlier results (basic composition; Dwork and Roth 2014, Theorem 3.16). Sums are exact decimals, not floats.

Rules for changing this file: the schema carries a version, an unknown one is refused; no method edits, and none may
lower what `Statement.reserved` says.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from platformdirs import user_data_path
from sqlalchemy.exc import DatabaseError, OperationalError

from accounting.errors import BadInput, BudgetRefused, ContractBroken, LedgerDamaged
from accounting.guarantee import Adjacency, Guarantee
from accounting.receipt import Receipt

SCHEMA = 1
GENESIS = "0" * 64

Row = Mapping[str, Any] | sa.RowMapping

_metadata = sa.MetaData()
_schema = sa.Table("schema", _metadata, sa.Column("version", sa.Integer, primary_key=True))
_entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("account", sa.Text, nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
_TRIGGERS = [
    f"CREATE TRIGGER IF NOT EXISTS entries_refuse_{verb.lower()} BEFORE {verb} ON entries "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for verb in ("UPDATE", "DELETE")
]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger."""

    seq: int
    account: str
    kind: str
    plan: str
    body: Mapping[str, Any]
    at: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """An account as it stands: the budget, and its entries in order."""

    account: str
    budget: Guarantee
    entries: tuple[Entry, ...]

    @property
    def recorded_budgets(self) -> tuple[Guarantee, ...]:
        """The budget that the account was opened with, and every raise since."""
        return tuple(_budget_from_json(entry.body) for entry in self.entries if entry.kind in ("open", "raise"))

    @property
    def charges(self) -> tuple[Entry, ...]:
        """The entries that cost something."""
        return tuple(entry for entry in self.entries if entry.kind == "charge")

    @property
    def reserved(self) -> tuple[float, float]:
        """(epsilon, delta) that charges have taken out of the budget."""
        return float(self._sum("epsilon")), float(self._sum("delta"))

    @property
    def left(self) -> tuple[float, float]:
        """(epsilon, delta) that later charges may still take."""
        return (
            float(max(Decimal(0), _exact(self.budget.epsilon) - self._sum("epsilon"))),
            float(max(Decimal(0), _exact(self.budget.delta) - self._sum("delta"))),
        )

    def admits(self, cost: Guarantee) -> bool:
        """Whether one more charge of `cost` stays within the budget."""
        return (
            math.isfinite(cost.epsilon)
            and self._sum("epsilon") + _exact(cost.epsilon) <= _exact(self.budget.epsilon)
            and self._sum("delta") + _exact(cost.delta) <= _exact(self.budget.delta)
        )

    def covered(self, plan: str, trial: str) -> int:
        """How many attempts at a trial the charges so far pay for."""
        return sum(trial in entry.body["trials"] for entry in self.charges if entry.plan == plan)

    def started(self, plan: str, trial: str) -> int:
        """How many attempts at a trial have been started."""
        return sum(
            entry.kind == "start" and entry.plan == plan and entry.body["trial"] == trial for entry in self.entries
        )

    def _sum(self, name: str) -> Decimal:
        return sum((_exact(entry.body[name]) for entry in self.charges), Decimal(0))


class Ledger:
    """An append-only, hash-chained account book in SQLite.

    `path` is a file; `Ledger.locate()` finds the user's: `DPSWEEP_LEDGER`, or the user's data directory. It lies
    outside every sweep folder, so that deleting one does not lower the bill.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        if not self.path.parent.exists():
            self.path.parent.mkdir(parents=True, mode=0o700)
        self._engine = sa.create_engine(f"sqlite:///{self.path}", connect_args={"timeout": 60})
        sa.event.listen(self._engine, "connect", _durable)
        sa.event.listen(self._engine, "begin", _immediate)

    @staticmethod
    def locate() -> Path:
        """The ledger's file: `DPSWEEP_LEDGER`, or `ledger.sqlite` in the user's data directory."""
        given = os.environ.get("DPSWEEP_LEDGER")
        if given and "://" in given:
            raise BadInput(f"Expected DPSWEEP_LEDGER={given} to be a file; only SQLite ledgers are supported so far.")
        return Path(given) if given else user_data_path("dpsweep") / "ledger.sqlite"

    def open(self, account: str, budget: Guarantee) -> Statement:
        """Opens the account with `budget`, or checks that this is one that was recorded for it.

        What counts is the budget recorded last. A value that was never recorded raises `BadInput`, with the command
        that raises the budget.
        """
        with self._transaction() as connection:
            entries = self._entries(connection, account)
            if not entries:
                body = _budget_to_json(budget)
                entries = (self._append(connection, account=account, kind="open", plan="", body=body),)
            statement = _statement(account, entries)
        _require_same_neighbours(statement, budget)
        if budget not in statement.recorded_budgets:
            raise BadInput(
                f"Expected the budget of {account} to be {statement.budget}, as its account stands, got {budget}. "
                f"To raise it on the record: dpsweep budget raise dataset={account} "
                f"budget.epsilon={budget.epsilon:g} budget.delta={budget.delta:g}"
            )
        return statement

    def raise_budget(self, account: str, budget: Guarantee) -> Statement:
        """Sets a higher budget, on the record. A lower one, or other neighbours, are refused."""
        with self._transaction() as connection:
            entries = self._entries(connection, account)
            if not entries:
                raise BadInput(f"Expected account={account} to be open; the first sweep opens it.")
            _require_same_neighbours(_statement(account, entries), budget)
            old = _statement(account, entries).budget
            if not old.fits(budget) or old == budget:
                raise BadInput(f"Expected budget={budget} of {account} to be higher than {old}.")
            self._append(connection, account=account, kind="raise", plan="", body=_budget_to_json(budget))
            return _statement(account, self._entries(connection, account))

    def charge(
        self, account: str, *, plan: str, trials: Sequence[str], cost: Guarantee, record: Mapping[str, Any]
    ) -> Entry:
        """Takes `cost` out of the account for one attempt at each of `trials`, or raises `BudgetRefused`.

        The check and the charge are one transaction. `record` is kept beside it: event, rule, accountants.
        """
        with self._transaction() as connection:
            statement = self._require(connection, account)
            _require_same_neighbours(statement, cost)
            if not statement.admits(cost):
                raise BudgetRefused(refusal(statement, cost))
            body = {"epsilon": cost.epsilon, "delta": cost.delta, "trials": list(trials)} | dict(record)
            return self._append(connection, account=account, kind="charge", plan=plan, body=body)

    def start(self, account: str, *, plan: str, trials: Sequence[str]) -> tuple[Receipt, ...]:
        """Marks one attempt at each trial as started, before it is launched, and gives out the receipts.

        Raises `ContractBroken` unless every one of them is covered by a charge that no earlier attempt used.
        """
        with self._transaction() as connection:
            statement = self._require(connection, account)
            receipts = []
            for trial in trials:
                attempt = statement.started(plan, trial) + 1
                if attempt > statement.covered(plan, trial):
                    raise ContractBroken(f"Attempt {attempt} at trial {trial} is covered by no charge on {account}.")
                charge = [entry for entry in statement.charges if entry.plan == plan and trial in entry.body["trials"]]
                body = {"trial": trial, "attempt": attempt}
                self._append(connection, account=account, kind="start", plan=plan, body=body)
                receipts.append(
                    Receipt(
                        account=account,
                        plan=plan,
                        trial=trial,
                        attempt=attempt,
                        charge=charge[attempt - 1].digest,
                    )
                )
        return tuple(receipts)

    def settle(self, account: str, *, plan: str, trial: str, attempt: int, realised: Mapping[str, Any]) -> None:
        """Records once what an attempt did; it changes nothing about what it cost."""
        with self._transaction() as connection:
            body = {"trial": trial, "attempt": attempt} | dict(realised)
            settled = [
                entry.body
                for entry in self._entries(connection, account)
                if entry.kind == "settle" and entry.plan == plan
            ]
            if not any((old["trial"], old["attempt"]) == (trial, attempt) for old in settled):
                self._append(connection, account=account, kind="settle", plan=plan, body=body)

    def statement(self, account: str) -> Statement:
        """The account as it stands; raises `BadInput` where it was never opened."""
        with self._transaction() as connection:
            return self._require(connection, account)

    def accounts(self) -> tuple[str, ...]:
        """The names of all accounts."""
        with self._transaction() as connection:
            names = connection.execute(sa.select(_entries.c.account).distinct().order_by(_entries.c.account))
            return tuple(names.scalars())

    def verify(self) -> int:
        """Walks the chain and returns the number of entries; raises `LedgerDamaged` naming the first bad one.

        Finds any altered, missing or reordered inner entry. A cut tail or a replaced file is not found from here.
        """
        previous = GENESIS
        with self._transaction() as connection:
            rows = connection.execute(sa.select(_entries).order_by(_entries.c.seq)).mappings().all()
        for expected, row in enumerate(rows, start=1):
            if row["seq"] != expected or row["previous"] != previous or row["digest"] != _digest(row):
                raise LedgerDamaged(
                    f"Entry {expected} of {self.path} is missing or was altered; nothing is charged on it."
                )
            previous = row["digest"]
        return len(rows)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                self._prepare(connection)
                yield connection
        except OperationalError as cause:
            raise LedgerDamaged(f"The ledger {self.path} cannot be written or read: {cause.orig}.") from cause
        except DatabaseError as cause:
            raise LedgerDamaged(f"The ledger {self.path} is no readable ledger: {cause.orig}.") from cause

    def _prepare(self, connection: sa.Connection) -> None:
        _metadata.create_all(connection)
        for trigger in _TRIGGERS:
            connection.exec_driver_sql(trigger)
        version = connection.execute(sa.select(_schema.c.version)).scalar()
        if version is None:
            connection.execute(_schema.insert().values(version=SCHEMA))
        elif version != SCHEMA:
            raise LedgerDamaged(
                f"Expected ledger schema={version} to be {SCHEMA}: {self.path} was written by another version."
            )

    def _require(self, connection: sa.Connection, account: str) -> Statement:
        entries = self._entries(connection, account)
        if not entries:
            raise BadInput(f"Expected account={account} to be open; the first sweep opens it.")
        return _statement(account, entries)

    def _entries(self, connection: sa.Connection, account: str) -> tuple[Entry, ...]:
        query = sa.select(_entries).where(_entries.c.account == account).order_by(_entries.c.seq)
        return tuple(_entry(row) for row in connection.execute(query).mappings())

    def _append(
        self, connection: sa.Connection, *, account: str, kind: str, plan: str, body: Mapping[str, Any]
    ) -> Entry:
        last = connection.execute(sa.select(_entries).order_by(_entries.c.seq.desc()).limit(1)).mappings().first()
        if last is not None and last["digest"] != _digest(last):
            raise LedgerDamaged(f"Entry {last['seq']} of {self.path} was altered; nothing is charged on it.")
        row: dict[str, Any] = {
            "seq": 1 if last is None else last["seq"] + 1,
            "account": account,
            "kind": kind,
            "plan": plan,
            "body": json.dumps(body, sort_keys=True, allow_nan=False),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "previous": GENESIS if last is None else last["digest"],
        }
        row["digest"] = _digest(row)
        connection.execute(_entries.insert().values(**row))
        return _entry(row)


def refusal(statement: Statement, cost: Guarantee) -> str:
    """Why a charge does not fit, in numbers, with the next step."""
    left = statement.left
    return (
        f"This asks for epsilon={cost.epsilon:.4g} at delta={cost.delta:g}; on {statement.account} "
        f"{left[0]:.4g} of {statement.budget.epsilon:g} and delta {left[1]:g} of {statement.budget.delta:g} are left."
    )


def _require_same_neighbours(statement: Statement, claim: Guarantee) -> None:
    """The unit and the neighbours of an account are fixed when it is opened; claims about others do not add up."""
    fixed = statement.budget
    if (claim.adjacency, claim.unit) != (fixed.adjacency, fixed.unit):
        raise BadInput(
            f"Expected privacy.adjacency={claim.adjacency.value}, unit {claim.unit}, to be {fixed.adjacency.value}, "
            f"{fixed.unit}, as the account of {statement.account} was opened: claims about different neighbours "
            "do not add up."
        )


def _statement(account: str, entries: Sequence[Entry]) -> Statement:
    latest = next(entry.body for entry in reversed(entries) if entry.kind in ("open", "raise"))
    return Statement(account=account, budget=_budget_from_json(latest), entries=tuple(entries))


def _budget_to_json(budget: Guarantee) -> dict[str, Any]:
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "adjacency": budget.adjacency.value,
        "unit": budget.unit,
    }


def _budget_from_json(body: Mapping[str, Any]) -> Guarantee:
    return Guarantee(
        epsilon=body["epsilon"],
        delta=body["delta"],
        adjacency=Adjacency(body["adjacency"]),
        unit=body["unit"],
    )


def _entry(row: Row) -> Entry:
    names = ("seq", "account", "kind", "plan", "at", "digest")
    return Entry(**{name: row[name] for name in names}, body=json.loads(row["body"]))


def _digest(row: Row) -> str:
    content = [row[name] for name in ("previous", "seq", "account", "kind", "plan", "body", "at")]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _exact(value: float) -> Decimal:
    return Decimal(repr(float(value)))


def _durable(connection: Any, _: object) -> None:
    """Write-ahead log, every commit flushed to the disk; transactions are begun by us (see `_immediate`)."""
    connection.isolation_level = None
    for pragma in ("busy_timeout=60000", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _immediate(connection: sa.Connection) -> None:
    """Takes the write lock before anything is read, so that check and charge cannot be interleaved."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
