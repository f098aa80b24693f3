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

from dpsweep.accounting.durable_files import made_folder, write_bytes
from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.ledger.private_store import PRIVATE, PrivateStore
from dpsweep.accounting.records.trial_result import SCRIPT_FILES
from dpsweep.sweeper.processes import kill_by_variable
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


@contextmanager
def handed_over(store: PrivateStore, trial: str) -> Iterator[Path]:
    """A new, empty folder for one session of a trial, removed with all that is in it."""
    folder = store.handed_over / trial
    with _script_lock(store, trial):
        shutil.rmtree(folder, ignore_errors=True)
        made_folder(folder)
        try:
            for name in (WORK, KEPT, PROGRAM):
                made_folder(folder / name)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(store: PrivateStore) -> None:
    """Removes what killed jobs left of this plan, and ends the processes that their scripts left."""
    for folder in store.handed_over.glob("*"):
        with suppress(Timeout), _lock_if_idle(store, folder.name):
            kill_by_variable(VARIABLE, str(folder / ATTEMPT_FILE))
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # missing, or a script still runs
        store.handed_over.rmdir()


@contextmanager
def _script_lock(store: PrivateStore, trial: str) -> Iterator[None]:
    """Holds the lock of a trial's script; raises `ContractBroken` if another process runs the script."""
    record = store.record(trial)
    made_folder(record)
    lock = FileLock(record / LOCK, timeout=PATIENCE_SECONDS, mode=PRIVATE)
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
def _lock_if_idle(store: PrivateStore, trial: str) -> Iterator[None]:
    """Holds the lock of a trial's script, if it has one; raises `Timeout` while a process runs the script."""
    path = store.record(trial) / LOCK
    with FileLock(path, timeout=0, mode=PRIVATE) if path.exists() else nullcontext():
        yield


def write_records(records: Records, scored: Records, folder: Path) -> None:
    """Writes the training records, and the stored features of the records that are scored, without their labels."""
    arrays = {"features": _array(records.features), "labels": _array(records.labels)}
    if records.units is not None:
        arrays["units"] = records.units.of
    _save(folder / TRAIN_FILE, arrays)
    _save(folder / SCORE_FILE, {"features": _array(scored.features)})


def keep_files(folder: Path, target: Path) -> str | None:
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


def _array(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = tensor.cpu().numpy()
    return array


def _save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays, for the owner alone by the folder that they lie in."""
    with path.open("xb") as stream:
        np.savez(stream, allow_pickle=False, **dict(arrays))
