"""The bodies of ledger entries, one frozen value for each kind: the only module that writes and reads them.

Rules for changing this file:

* The bytes of an entry never change. A field that is introduced later is `OMITTED` at the value that was implied
  before.
* Another person may have written an entry: every field is checked (`accounting/codec.py`), and only our own policies
  are built from it.
* A kind that this version does not know is read as `UnknownBody`, which changes no balance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Protocol

from dpsweep.accounting.chain.hash_chain import IDENTITY, Entry, Kind
from dpsweep.accounting.codec import INLINE, OMITTED, REST, Amount, Count, PositiveInt, Stored, Words
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.composition_policy import StoredPolicy
from dpsweep.accounting.ledger.data_fingerprint import Fingerprint
from dpsweep.accounting.ledger.sealed_parts import SealedCharge
from dpsweep.accounting.printing import escape_invisible_characters, has_only_visible_characters
from dpsweep.accounting.validation import turn_read_errors_into_refusal


class Body(Protocol):
    """The content of an entry beside its account and its plan."""

    @property
    def kind(self) -> str:
        """The kind of the entry."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, in the stored form."""


@dataclass(frozen=True, kw_only=True)
class Opened(Stored):
    """Opens an account with a budget, an adjacency and unit, and a policy."""

    kind: ClassVar[Kind] = Kind.OPEN
    budget: Annotated[Guarantee, INLINE]
    policy: StoredPolicy


@dataclass(frozen=True, kw_only=True)
class Raised(Stored):
    """Replaces an account's budget by a higher one."""

    kind: ClassVar[Kind] = Kind.RAISE
    budget: Annotated[Guarantee, INLINE]


@dataclass(frozen=True, kw_only=True)
class Closed(Stored):
    """Closes the account: later charges are refused."""

    kind: ClassVar[Kind] = Kind.CLOSE


@dataclass(frozen=True, kw_only=True)
class Recognised(Stored):
    """Records the fingerprint of the account's data files."""

    kind: ClassVar[Kind] = Kind.DATA
    data: Annotated[Fingerprint, INLINE]


@dataclass(frozen=True, kw_only=True)
class ChargeFacts(Stored):
    """Facts for the record, beside the amounts of a charge; `others` are those that no reader of the ledger asks for.

    `reason` is `plan` for a whole plan, `repeat` for trials that are run again. `final` is the number of spare attempts
    that are kept for a final run. `claimed_by` is the accountant whose bound is the cost, `bounds` has the upper bound
    of each accountant, `refusals` the reason of each one without a bound. `parts` has the bound for each population of
    records, `bounds_by_part` that of each accountant. `lower` is the largest lower bound on epsilon that is proven, 0
    if none is known, `lower_by` names its proof, and `attack` is that from an explicit attack. `total_variation`
    is the upper bound on delta at epsilon 0, None where no profile gives one. `units` is the declared
    number of units, None for a charge without a plan, and `accepted_delta` the accepted delta of 1 / units or more,
    None if no acceptance was needed.
    """

    reason: Annotated[str, OMITTED] = "plan"
    final: Annotated[Count, OMITTED] = 0
    claimed_by: Annotated[str, OMITTED] = "unnamed"
    bounds: Annotated[Mapping[str, Amount], OMITTED] = field(default_factory=dict)
    refusals: Annotated[Mapping[str, str], OMITTED] = field(default_factory=dict)
    parts: Annotated[Mapping[str, Amount], OMITTED] = field(default_factory=dict)
    bounds_by_part: Annotated[Mapping[str, Mapping[str, Amount]], OMITTED] = field(default_factory=dict)
    lower: Annotated[Amount, OMITTED] = 0.0
    lower_by: Annotated[str, OMITTED] = "unnamed"
    attack: Annotated[Amount, OMITTED] = 0.0
    total_variation: Annotated[Amount | None, OMITTED] = None
    units: Annotated[Count | None, OMITTED] = None
    accepted_delta: Annotated[Amount | None, OMITTED] = None
    others: Annotated[Words, REST] = field(default_factory=dict)


