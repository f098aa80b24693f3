"""What each kind of ledger line says, as one frozen value each: the only place that writes and reads lines' bodies.

Bodies of lines that take something out of an account are in `accounting/ledger/charge_bodies.py`.

Rules for changing this file:

* The bytes of a line are a record for ever. A field that is introduced later is left out at the value that it had
  implicitly, and is read as that value where it is missing.
* Somebody else may have written a line: every field is checked, and nothing but a policy of ours is built from it.
* A kind that this version does not know is read as `UnknownBody`, which changes no balance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dpsweep.accounting.chain.entries import Entry, Kind
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.json_files import in_words
from dpsweep.accounting.ledger.charge_bodies import Charged, Restored, Spending, SpentOutside
from dpsweep.accounting.ledger.composition_policy import DELTA, EPSILON, Policy, policy_from_config, policy_to_json
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint
from dpsweep.accounting.numbers import whole
from dpsweep.accounting.validation import as_written, mapping, text


class Body(Protocol):
    """What a line says beside its account and its plan."""

    @property
    def kind(self) -> str:
        """Which kind of line it is the body of."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Plain values, as they are stored."""
        ...


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An account is opened with a budget, for neighbours of one kind, under a policy."""

    kind: ClassVar[Kind] = Kind.OPEN
    budget: Guarantee
    policy: Policy

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return budget_to_json(self.budget) | {"policy": policy_to_json(self.policy)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Opened:
        """Reads `to_json`'s form."""
        return cls(budget=budget_from_json(form), policy=policy_from_config(mapping("policy", form["policy"])))


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An account's budget is a higher one from here on."""

    kind: ClassVar[Kind] = Kind.RAISE
    budget: Guarantee

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return budget_to_json(self.budget)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Raised:
        """Reads `to_json`'s form."""
        return cls(budget=budget_from_json(form))


@dataclass(frozen=True, kw_only=True)
class Closed:
    """Nothing more is charged on the account."""

    kind: ClassVar[Kind] = Kind.CLOSE

    def to_json(self) -> dict[str, Any]:
        """Nothing beside the kind of the line."""
        return {}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Closed:
        """Reads `to_json`'s form."""
        return cls()


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """The account's data lie in files with this fingerprint."""

    kind: ClassVar[Kind] = Kind.DATA
    data: Fingerprint

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return self.data.to_json()

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Recognised:
        """Reads `to_json`'s form."""
        return cls(data=Fingerprint.from_json(form))


@dataclass(frozen=True, kw_only=True)
class Started:
    """An attempt at a trial begins, on the charge with this digest."""

    kind: ClassVar[Kind] = Kind.START
    trial: str
    attempt: int
    charge: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return {"trial": self.trial, "attempt": self.attempt, "charge": self.charge}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Started:
        """Reads `to_json`'s form."""
        return cls(
            trial=text("trial", form["trial"]),
            attempt=whole("attempt", form["attempt"]),
            charge=text("charge", form["charge"]),
        )


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """An attempt goes on from its checkpoint, for the `resume`-th time."""

    kind: ClassVar[Kind] = Kind.RESUME
    trial: str
    attempt: int
    resume: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return {"trial": self.trial, "attempt": self.attempt, "resume": self.resume}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Resumed:
        """Reads `to_json`'s form."""
        return cls(
            trial=text("trial", form["trial"]),
            attempt=whole("attempt", form["attempt"]),
            resume=whole("resume", form["resume"]),
        )


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of an attempt, from its last start or resume on; `realised` is what its result says of it."""

    kind: ClassVar[Kind] = Kind.SETTLE
    trial: str
    attempt: int
    resume: int
    realised: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int, int]:
        """Which session of which attempt."""
        return self.trial, self.attempt, self.resume

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return dict(self.realised) | {"trial": self.trial, "attempt": self.attempt, "resume": self.resume}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Ended:
        """Reads `to_json`'s form."""
        return cls(
            trial=text("trial", form["trial"]),
            attempt=whole("attempt", form["attempt"]),
            resume=whole("resume", form["resume"]),
            realised={name: value for name, value in form.items() if name not in ("trial", "attempt", "resume")},
        )


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A coordinator with this nonce hands out receipts of the plan; those of earlier launches are void."""

    kind: ClassVar[Kind] = Kind.LAUNCH
    nonce: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return {"nonce": self.nonce}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Launched:
        """Reads `to_json`'s form."""
        return cls(nonce=text("nonce", form["nonce"]))


@dataclass(frozen=True, kw_only=True)
class Released:
    """The winner with this salted digest was let out, on the charge with that digest."""

    kind: ClassVar[Kind] = Kind.RELEASE
    charge: str
    winner: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return {"charge": self.charge, "winner": self.winner}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Released:
        """Reads `to_json`'s form."""
        return cls(charge=text("charge", form["charge"]), winner=text("winner", form["winner"]))


@dataclass(frozen=True, kw_only=True)
class UnknownBody:
    """Of a kind that this version does not know."""

    kind: str
    form: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The values as they were stored."""
        return dict(self.form)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Body]] = {
    Kind.OPEN: Opened.from_json,
    Kind.RAISE: Raised.from_json,
    Kind.CLOSE: Closed.from_json,
    Kind.DATA: Recognised.from_json,
    Kind.CHARGE: Charged.from_json,
    Kind.OUTSIDE: SpentOutside.from_json,
    Kind.START: Started.from_json,
    Kind.RESUME: Resumed.from_json,
    Kind.SETTLE: Ended.from_json,
    Kind.LAUNCH: Launched.from_json,
    Kind.RELEASE: Released.from_json,
    Kind.RESTORED: Restored.from_json,
}


def read_body(entry: Entry) -> Body:
    """What a line says; raises `LedgerDamaged` where a value is missing or makes no sense."""
    with as_written(f"entry {entry.seq} of the ledger", LedgerDamaged):
        if entry.kind not in _READERS:
            return UnknownBody(kind=entry.kind, form=entry.body)
        return _READERS[entry.kind](entry.body)


def spending(entry: Entry) -> Spending:
    """What a line says that takes something out of the account; raises `LedgerDamaged` where it is another one."""
    body = read_body(entry)
    if not isinstance(body, Spending):
        raise LedgerDamaged(f"Expected entry {entry.seq} of the ledger to be a charge, got {entry.kind}.")
    return body


def charged(entry: Entry) -> Charged:
    """What a charge of a plan says; raises `LedgerDamaged` where a line is no such charge."""
    body = spending(entry)
    if not isinstance(body, Charged):
        raise LedgerDamaged(f"Expected entry {entry.seq} of the ledger to be a charge of a plan, got {entry.kind}.")
    return body


def budget_to_json(budget: Guarantee) -> dict[str, Any]:
    """Plain values; `budget_from_json` restores an equal budget."""
    return {
        EPSILON: in_words(budget.epsilon),
        DELTA: budget.delta,
        "adjacency": budget.adjacency.value,
        "unit": budget.unit,
    }


def budget_from_json(body: Mapping[str, Any]) -> Guarantee:
    """The budget of an entry or a balance."""
    return Guarantee(
        epsilon=float(body[EPSILON]),
        delta=body[DELTA],
        adjacency=Adjacency(body["adjacency"]),
        unit=text("unit", body["unit"]),
    )
