"""The bodies of ledger entries, one frozen value for each kind: the only module that writes and reads them.

The bytes of an entry never change: a field that is introduced later is `OMITTED` at the value that was implied before.
Another person may have written an entry: every field is checked (`accounting/codec.py`). A kind that this version does
not know is read as `UnknownBody`, which changes no balance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar, dataclass_transform

from dpsweep.accounting.chain.hash_chain import IDENTITY, Entry, Kind
from dpsweep.accounting.codec import BESIDE, OMITTED, Amount, Count, PositiveInt, Stored, Words
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.composition_policy import StoredPolicy
from dpsweep.accounting.ledger.sealed_parts import SealedCharge
from dpsweep.accounting.validation import turn_read_errors_into_refusal

DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Body(Stored):
    """The content of an entry beside its account and plan; each class below is a frozen dataclass."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        cls.kind = kind


Kept = TypeVar("Kept", bound=Body)


class Opened(Body, kind=Kind.OPEN):
    """Opens an account with a budget, an adjacency and unit, and a policy."""

    budget: Annotated[Guarantee, BESIDE]
    policy: StoredPolicy


class Raised(Body, kind=Kind.RAISE):
    """Replaces an account's budget by a higher one."""

    budget: Annotated[Guarantee, BESIDE]


class Closed(Body, kind=Kind.CLOSE):
    """Closes the account: later charges are refused."""


class Fingerprint(Body, kind=Kind.DATA):
    """An account's private files, hidden without the key: its name, and the files' keyed digests, distinct, rising."""

    key_id: str
    files: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, digests in (("key_id", (self.key_id,)), ("files", self.files)):
            whole = all(isinstance(one, str) and DIGEST.fullmatch(one) for one in digests)
            if not digests or not whole or list(digests) != sorted(set(digests)):
                raise ValueError(f"Expected {name}={getattr(self, name)!r} of 64 hexadecimal digits, strictly rising.")


@dataclass(frozen=True, kw_only=True)
class ChargedPoint(Stored):
    """A point of a search that was charged, with so many runs; `event` is the JSON form of one."""

    runs: PositiveInt
    event: Words


class Spending(Body):
    """Takes out of an account the amounts that its policy counts."""

    epsilon: Amount
    delta: Amount
    takes: Mapping[str, Amount]


class Charged(Spending, kind=Kind.CHARGE):
    """Pays for one attempt at each of `trials`, and for `spares` more at any of them.

    `event` is that of the rule in `record` over `points`, and of a card. `prices` is the version of the bounds that
    priced it, 0 for a charge from before they had one. `sealed` says which units the runs leave out. `record` holds
    what readers want to know beside that.
    """

    trials: tuple[str, ...]
    spares: Count = 0
    event: Words | None = None
    points: Annotated[tuple[ChargedPoint, ...], OMITTED] = ()
    prices: Annotated[Count, OMITTED] = 0
    sealed: Annotated[SealedCharge | None, OMITTED] = None
    record: Annotated[Words, BESIDE] = field(default_factory=dict)


def _check_visible(name: str, note: str) -> None:
    if not note.isprintable():
        raise ValueError(f"Expected {name}={note!r} to be one line without control and bidirectional characters.")


class SpentOutside(Spending, kind=Kind.OUTSIDE):
    """Records a cost on these data outside this tool; `note` names its purpose in one line."""

    trials: tuple[()] = ()
    reason: Literal["outside"] = "outside"
    note: Annotated[str, _check_visible]


class Restored(Spending, kind=Kind.RESTORED):
    """Charges again what a line took that only a mirror has; `line` is its digest."""

    trials: tuple[()] = ()
    reason: Literal["restored"] = "restored"
    note: str
    line: str


class Started(Body, kind=Kind.START):
    """Starts an attempt at a trial, on the charge with this digest; `accesses` is that of the declared events."""

    trial: str
    attempt: Count
    charge: str
    accesses: Annotated[str, OMITTED] = ""


class Resumed(Body, kind=Kind.RESUME):
    """Resumes an attempt from its checkpoint, for the `resume`-th time."""

    trial: str
    attempt: Count
    resume: Count


class Ended(Body, kind=Kind.SETTLE):
    """Ends a session of an attempt; `realised` is the outcome that its result reports."""

    trial: str
    attempt: Count
    resume: Count
    realised: Annotated[Mapping[str, Any], BESIDE]


class Launched(Body, kind=Kind.LAUNCH):
    """A coordinator with this nonce hands out the plan's receipts; those of earlier launches are void."""

    nonce: str


class Released(Body, kind=Kind.RELEASE):
    """Releases the winner with this salted digest, on the charge with that digest."""

    charge: str
    winner: str


class ReleaseManifest(Body, kind=Kind.MANIFEST):
    """Publishes a folder of the sweep whose files have this salted digest, on the charge with that digest."""

    charge: str
    folder: str
    manifest: str


def _check_identity_is_hexadecimal(name: str, identity: str) -> None:
    if IDENTITY.fullmatch(identity) is None:
        raise ValueError(f"Expected {name}={identity[:80]!r} to be hexadecimal digits.")


LedgerIdentity = Annotated[str, _check_identity_is_hexadecimal]


class Mirrored(Body, kind=Kind.MIRROR):
    """Says that there is a mirror in this file, none from here on if `dropped`; without a path, the writer's own."""

    path: Annotated[str, OMITTED] = ""
    dropped: Annotated[bool, OMITTED] = False


class UnknownBody(Body):
    """The body of an entry whose kind this version does not know."""

    form: Annotated[Mapping[str, Any], BESIDE]


_KINDS: Mapping[str, type[Body]] = {
    body.kind: body
    for body in (
        *(Opened, Raised, Closed, Fingerprint, Charged, SpentOutside, Restored, Started, Resumed, Ended, Launched),
        *(Released, ReleaseManifest, Mirrored),
    )
}


def read_body(entry: Entry) -> Body:
    """The body of an entry, read once."""
    if not entry.parsed:
        with turn_read_errors_into_refusal(f"entry {entry.seq} of the ledger", LedgerDamaged):
            entry.parsed.append(_KINDS.get(entry.kind, UnknownBody).from_json(entry.body))
    body: Body = entry.parsed[0]
    return body


def body_of_kind(entry: Entry, kind: type[Kept]) -> Kept:
    """The same; raises `LedgerDamaged` for another class."""
    if not isinstance(body := read_body(entry), kind):
        raise LedgerDamaged(f"Expected entry {entry.seq} of the ledger to be {kind.__name__}, got {entry.kind}.")
    return body
