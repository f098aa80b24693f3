"""The entries of a ledger and their kinds; each entry is one line of the hash chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any


class Kind(StrEnum):
    """The kinds of ledger entries."""

    OPEN = "open"
    RAISE = "raise"
    CLOSE = "close"
    DATA = "data"
    CHARGE = "charge"
    OUTSIDE = "outside"
    START = "start"
    RESUME = "resume"
    SETTLE = "settle"
    LAUNCH = "launch"
    RELEASE = "release"
    MANIFEST = "manifest"
    RESTORED = "restored"
    IDENTITY = "identity"
    WITNESS = "witness"


SPENDING = (Kind.CHARGE, Kind.OUTSIDE, Kind.RESTORED)

INTERRUPTED = "interrupted"
"""The status of a settled session whose attempt may resume from its checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger: its content, its plan, its writer and time, and the account's balance after it."""

    seq: int
    account: str
    kind: str
    plan: str
    body: Mapping[str, Any]
    balance: Mapping[str, Any]
    who: str
    at: str
    digest: str

    def read_by(self, reader: Callable[[Entry], Any]) -> Any:
        """What `reader` makes of this entry, made once: an entry never changes."""
        if reader not in self._readings:
            self._readings[reader] = reader(self)
        return self._readings[reader]

    @cached_property
    def _readings(self) -> dict[Callable[[Entry], Any], Any]:
        return {}
