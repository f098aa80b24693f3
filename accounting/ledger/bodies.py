"""The bodies of ledger entries, one frozen value for each kind: the only module that writes and reads them.

Bodies of entries that take something out of an account are in `accounting/ledger/charge_bodies.py`, those of entries
about the ledger as a whole in `accounting/chain/ledger_lines.py`.

Rules for changing this file:

* The bytes of an entry never change. A field that is introduced later is left out at the value that was implied
  before, and a missing field is read as that value.
* Another person may have written an entry: every field is checked, and only our own policies are built from it.
* A kind that this version does not know is read as `UnknownBody`, which changes no balance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dpsweep.accounting.chain.entries import Entry, Kind
from dpsweep.accounting.chain.ledger_lines import Identified, Witnessed
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.json_files import in_words
from dpsweep.accounting.ledger.charge_bodies import Charged, Restored, Spending, SpentOutside
from dpsweep.accounting.ledger.composition_policy import (
    DELTA,
    EPSILON,
    Policy,
    policy_from_config,
    policy_to_json,
    stored_amount,
)
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint
from dpsweep.accounting.numbers import whole
from dpsweep.accounting.validation import as_written, mapping, text


class Body(Protocol):
    """The content of an entry beside its account and its plan."""

    @property
    def kind(self) -> str:
        """The kind of the entry."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Plain values, in the stored form."""
        ...


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Opens an account with a budget, an adjacency and unit, and a policy."""

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
    """Replaces an account's budget by a higher one."""

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
    """Closes the account: later charges are refused."""

    kind: ClassVar[Kind] = Kind.CLOSE

    def to_json(self) -> dict[str, Any]:
        """An empty form; the kind of the entry says all."""
        return {}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Closed:
        """Reads `to_json`'s form."""
        return cls()


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """Records the fingerprint of the account's data files."""

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
    """Starts an attempt at a trial, on the charge with this digest."""

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
    """Resumes an attempt from its checkpoint, for the `resume`-th time."""

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
    """Ends an attempt, since its last start or resume; `realised` is the outcome that its result reports."""

    kind: ClassVar[Kind] = Kind.SETTLE
    trial: str
    attempt: int
    resume: int
    realised: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int, int]:
        """The trial, attempt and resume that name the session."""
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
    """A coordinator with this nonce hands out receipts of the plan; receipts of earlier launches are void."""

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
    """Releases the winner with this salted digest, on the charge with that digest."""

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
class ReleaseManifest:
    """Publishes a folder whose files have this salted digest, on the charge with that digest.

    `folder` is its name in the sweep's folder. A charge has one winner, and a line of this kind for each release of it.
    """

    kind: ClassVar[Kind] = Kind.MANIFEST
    charge: str
    folder: str
    manifest: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return {"charge": self.charge, "folder": self.folder, "manifest": self.manifest}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> ReleaseManifest:
        """Reads `to_json`'s form."""
        return cls(**{name: text(name, form[name]) for name in ("charge", "folder", "manifest")})


@dataclass(frozen=True, kw_only=True)
class UnknownBody:
    """The body of an entry whose kind this version does not know."""

    kind: str
    form: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The stored values, unchanged."""
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
    Kind.MANIFEST: ReleaseManifest.from_json,
    Kind.RESTORED: Restored.from_json,
    Kind.IDENTITY: Identified.from_json,
    Kind.WITNESS: Witnessed.from_json,
}


def read_body(entry: Entry) -> Body:
    """The body of an entry, read once; raises `LedgerDamaged` if a value is missing or invalid."""
    body: Body = entry.read_by(_read)
    return body


def _read(entry: Entry) -> Body:
    with as_written(f"entry {entry.seq} of the ledger", LedgerDamaged):
        return body_of(entry.kind, entry.body)


def body_of(kind: str, form: Mapping[str, Any]) -> Body:
    """The body of an entry of this kind in its stored form."""
    return _READERS[kind](form) if kind in _READERS else UnknownBody(kind=kind, form=form)


def witness_in(entry: Entry | None) -> str | None:
    """The name of the witness in an entry that says that there is one."""
    body = None if entry is None else read_body(entry)
    return body.witness if isinstance(body, Witnessed) else None


def spending(entry: Entry) -> Spending:
    """The body of an entry that takes something out of the account; raises `LedgerDamaged` for other entries."""
    body = read_body(entry)
    if not isinstance(body, Spending):
        raise LedgerDamaged(f"Expected entry {entry.seq} of the ledger to be a charge, got {entry.kind}.")
    return body


def charged(entry: Entry) -> Charged:
    """The body of a plan's charge; raises `LedgerDamaged` for other entries."""
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
    """The budget stored in an entry or a balance."""
    return Guarantee(
        epsilon=float(stored_amount(EPSILON, body[EPSILON])),
        delta=body[DELTA],
        adjacency=Adjacency(body["adjacency"]),
        unit=text("unit", body["unit"]),
    )
