"""The entries of a ledger: one line each, whatever it records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What an entry of the ledger records."""

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
    RESTORED = "restored"


SPENDING = (Kind.CHARGE, Kind.OUTSIDE, Kind.RESTORED)

INTERRUPTED = "interrupted"
"""The status of a settled session whose attempt may go on from its checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger: what, about which plan, who wrote it and when, and the account's balance after it."""

    seq: int
    account: str
    kind: str
    plan: str
    body: Mapping[str, Any]
    balance: Mapping[str, Any]
    who: str
    at: str
    digest: str
