"""The bodies of ledger entries that take something out of an account: charges, spending elsewhere, restored losses.

The rules of `accounting/ledger/bodies.py` hold here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from dpsweep.accounting.chain.entries import Kind
from dpsweep.accounting.chain.hash_chain import End
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.json_files import in_words
from dpsweep.accounting.ledger.composition_policy import stored_amount
from dpsweep.accounting.numbers import whole
from dpsweep.accounting.printing import is_visible, visible
from dpsweep.accounting.validation import as_written, mapping, text, texts, truth


@dataclass(frozen=True, kw_only=True)
class Charged:
    """Pays for one attempt at each of `trials`, and for `spares` more at any of them.

    `takes` are the amounts that the account's policy counts. `event` is the JSON form of the event, None if only the
    cost is known. `record` holds further facts for the record: rule, accountants, reason.
    """

    kind: ClassVar[Kind] = Kind.CHARGE
    epsilon: float
    delta: float
    takes: Mapping[str, float]
    trials: tuple[str, ...]
    spares: int = 0
    event: Mapping[str, Any] | None = None
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attempts(self) -> int:
        """The number of attempts that the charge pays for."""
        return len(self.trials) + self.spares

    @property
    def plan_event(self) -> PlanEvent | None:
        """The event; raises `LedgerDamaged` if the stored form is no event."""
        if self.event is None:
            return None
        with as_written("the event of a charge", LedgerDamaged):
            return PlanEvent.from_parts({name: events.from_json(part) for name, part in self.event.items()})

    @property
    def reason(self) -> str:
        """`plan` for a whole plan, `repeat` for trials that are run again."""
        return str(self.record.get("reason", "plan"))

    @property
    def finals(self) -> int:
        """The number of `spares` that are kept for a final run."""
        return whole("final", self.record.get("final", 0))

    @property
    def claimed_by(self) -> str:
        """The accountant whose bound is the cost."""
        return text("claimed_by", self.record.get("claimed_by", "unnamed"))

    @property
    def bounds(self) -> dict[str, float]:
        """The upper bound of each accountant."""
        return _numbers("bounds", self.record.get("bounds", {}))

    @property
    def refusals(self) -> dict[str, str]:
        """The reason of each accountant without a bound."""
        refusals = mapping("refusals", self.record.get("refusals", {}))
        return {name: text("refusals", reason) for name, reason in refusals.items()}

    @property
    def parts(self) -> dict[str, float]:
        """The bound for each population of records."""
        return _numbers("parts", self.record.get("parts", {}))

    @property
    def bounds_by_part(self) -> dict[str, dict[str, float]]:
        """The upper bound of each accountant for each population of records."""
        form = mapping("bounds_by_part", self.record.get("bounds_by_part", {}))
        return {part: _numbers("bounds_by_part", bounds) for part, bounds in form.items()}

    @property
    def attack(self) -> float:
        """A lower bound from an explicit attack, 0 if none is known."""
        return float(self.record.get("attack", 0.0))

    @property
    def units(self) -> int | None:
        """The declared number of units, None for a charge without a plan."""
        units = self.record.get("units")
        return None if units is None else whole("units", units)

    @property
    def accepted_delta(self) -> float | None:
        """The accepted delta of 1 / units or more; None if no acceptance was needed."""
        delta = self.record.get("accepted_delta")
        return None if delta is None else float(delta)

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        form: dict[str, Any] = in_words(
            dict(self.record)
            | _cost(self.epsilon, self.delta, self.takes, self.trials)
            | {"spares": self.spares, "event": self.event}
        )
        return form

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Charged:
        """Reads `to_json`'s form."""
        own = ("epsilon", "delta", "takes", "trials", "spares", "event")
        event = form.get("event")
        text("reason", form.get("reason", "plan"))
        return cls(
            **_cost_of(form),
            trials=texts("trials", form["trials"]),
            spares=whole("spares", form.get("spares", 0)),
            event=None if event is None else mapping("event", event),
            record={name: value for name, value in form.items() if name not in own},
        )


@dataclass(frozen=True, kw_only=True)
class SpentOutside:
    """Records a cost on these data outside this tool; `note` names its purpose in one line of visible text."""

    kind: ClassVar[Kind] = Kind.OUTSIDE
    epsilon: float
    delta: float
    takes: Mapping[str, float]
    note: str

    reason: ClassVar[str] = "outside"
    attempts: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not is_visible(self.note):
            raise ValueError(
                f"Expected note={visible(self.note)} to be one line without control and bidirectional characters: a "
                "terminal would obey them."
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        form: dict[str, Any] = in_words(_cost(self.epsilon, self.delta, self.takes, ()))
        return form | {"reason": self.reason, "note": self.note}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> SpentOutside:
        """Reads `to_json`'s form."""
        return cls(**_cost_of(form), note=text("note", form["note"]))


@dataclass(frozen=True, kw_only=True)
class Restored:
    """Charges again the amounts that lost entries took.

    `remembered` is the end of the lost chain, None if the entry does not stand for a remembered end; `reserved` are the
    account's amounts there, None if unknown. `charges` are the digests of lost charges of the plan `of` that receipts
    name; these receipts remember `ends` of the chain.
    """

    kind: ClassVar[Kind] = Kind.RESTORED
    epsilon: float
    delta: float
    takes: Mapping[str, float]
    note: str
    remembered: End | None = None
    reserved: Mapping[str, Decimal] | None = None
    charges: tuple[str, ...] = ()
    ends: tuple[End, ...] = ()
    of: str = ""

    reason: ClassVar[str] = "restored"
    attempts: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        form: dict[str, Any] = in_words(_cost(self.epsilon, self.delta, self.takes, ()))
        form |= {"reason": self.reason, "note": self.note}
        if self.remembered is not None:
            lost = {"entries": self.remembered.entries, "head": self.remembered.head}
            form |= {"remembered": lost, "known": self.reserved is not None}
        if self.reserved is not None:
            form["reserved"] = {name: str(more) for name, more in self.reserved.items()}
        if self.of:
            form |= {"charges": list(self.charges), "ends": [[end.entries, end.head] for end in self.ends]}
            form["of"] = self.of
        return form

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Restored:
        """Reads `to_json`'s form."""
        lost = form.get("remembered")
        known = lost is not None and truth("known", form["known"])
        return cls(
            **_cost_of(form),
            note=text("note", form["note"]),
            remembered=None if lost is None else _end(lost["entries"], lost["head"]),
            reserved={name: stored_amount(name, more) for name, more in form["reserved"].items()} if known else None,
            charges=texts("charges", form.get("charges", ())),
            ends=tuple(_end(entries, head) for entries, head in form.get("ends", ())),
            of=text("of", form.get("of", "")),
        )


Spending = Charged | SpentOutside | Restored


def _cost(epsilon: float, delta: float, takes: Mapping[str, float], trials: tuple[str, ...]) -> dict[str, Any]:
    return {"epsilon": epsilon, "delta": delta, "takes": dict(takes), "trials": list(trials)}


def _cost_of(form: Mapping[str, Any]) -> dict[str, Any]:
    takes = mapping("takes", form["takes"])
    return {
        "epsilon": float(stored_amount("epsilon", form["epsilon"])),
        "delta": float(stored_amount("delta", form["delta"])),
        "takes": {name: float(stored_amount(name, more)) for name, more in takes.items()},
    }


def _end(entries: object, head: object) -> End:
    return End(entries=whole("entries", entries), head=text("head", head))


def _numbers(name: str, form: object) -> dict[str, float]:
    return {key: float(value) for key, value in mapping(name, form).items()}