def _charge_facts_from_json(name: str, record: Mapping[str, Any]) -> ChargeFacts:
    return ChargeFacts.from_json(record)


@dataclass(frozen=True, kw_only=True)
class ChargedPoint(Stored):
    """A point of a search that was charged, with so many runs; `event` is the JSON form of one."""

    runs: PositiveInt
    event: Words


@dataclass(frozen=True, kw_only=True)
class Charged(Stored):
    """Pays for one attempt at each of `trials`, and for `spares` more at any of them.

    `takes` are the amounts that the account's policy counts. `event` is the JSON form of the event: that of the rule in
    `record` over `points`, each of which stands for so many runs, and of a card. `prices` is the version of the bounds
    that it was priced by, 0 for a charge from before they had one. `sealed` says which units the runs leave out, None
    for none. `record` holds further facts for the record: rule, accountants, reason.
    """

    kind: ClassVar[Kind] = Kind.CHARGE
    epsilon: Amount
    delta: Amount
    takes: Mapping[str, Amount]
    trials: tuple[str, ...]
    spares: Count = 0
    event: Words | None = None
    points: Annotated[tuple[ChargedPoint, ...], OMITTED] = ()
    prices: Annotated[Count, OMITTED] = 0
    sealed: Annotated[SealedCharge | None, OMITTED] = None
    record: Annotated[Words, REST, _charge_facts_from_json] = field(default_factory=dict)

    @property
    def number_of_paid_attempts(self) -> int:
        """The number of attempts that the charge pays for."""
        return len(self.trials) + self.spares

    @property
    def plan_event(self) -> PlanEvent | None:
        """The event; raises `LedgerDamaged` if the stored form is no event."""
        if self.event is None:
            return None
        with turn_read_errors_into_refusal("the event of a charge", LedgerDamaged):
            return PlanEvent.from_json(self.event)

    @cached_property
    def charge_facts(self) -> ChargeFacts:
        """The facts of `record` that readers ask for."""
        return ChargeFacts.from_json(self.record)

    @property
    def reason(self) -> str:
        """`plan` for a whole plan, `repeat` for trials that are run again."""
        return self.charge_facts.reason


def charged_points(points: Iterable[PlanEvent]) -> tuple[ChargedPoint, ...]:
    """The points, each event once with the number of runs that have it."""
    alike: dict[object, list[PlanEvent]] = {}
    for point in points:
        alike.setdefault(tuple((name, id(part)) for name, part in point.events_by_population.items()), []).append(point)
    return tuple(ChargedPoint(runs=len(same), event=same[0].to_json()) for same in alike.values())


def _check_one_line_note(name: str, note: str) -> None:
    if not has_only_visible_characters(note):
        raise ValueError(
            f"Expected {name}={escape_invisible_characters(note)} to be one line without control and bidirectional "
            "characters: a terminal would obey them."
        )


@dataclass(frozen=True, kw_only=True)
class SpentOutside(Stored):
    """Records a cost on these data outside this tool; `note` names its purpose in one line of visible text."""

    kind: ClassVar[Kind] = Kind.OUTSIDE
    epsilon: Amount
    delta: Amount
    takes: Mapping[str, Amount]
    trials: tuple[()] = ()
    reason: Literal["outside"] = "outside"
    note: Annotated[str, _check_one_line_note]


@dataclass(frozen=True, kw_only=True)
class Restored(Stored):
    """Charges again what a line took that only a mirror has; `line` is its digest."""

    kind: ClassVar[Kind] = Kind.RESTORED
    epsilon: Amount
    delta: Amount
    takes: Mapping[str, Amount]
    trials: tuple[()] = ()
    reason: Literal["restored"] = "restored"
    note: str
    line: str


Spending = Charged | SpentOutside | Restored


@dataclass(frozen=True, kw_only=True)
class Started(Stored):
    """Starts an attempt at a trial, on the charge with this digest; `accesses` is that of the declared events."""

    kind: ClassVar[Kind] = Kind.START
    trial: str
    attempt: Count
    charge: str
    accesses: Annotated[str, OMITTED] = ""


