"""The values of the account book: policies, the bodies of its lines, and the state of an account after them.

*Policies.* The composition of charges is fixed when an account is opened. Later grids depend on the results of earlier
ones, so sweeps compose adaptively. `Addition` and `RenyiFilter` (`accounting/ledger/renyi_filter.py`) cover that;
neither covers taking the smaller of the two results afterwards. The guarantee covers the budget as a whole: after a
raise it is that of the last budget, if the decision to raise did not depend on released results. A record is trained on
or held out, and a plan takes the larger of the two costs. So for each record the amounts of its own side are at most
those taken, plan by plan, and so are their sums, however plans split the records.

*Bodies.* This module alone writes and reads them. The bytes of a line never change: a field that is introduced later is
`OMITTED` at the value that was implied before. Another person may have written a line: every field is checked. A kind
that this version does not know is read as `UnknownBody`, which changes no balance.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, dataclass_transform

from dpsweep.accounting import codec
from dpsweep.accounting.chain.hash_chain import IDENTITY, INTERRUPTED, LAST, Entry, Lines
from dpsweep.accounting.codec import BESIDE, KIND, OMITTED, Amount, Count, PositiveInt, Read, Stored, Words
from dpsweep.accounting.errors import BadInput, ContractBroken, LedgerDamaged, turn_read_errors_into_refusal
from dpsweep.accounting.events.types import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.sealed_parts import SealedCharge

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.renyi_filter import RenyiFilter

EPSILON, DELTA, DIVERGENCE = "epsilon", "delta", "divergence"  # the amounts that an account counts
DIGEST = re.compile(r"[0-9a-f]{64}")
Amounts = Mapping[str, Decimal]
_EXACT = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])  # sums of floats: 1e308 down to 1e-340


class Policy(Stored, ABC):
    """How an account counts its charges; the stored form is `{"kind": tag, **fields}`."""

    tag: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The stored form, of which `policy_from_config` makes an equal policy."""
        return {KIND: self.tag} | codec.to_json(self)

    @abstractmethod
    def amount_limits(self, budget: Guarantee) -> Amounts:
        """The limit of each amount; raises `BadInput` for a budget that it cannot hold."""

    @abstractmethod
    def amounts_of_charge(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The amounts that a charge of `cost` takes; `event` is None if it is not known."""


@dataclass(frozen=True, kw_only=True)
class Addition(Policy):
    """Basic composition: every charge costs one (epsilon, delta), by any accountant, and these add up.

    *Guarantee*: (sum of epsilons, sum of deltas), also if each charge depends on the releases of earlier ones.
    *Source*: Dwork and Roth 2014, Theorem 3.16; with adaptive charges, Rogers et al. 2016, Theorem 3.6.
    """

    tag: ClassVar[str] = "addition"

    def amount_limits(self, budget: Guarantee) -> Amounts:
        """The budget itself; a vacuous budget has no limits."""
        if budget.promises_nothing:
            return dict.fromkeys((EPSILON, DELTA), Decimal("Infinity"))
        amounts = {EPSILON: budget.epsilon, DELTA: budget.delta}
        return {name: codec.shortest_decimal_of_float(amount) for name, amount in amounts.items()}

    def amounts_of_charge(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The cost itself."""
        return {EPSILON: cost.epsilon, DELTA: cost.delta}


def policies() -> Mapping[str, type[Addition | RenyiFilter]]:
    """The class of each tag; a tag means one class for ever."""
    from dpsweep.accounting.ledger.renyi_filter import RenyiFilter

    return {kind.tag: kind for kind in (Addition, RenyiFilter)}


def policy_from_config(form: Any) -> Policy:
    """The policy of a stored form, one of our own; raises `BadInput` if it names none or has invalid fields."""
    try:
        kind, fields = codec.read_kind(policies(), KIND, form)
        return kind(**fields)
    except (ValueError, TypeError) as cause:
        raise BadInput(f"Expected a stored policy to name an account's policy: {str(cause).rstrip('.')}.") from cause


StoredPolicy = Annotated[Policy, Read(read=lambda name, form: policy_from_config(form))]


def subtract_decimals_exactly(left: Decimal, right: Decimal) -> Decimal:
    """The exact difference; infinity less any amount is infinity."""
    return left if left.is_infinite() else _EXACT.subtract(left, right)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Body(Stored):
    """The content of a line beside its account and plan; each class below is a frozen dataclass."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        cls.kind = kind
        if kind:
            KINDS[kind] = cls


KINDS: dict[str, type[Body]] = {}
Kept = TypeVar("Kept", bound=Body)


class Opened(Body, kind="open"):
    """Opens an account with a budget, an adjacency and unit, and a policy."""

    budget: Annotated[Guarantee, BESIDE]
    policy: StoredPolicy


class Raised(Body, kind="raise"):
    """Replaces an account's budget by a higher one."""

    budget: Annotated[Guarantee, BESIDE]


class Closed(Body, kind="close"):
    """Closes the account: later charges are refused."""


class Fingerprint(Body, kind="data"):
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


class Charged(Spending, kind="charge"):
    """Pays for one attempt at each of `trials`, and for `spares` more at any of them.

    `event` is that of the rule in `record` over `points`, and of a card. `prices` is the version of the bounds that
    priced it, 0 from before they had one. `sealed` says which units the runs leave out; `record` is for readers.
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


class SpentOutside(Spending, kind="outside"):
    """Records a cost on these data outside this tool; `note` names its purpose in one line."""

    trials: tuple[()] = ()
    reason: Literal["outside"] = "outside"
    note: Annotated[str, _check_visible]


class Restored(Spending, kind="restored"):
    """Charges again what a line took that only a mirror has; `line` is its digest."""

    trials: tuple[()] = ()
    reason: Literal["restored"] = "restored"
    note: str
    line: str


class Started(Body, kind="start"):
    """Starts an attempt at a trial, on the charge with this digest; `accesses` is that of the declared events."""

    trial: str
    attempt: Count
    charge: str
    accesses: Annotated[str, OMITTED] = ""


class Resumed(Body, kind="resume"):
    """Resumes an attempt from its checkpoint, for the `resume`-th time."""

    trial: str
    attempt: Count
    resume: Count


class Ended(Body, kind="settle"):
    """Ends a session of an attempt; `realised` is the outcome that its result reports."""

    trial: str
    attempt: Count
    resume: Count
    realised: Annotated[Mapping[str, Any], BESIDE]


class Launched(Body, kind="launch"):
    """A coordinator with this nonce hands out the plan's receipts; those of earlier launches are void."""

    nonce: str


class Released(Body, kind="release"):
    """Releases the winner with this salted digest, on the charge with that digest."""

    charge: str
    winner: str


class ReleaseManifest(Body, kind="manifest"):
    """Publishes a folder of the sweep whose files have this salted digest, on the charge with that digest."""

    charge: str
    folder: str
    manifest: str


class Mirrored(Body, kind="mirror"):
    """Says that there is a mirror in this file, none from here on if `dropped`; without a path, the writer's own."""

    path: Annotated[str, OMITTED] = ""
    dropped: Annotated[bool, OMITTED] = False


class UnknownBody(Body):
    """The body of a line whose kind this version does not know."""

    form: Annotated[Mapping[str, Any], BESIDE]


def _check_identity(name: str, identity: str) -> None:
    if IDENTITY.fullmatch(identity) is None:
        raise ValueError(f"Expected {name}={identity[:80]!r} to be hexadecimal digits.")


LedgerIdentity = Annotated[str, _check_identity]


SPENDING = (Charged.kind, SpentOutside.kind, Restored.kind)


def read_body(entry: Entry) -> Body:
    """The body of a line, read once."""
    if not entry.parsed:
        with turn_read_errors_into_refusal(f"entry {entry.seq} of the ledger", LedgerDamaged):
            entry.parsed.append(KINDS.get(entry.kind, UnknownBody).from_json(entry.body))
    body: Body = entry.parsed[0]
    return body


def body_of_kind(entry: Entry, kind: type[Kept]) -> Kept:
    """The same; raises `LedgerDamaged` for another class."""
    if not isinstance(body := read_body(entry), kind):
        raise LedgerDamaged(f"Expected entry {entry.seq} of the ledger to be {kind.__name__}, got {entry.kind}.")
    return body


@dataclass(frozen=True, kw_only=True)
class Balance(Stored):
    """An account's limits and its reserved amounts; every line stores the balance after it."""

    budget: Guarantee
    policy: StoredPolicy
    reserved: Amounts
    closed: bool = False

    @classmethod
    def opened(cls, body: Opened) -> Balance:
        """The balance at the opening."""
        return cls(budget=replace(body.budget, epsilon=float(body.budget.epsilon)), policy=body.policy, reserved={})

    def after(self, body: Body) -> Balance:
        """The balance after a line; charges only ever add."""
        if isinstance(body, Spending):
            return replace(self, reserved={**self.reserved, **self._reserved_after(body.takes)})
        if isinstance(body, Raised):
            return replace(self, budget=replace(body.budget, epsilon=float(body.budget.epsilon)))
        return replace(self, closed=True) if isinstance(body, Closed) else self

    def has_room(self, takes: Mapping[str, float]) -> bool:
        """Whether a charge that takes these amounts stays within every limit."""
        limits = self.policy.amount_limits(self.budget)
        return not self.closed and all(amount <= limits[name] for name, amount in self._reserved_after(takes).items())

    @property
    def left(self) -> Amounts:
        """The rest of each amount that the policy counts, 0 or more; no amount of a closed account."""
        limits = {} if self.closed else self.policy.amount_limits(self.budget)
        rests = {name: (limit, self.reserved.get(name, Decimal(0))) for name, limit in limits.items()}
        return {name: max(Decimal(0), subtract_decimals_exactly(*pair)) for name, pair in rests.items()}

    def require_same_neighbours(self, account: str, claim: Guarantee) -> None:
        """Raises `BadInput` for a claim about other neighbours than the account has."""
        own = self.budget
        if (claim.adjacency, claim.unit) != (own.adjacency, own.unit):
            raise BadInput(
                f"Expected privacy.adjacency={claim.adjacency.value}, unit {claim.unit}, to be {own.adjacency.value}, "
                f"{own.unit}, as the account of {account} was opened: claims about different neighbours do not add up."
            )

    def _reserved_after(self, takes: Mapping[str, float]) -> dict[str, Decimal]:
        more = {name: codec.require_nonnegative_amount(name, amount) for name, amount in takes.items()}
        return {name: _EXACT.add(self.reserved.get(name, Decimal(0)), amount) for name, amount in more.items()}


class Attempts:
    """The attempts of one plan, read from its entries: how many are paid for, started and resumed, and how each ended.

    `charges` are the entries that pay for them, with `bodies`. `covered` and `started` count those that are paid for by
    name and started, by trial. `resumed` counts resumes, `settled` has the ends of sessions, `launch` the last nonce,
    `released` the digest of each charge's released winner, `manifests` the releases and their times.
    """

    @turn_read_errors_into_refusal("the ledger", LedgerDamaged)
    def __init__(self, entries: Sequence[Entry]) -> None:
        contents = list(map(read_body, entries))
        self.charges = tuple(entry for entry in entries if entry.kind == Charged.kind)
        self.bodies = tuple(body_of_kind(entry, Charged) for entry in self.charges)
        self.covered = Counter(trial for body in self.bodies for trial in body.trials)
        self.starts = {(body.trial, body.attempt): body for body in contents if isinstance(body, Started)}
        self.started = Counter(body.trial for body in contents if isinstance(body, Started))
        self.resumed = Counter((body.trial, body.attempt) for body in contents if isinstance(body, Resumed))
        ends = [body for body in contents if isinstance(body, Ended)]
        self.settled = {(end.trial, end.attempt, end.resume): end.realised for end in ends}
        self.launch = next((body.nonce for body in reversed(contents) if isinstance(body, Launched)), None)
        self.released = {body.charge: body.winner for body in contents if isinstance(body, Released)}
        releases = [(entry.at, read_body(entry)) for entry in entries]
        self.manifests = tuple((at, body) for at, body in releases if isinstance(body, ReleaseManifest))

    @property
    def spares(self) -> int:
        """The further attempts, at any trial, that are paid for and unused."""
        bought = sum(body.spares for body in self.bodies)
        return bought - sum(max(0, count - self.covered[trial]) for trial, count in self.started.items())

    def charge_of(self, trial: str, attempt: int) -> Entry:
        """The charge that an attempt was or will be started on, by name before by a spare; else `ContractBroken`."""
        if (start := self.starts.get((trial, attempt))) is not None:
            covering = [entry for entry in self.charges if entry.digest == start.charge]
        else:
            charges = list(zip(self.charges, self.bodies, strict=True))
            used = Counter((start.charge, start.trial) for start in self.starts.values())
            covering = [entry for entry, body in charges if trial in body.trials and not used[entry.digest, trial]] or [
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

    def open_sessions(self) -> list[tuple[str, int, int]]:
        """The last session of every attempt without a final end: trial, attempt and resume."""
        return [(*key, self.resumed[key]) for key in self.starts if self.final_end(*key) is None]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The state of an account, with its entries in order: all of them, or those of one plan."""

    account: str
    balance: Balance
    entries: tuple[Entry, ...]
    _attempts: dict[str, Attempts] = field(init=False, repr=False, compare=False, default_factory=dict)

    @property
    def budget(self) -> Guarantee:
        """The budget that was recorded last."""
        return self.balance.budget

    @property
    def charges(self) -> tuple[Entry, ...]:
        """The entries that take something out of the budget."""
        return tuple(entry for entry in self.entries if entry.kind in SPENDING)

    def attempts_of_plan(self, plan: str) -> Attempts:
        """A plan's attempts."""
        if plan not in self._attempts:
            self._attempts[plan] = Attempts([entry for entry in self.entries if entry.plan == plan])
        return self._attempts[plan]


def sealed_charges(entries: Sequence[Entry]) -> tuple[SealedCharge | None, ...]:
    """What the charges among these entries say of sealed parts; None for one that may have read any unit."""
    contents = [body_of_kind(entry, Spending) for entry in entries if entry.kind in SPENDING]
    return tuple(body.sealed if isinstance(body, Charged) else None for body in contents)


@turn_read_errors_into_refusal("the ledger", LedgerDamaged)
def balance_of_account(lines: Lines, account: str) -> Balance | None:
    """The balance after the account's last line; None if it was never opened."""
    last = next(iter(lines.entries(LAST, account=account)), None)
    return None if last is None else Balance.from_json(last.balance)


def append_body(lines: Lines, account: str, body: Body, *, plan: str = "", before: Balance | None = None) -> Entry:
    """Adds a line with the balance after it; the one `before` it is that of the account's last line unless given."""
    before = before or balance_of_account(lines, account)
    if before is None:
        raise LedgerDamaged(f"Expected account={account} to have been opened before plan {plan} was charged on it.")
    after = before.after(body).to_json()
    return lines.append(account=account, kind=body.kind, plan=plan, body=body.to_json(), balance=after)
