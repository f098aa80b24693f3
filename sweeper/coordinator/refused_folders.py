"""A sweep that was refused before its plan was stored leaves no folder behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dpsweep.accounting.records.sweep_folder import SweepFolder


@contextmanager
def none_left(folder: SweepFolder) -> Iterator[None]:
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
