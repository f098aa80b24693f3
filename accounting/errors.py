"""The errors that end a sweep early, each with the exit code that the command line returns."""

from __future__ import annotations

from enum import IntEnum


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

    @property
    def meaning(self) -> str:
        """The meaning of the code as text, since `make` turns every code into 2."""
        return {
            ExitCode.DONE: "done",
            ExitCode.BUG: "a defect of dpsweep or a broken contract",
            ExitCode.BAD_INPUT: "bad input, nothing was charged",
            ExitCode.BUDGET_REFUSED: "the privacy budget refuses this, nothing was charged",
            ExitCode.DONE_WITH_FAILURES: "done, but some trials failed or were killed; they stay charged",
            ExitCode.LEDGER_DAMAGED: "the ledger is damaged or cannot be written, nothing more was charged",
            ExitCode.DISK_FAILED: "a file cannot be written or read; what was charged stays charged",
            ExitCode.CLAIM_FAILS: "a claim of a release does not hold",
            ExitCode.NOT_RECOMPUTED: "nothing of a release fails; its other pages were not compared",
            ExitCode.UNDER_CHARGED: "a charge is below what this version prices it at; nothing was charged now",
            ExitCode.STOPPED: "stopped by the user; what was charged stays charged",
        }[self]


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
    """The charge exceeds the rest of the account; nothing was charged."""

    exit_code = ExitCode.BUDGET_REFUSED


class ContractBroken(DpsweepError):
    """The actual run differs, or would differ, from the declared and charged one; the charge stays."""

    exit_code = ExitCode.BUG


class NoReceipt(ContractBroken):
    """Training was requested without an unused receipt of a charge; no data were touched."""

    exit_code = ExitCode.BAD_INPUT


class ReceiptUsed(NoReceipt):
    """The receipt was claimed before, by this process or another one; no data were touched now."""


class AccountantsDisagree(DpsweepError):
    """Two upper bounds contradict each other, so neither is reported."""

    exit_code = ExitCode.BUG


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
