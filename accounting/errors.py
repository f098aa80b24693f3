"""The errors that end a sweep early, each with the exit code that the command line returns."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """The exit codes that `dpsweep` returns to the shell."""

    DONE = 0
    BUG = 1
    BAD_INPUT = 2
    BUDGET_REFUSED = 3
    DONE_WITH_FAILURES = 4
    LEDGER_DAMAGED = 5
    DISK_FAILED = 6
    CLAIM_FAILS = 7
    NOT_RECOMPUTED = 8
    UNDER_CHARGED = 9
    STOPPED = 130


class DpsweepError(Exception):
    """Root of our errors: one sentence for the user and an exit code."""

    exit_code = ExitCode.BUG


class BadInput(DpsweepError, ValueError):
    """The request cannot be read or makes no sense; nothing was charged."""

    exit_code = ExitCode.BAD_INPUT


class BadInputInLines(BadInput):
    """A request that lacks several values, one a line; whoever raises it has escaped the words of others in it."""


class LedgerOpenedMeanwhile(BadInput):
    """Another command opened a new ledger since this one named its private store: it begins again there."""


class UnsupportedEvent(DpsweepError, ValueError):
    """An accountant has no proven bound for this event under this adjacency; it never approximates."""

    exit_code = ExitCode.BAD_INPUT


class BudgetRefused(DpsweepError):
    """The charge exceeds the rest of the account; nothing was charged.

    `facts` are the `cost` of the charge, what it `takes`, and the account's `balance`.
    """

    exit_code = ExitCode.BUDGET_REFUSED

    def __init__(self, sentence: str, **facts: Any) -> None:
        super().__init__(sentence)
        self.facts = facts


class ContractBroken(DpsweepError):
    """The actual run differs, or would differ, from the declared and charged one; the charge stays."""


class NoReceipt(ContractBroken):
    """Training was requested without an unused receipt of a charge; no data were touched."""

    exit_code = ExitCode.BAD_INPUT


class ReceiptUsed(NoReceipt):
    """The receipt was claimed before, by this process or another one; no data were touched now."""


class AccountantsDisagree(DpsweepError):
    """Two upper bounds contradict each other, so neither is reported."""


class ClaimFails(DpsweepError):
    """A claim of a release is below what its event costs, or its files contradict each other."""

    exit_code = ExitCode.CLAIM_FAILS


class ClaimNotRecomputed(DpsweepError):
    """Nothing of a release fails, and its other pages were not compared, or a part was not recomputed."""

    exit_code = ExitCode.NOT_RECOMPUTED


class UnderCharged(DpsweepError):
    """This version prices what an earlier one charged at more; the difference is to be taken."""

    exit_code = ExitCode.UNDER_CHARGED


class LedgerDamaged(DpsweepError):
    """The chain of the ledger does not verify; nothing is charged on it."""

    exit_code = ExitCode.LEDGER_DAMAGED
