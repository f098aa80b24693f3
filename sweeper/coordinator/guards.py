"""What holds around a sweep, whatever ends it: exit codes that tell the truth, and nothing left behind.

Exit codes 2 and 3 promise that nothing was charged: a refusal after a charge gets another code. A sweep that was
refused before its plan was stored leaves no folder. What killed jobs have left is removed: records that scripts were
handed, and half-written files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.errors import BadInput, ContractBroken, DpsweepError, ExitCode
from dpsweep.accounting.files import remove_stale_temporary_files
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.sweeper.trial.handover import end_scripts_and_remove_files_of_dead_jobs

MEGABYTE = 2**20
SPARE_BYTES = 16 * MEGABYTE
"""The least free space on a disk on which runs are started."""

UNCHARGED = (ExitCode.BAD_INPUT, ExitCode.BUDGET_REFUSED)


@contextmanager
def refusal_after_charge_as_contract_broken(ledger: Ledger, plan: Plan) -> Iterator[None]:
    """Turns a refusal into `ContractBroken`, which states the charge, if the plan was charged within the block."""
    before = _number_of_plan_charges(ledger, plan)
    try:
        yield
    except (DpsweepError, HydraException, OmegaConfBaseException) as cause:
        code = cause.exit_code if isinstance(cause, DpsweepError) else ExitCode.BAD_INPUT
        if code not in UNCHARGED or _number_of_plan_charges(ledger, plan) == before:
            raise
        reason = str(cause).strip().partition("\n")[0].rstrip(".")
        raise ContractBroken(f"Plan {plan.id} was charged, and stays so, before this was refused: {reason}.") from cause


def _number_of_plan_charges(ledger: Ledger, plan: Plan) -> int:
    """The number of the plan's charges so far."""
    statement = ledger.statement_or_none(plan.account, plan.id)
    return 0 if statement is None else len(statement.charges)


@contextmanager
def remove_new_empty_folder_at_end(folder: SweepFolder) -> Iterator[None]:
    """Removes the sweep's folder in the end if it was made within the block and holds nothing but its lock.

    The folders above it that were made with it go as well, if they are empty.

    The caller holds the lock of the plan, so that no other coordinator of the plan is about to use the folder.
    """
    new = [path for path in (folder.root, *folder.root.parents) if not path.exists()]
    try:
        yield
    finally:
        if new:
            with suppress(OSError):
                _remove_folder_with_lock_only(folder)
                for above in new[1:]:
                    above.rmdir()


def _remove_folder_with_lock_only(folder: SweepFolder) -> None:
    if {path.name for path in folder.root.iterdir()} <= {folder.coordinator_lock_path.name}:
        folder.coordinator_lock_path.unlink(missing_ok=True)
        folder.root.rmdir()


def refuse_full_disks(folder: SweepFolder) -> None:
    """Raises `BadInput` if the disk of the sweep's folder or of its private store has less than `SPARE_BYTES` left.

    A run that cannot write dies, and its charge is gone. The number of runs plays no part, since it may be secret.
    """
    for wanted in (folder.root, folder.private_store.root):
        place = next(one for one in (wanted, *wanted.parents) if one.exists())
        if (free := shutil.disk_usage(place).free) < SPARE_BYTES:
            raise BadInput(
                f"Expected {free / MEGABYTE:.1f} MB free on the disk of {place} to be at least "
                f"{SPARE_BYTES / MEGABYTE:.0f}: runs that cannot write die, and stay charged. Make room there, or "
                "name another folder (hydra.sweep.dir, DPSWEEP_LEDGER)."
            )


@contextmanager
def remove_leftovers_of_killed_jobs(folder: SweepFolder) -> Iterator[None]:
    """Removes what killed jobs of this sweep have left, before and after its coordinator works."""
    _remove_stale_files_of_sweep_and_store(folder)
    try:
        yield
    finally:
        _remove_stale_files_of_sweep_and_store(folder)


def _remove_stale_files_of_sweep_and_store(folder: SweepFolder) -> None:
    remove_stale_temporary_files(folder.root)
    remove_stale_temporary_files(folder.private_store.root)
    end_scripts_and_remove_files_of_dead_jobs(folder.private_store)