@dataclass(frozen=True, kw_only=True)
class Resumed(Stored):
    """Resumes an attempt from its checkpoint, for the `resume`-th time."""

    kind: ClassVar[Kind] = Kind.RESUME
    trial: str
    attempt: Count
    resume: Count


@dataclass(frozen=True, kw_only=True)
class Ended(Stored):
    """Ends an attempt, since its last start or resume; `realised` is the outcome that its result reports."""

    kind: ClassVar[Kind] = Kind.SETTLE
    trial: str
    attempt: Count
    resume: Count
    realised: Annotated[Mapping[str, Any], REST]

    @property
    def session_key(self) -> tuple[str, int, int]:
        """The trial, attempt and resume that name the session."""
        return self.trial, self.attempt, self.resume


@dataclass(frozen=True, kw_only=True)
class Launched(Stored):
    """A coordinator with this nonce hands out receipts of the plan; receipts of earlier launches are void."""

    kind: ClassVar[Kind] = Kind.LAUNCH
    nonce: str


@dataclass(frozen=True, kw_only=True)
class Released(Stored):
    """Releases the winner with this salted digest, on the charge with that digest."""

    kind: ClassVar[Kind] = Kind.RELEASE
    charge: str
    winner: str


@dataclass(frozen=True, kw_only=True)
class ReleaseManifest(Stored):
    """Publishes a folder whose files have this salted digest, on the charge with that digest.

    `folder` is its name in the sweep's folder. A charge has one winner, and a line of this kind for each release of it.
    """

    kind: ClassVar[Kind] = Kind.MANIFEST
    charge: str
    folder: str
    manifest: str


def _check_identity_is_hexadecimal(name: str, identity: str) -> None:
    if IDENTITY.fullmatch(identity) is None:
        raise ValueError(f"Expected {name}={identity[:80]!r} to be hexadecimal digits.")


LedgerIdentity = Annotated[str, _check_identity_is_hexadecimal]
"""The identity of a ledger, in hexadecimal digits."""


@dataclass(frozen=True, kw_only=True)
class Mirrored(Stored):
    """Says that there is a mirror: in the file `path`, or, where that is empty, the writer's own on its machine.

    With `dropped` there is none in that file from here on.
    """

    kind: ClassVar[Kind] = Kind.MIRROR
    path: Annotated[str, OMITTED] = ""
    dropped: Annotated[bool, OMITTED] = False


@dataclass(frozen=True, kw_only=True)
class UnknownBody:
    """The body of an entry whose kind this version does not know."""

    kind: str
    form: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The stored values, unchanged."""
        return dict(self.form)


_KINDS: Mapping[str, Any] = {
    body.kind: body
    for body in (
        *(Opened, Raised, Closed, Recognised, Charged, SpentOutside, Restored, Started, Resumed, Ended, Launched),
        *(Released, ReleaseManifest, Mirrored),
    )
}


def read_body(entry: Entry) -> Body:
    """The body of an entry, read once; raises `LedgerDamaged` if a value is missing or invalid."""
    if not entry.parsed:
        with turn_read_errors_into_refusal(f"entry {entry.seq} of the ledger", LedgerDamaged):
            entry.parsed.append(body_from_json(entry.kind, entry.body))
    body: Body = entry.parsed[0]
    return body


def body_from_json(kind: str, form: Mapping[str, Any]) -> Body:
    """The body of an entry of this kind in its stored form."""
    body: Body = _KINDS[kind].from_json(form) if kind in _KINDS else UnknownBody(kind=kind, form=form)
    return body


def require_spending_body(entry: Entry) -> Spending:
    """The body of an entry that takes something out of the account; raises `LedgerDamaged` for other entries."""
    if not isinstance(body := read_body(entry), Spending):
        raise LedgerDamaged(f"Expected entry {entry.seq} of the ledger to be a charge, got {entry.kind}.")
    return body


def require_plan_charge_body(entry: Entry) -> Charged:
    """The body of a plan's charge; raises `LedgerDamaged` for other entries."""
    if not isinstance(body := read_body(entry), Charged):
        raise LedgerDamaged(f"Expected entry {entry.seq} of the ledger to be a charge of a plan, got {entry.kind}.")
    return body
