"""The errors that end a sweep early, each with the exit code that the command line returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    """Root of our errors: one sentence for the user and an exit code, which a subclass names or has from its parent."""

    exit_code = ExitCode.BUG

    def __init_subclass__(cls, exit_code: ExitCode | None = None) -> None:
        cls.exit_code = exit_code or cls.exit_code


class BadInput(DpsweepError, ValueError, exit_code=ExitCode.BAD_INPUT):
    """The request cannot be read or makes no sense; nothing was charged."""


class LedgerOpenedMeanwhile(BadInput):
    """Another command opened a new ledger since this one named its private store: it begins again there."""


class UnsupportedEvent(DpsweepError, ValueError, exit_code=ExitCode.BAD_INPUT):
    """An accountant has no proven bound for this event under this adjacency; it never approximates."""


class BudgetRefused(DpsweepError, exit_code=ExitCode.BUDGET_REFUSED):
    """The charge exceeds the rest of the account; nothing was charged.

    `facts` are the `cost` of the charge, what it `takes`, and the account's `balance`.
    """

    def __init__(self, sentence: str, **facts: Any) -> None:
        super().__init__(sentence)
        self.facts = facts


class ContractBroken(DpsweepError):
    """The actual run differs, or would differ, from the declared and charged one; the charge stays."""


class NoReceipt(ContractBroken, exit_code=ExitCode.BAD_INPUT):
    """Training was requested without an unused receipt of a charge; no data were touched."""


class ReceiptUsed(NoReceipt):
    """The receipt was claimed before, by this process or another one; no data were touched now."""


class AccountantsDisagree(DpsweepError):
    """Two upper bounds contradict each other, so neither is reported."""


class UnderCharged(DpsweepError, exit_code=ExitCode.UNDER_CHARGED):
    """This version prices what an earlier one charged at more; the difference is to be taken."""


class LedgerDamaged(DpsweepError, exit_code=ExitCode.LEDGER_DAMAGED):
    """The chain of the ledger does not verify; nothing is charged on it."""


# what reading raises for a value that is missing, of another type, out of bounds, or nested too deeply
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def exception_as_short_line(cause: BaseException) -> str:
    """An exception as one line of limited length."""
    reason = cause.strerror if isinstance(cause, OSError) else None
    text = " ".join((reason or f"{type(cause).__name__}({cause})").split())
    return text if len(text) <= 200 else f"{text[:200]}..."


@contextmanager
def turn_read_errors_into_refusal(what: str, error: type[DpsweepError] = BadInput) -> Iterator[None]:
    """Turns errors of reading into one sentence that names the thing read; also a decorator."""
    try:
        yield
    except DpsweepError:
        raise
    except DAMAGE as cause:
        raise error(f"Expected {what} to be as dpsweep wrote it, got {exception_as_short_line(cause)}.") from cause


@contextmanager
def turn_file_errors_into_refusal(error: type[DpsweepError], what: str, way_out: str = "") -> Iterator[None]:
    """Turns an `OSError` into one sentence: what cannot be done, why, and a way out."""
    try:
        yield
    except OSError as cause:
        raise error(f"{what}: {cause.strerror or cause}{way_out}.") from cause
