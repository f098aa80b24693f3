"""The folder that a script is handed: written for one session of one attempt, and removed whatever ends the session.

It holds private records outside every ledger and sweep folder, so it lies beside the private stores, for its owner
alone. A killed job leaves it, and perhaps processes of the script; the coordinator removes both at its next start or at
the end of its run. While a job runs a script it holds a lock beside the trial's record in the private store: a lock in
the sweep's folder would not tell the coordinator of a copy of that folder.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from dpsweep.accounting.durable_files import PRIVATE, make_private_folder_durably, mode_with_group, write_bytes
from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.ledger.permit import PrivateStore
from dpsweep.accounting.records.sweep_folder import shared_folder
from dpsweep.accounting.records.trial_result import SCRIPT_FILES
from dpsweep.sweeper.processes import kill_processes_with_variable
from dpsweep.trainers.scripts.handover_files import ATTEMPT_FILE, KEPT, SCORE_FILE, TRAIN_FILE, VARIABLE, WORK

if TYPE_CHECKING:
    from dpsweep.trainers.data.records import Records

PROGRAM = "program"
"""The folder of the script's copy: what runs are the bytes that were compared with the plan."""

LOCK = "script.lock"
"""The lock in a trial's record that a job holds while it runs the trial's script."""

PATIENCE_SECONDS = 10
"""The time to wait for the lock: a coordinator holds it while it removes what a killed job left."""

TIMELESS = (1980, 1, 1, 0, 0, 0)
"""The date of every file in an archive: no price covers the time of a run."""


def script_inputs_folder(store: PrivateStore) -> Path:
    """The folder of what this plan's scripts are given; stores of several ledgers may share their home."""
    return shared_folder(store, "handed-over") / store.root.parent.name / store.root.name


@contextmanager
def temporary_session_folder(store: PrivateStore, trial: str) -> Iterator[Path]:
    """A new, empty folder for one session of a trial, removed with all that is in it."""
    folder = script_inputs_folder(store) / trial
    with _hold_script_lock_or_refuse(store, trial):
        shutil.rmtree(folder, ignore_errors=True)
        make_private_folder_durably(folder)
        try:
            for name in (WORK, KEPT, PROGRAM):
                make_private_folder_durably(folder / name)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def end_scripts_and_remove_files_of_dead_jobs(store: PrivateStore) -> None:
    """Removes what killed jobs left of this plan, and ends the processes that their scripts left."""
    for folder in script_inputs_folder(store).glob("*"):
        with suppress(Timeout), _hold_script_lock_or_raise_timeout(store, folder.name):
            kill_processes_with_variable(VARIABLE, str(folder / ATTEMPT_FILE))
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # missing, or a script still runs
        script_inputs_folder(store).rmdir()


@contextmanager
def _hold_script_lock_or_refuse(store: PrivateStore, trial: str) -> Iterator[None]:
    """Holds the lock of a trial's script; raises `ContractBroken` if another process runs the script."""
    record = store.trial_record_folder(trial)
    make_private_folder_durably(record)
    lock = FileLock(record / LOCK, timeout=PATIENCE_SECONDS, mode=mode_with_group(record / LOCK))
    try:
        lock.acquire()
    except Timeout:
        raise ContractBroken(
            f"Expected the script of trial {trial} to be run by one process at a time: another one runs it, from a "
            "copy of this sweep's folder."
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _hold_script_lock_or_raise_timeout(store: PrivateStore, trial: str) -> Iterator[None]:
    """Holds the lock of a trial's script, if it has one; raises `Timeout` while a process runs the script."""
    path = store.trial_record_folder(trial) / LOCK
    with FileLock(path, timeout=0, mode=mode_with_group(path)) if path.exists() else nullcontext():
        yield


def write_records_for_script(records: Records, scored: Records, folder: Path) -> None:
    """Writes the training records, and the stored features of the records that are scored, without their labels."""
    arrays = {"features": _tensor_to_numpy(records.stored_features()), "labels": _tensor_to_numpy(records.labels)}
    if records.units is not None:
        arrays["units"] = records.units.of
    _save_arrays(folder / TRAIN_FILE, arrays)
    _save_arrays(folder / SCORE_FILE, {"features": _tensor_to_numpy(scored.stored_features())})


def archive_script_output_and_return_sha256(folder: Path, target: Path) -> str | None:
    """Packs the files that a script hands back into the trial's folder; the archive's SHA-256, None without any.

    Raises `ContractBroken` for a link, a folder, or anything else that is no plain file.
    """
    paths = sorted((folder / KEPT).iterdir())
    if not paths:
        return None
    for path in paths:
        if path.is_symlink() or not path.is_file():
            raise ContractBroken(f"Expected {KEPT}/{path.name} of a script to be a plain file.")
    partial = folder / SCRIPT_FILES
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for path in paths:
            archive.writestr(zipfile.ZipInfo(path.name, TIMELESS), path.read_bytes())
    content = partial.read_bytes()
    write_bytes(target / SCRIPT_FILES, content, PRIVATE)
    return sha256(content).hexdigest()


def _tensor_to_numpy(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = tensor.cpu().numpy()
    return array


def _save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays, for the owner alone by the folder that they lie in."""
    with path.open("xb") as stream:
        np.savez(stream, allow_pickle=False, **dict(arrays))
