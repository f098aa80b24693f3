"""Removal of what jobs that were killed have left: records that scripts were handed, and half-written files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpsweep.accounting.json_files import remove_stale
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.sweeper.foreign.handing_over import remove_leftovers


@contextmanager
def nothing_left(folder: SweepFolder) -> Iterator[None]:
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
