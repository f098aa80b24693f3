"""What holds around a sweep, whatever ends it: exit codes that tell the truth, and nothing left behind.

Exit codes 2 and 3 promise that nothing was charged: a refusal after a charge gets another code. A sweep that was
refused before its plan was stored leaves no folder. What killed jobs have left is removed: records that scripts were
handed, and half-written files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.durable_files import remove_stale
from dpsweep.accounting.errors import ContractBroken, DpsweepError, ExitCode
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.sweeper.trial.handover import remove_leftovers

UNCHARGED = (ExitCode.BAD_INPUT, ExitCode.BUDGET_REFUSED)


@contextmanager
def refusals_only_before_charge(ledger: Ledger, plan: Plan) -> Iterator[None]:
    """Turns a refusal into `ContractBroken`, which states the charge, if the plan was charged within the block."""
    before = _charges(ledger, plan)
    try:
        yield
    except (DpsweepError, HydraException, OmegaConfBaseException) as cause:
        code = cause.exit_code if isinstance(cause, DpsweepError) else ExitCode.BAD_INPUT
        if code not in UNCHARGED or _charges(ledger, plan) == before:
            raise
        reason = str(cause).strip().partition("\n")[0].rstrip(".")
        raise ContractBroken(f"Plan {plan.id} was charged, and stays so, before this was refused: {reason}.") from cause


def _charges(ledger: Ledger, plan: Plan) -> int:
    """The number of the plan's charges so far."""
    if plan.account not in ledger.accounts():
        return 0
    return len(ledger.statement(plan.account, plan.id).charges)


@contextmanager
def remove_folder_if_empty(folder: SweepFolder) -> Iterator[None]:
    """Removes the sweep's folder in the end if it was made within the block and holds nothing but its lock.

    The caller holds the lock of the plan, so that no other coordinator of the plan is about to use the folder.
    """
    existed = folder.root.exists()
    try:
        yield
    finally:
        if not existed:
            with suppress(OSError):
                _remove_empty(folder)


def _remove_empty(folder: SweepFolder) -> None:
    if {path.name for path in folder.root.iterdir()} <= {folder.lock.name}:
        folder.lock.unlink(missing_ok=True)
        folder.root.rmdir()


@contextmanager
def remove_handed_over_records(folder: SweepFolder) -> Iterator[None]:
    """Removes what killed jobs of this sweep have left, before and after its coordinator works."""
    _remove(folder)
    try:
        yield
    finally:
        _remove(folder)


def _remove(folder: SweepFolder) -> None:
    remove_stale(folder.root)
    remove_stale(folder.private.root)
    remove_leftovers(folder.private)
