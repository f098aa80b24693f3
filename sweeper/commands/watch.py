"""`dpsweep watch`: what a running sweep's live page shows, on a terminal, as a reader of the folder.

It reads the page that the coordinator writes, and nothing else of the folder, the ledger or the private store: it knows
what the page says, and whether the coordinator still holds its lock. It writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.sweep_folder import LIVE_PAGE, SweepFolder
from dpsweep.sweeper.job.locks import is_lock_held
from dpsweep.sweeper.progress.display import SECONDS, TerminalView
from dpsweep.sweeper.progress.live_page import LiveFile, dead_sentence, ended_sentence, is_last
from dpsweep.sweeper.progress.running_sweep import SweepPhase

SWEEPS = "sweeps"
"""The folder of all sweeps below the current one, where a command does not name another."""


def watch(arguments: Sequence[str]) -> ExitCode:
    """Shows the sweep in a folder, or the newest unfinished one below `sweeps/`, until it is over or stops.

    Returns the exit code for a sweep that stopped or was killed, which the printed sentence says how to go on with.
    """
    if len(arguments) > 1:
        raise BadInput("Expected one sweep folder after `dpsweep watch`, or none for the newest unfinished sweep.")
    folder = Path(arguments[0]) if arguments else newest_unfinished_sweep(Path(SWEEPS))
    file, printed = LiveFile.read(folder), set[str]()
    with TerminalView() as view:
        while not is_last(file) and _has_coordinator(folder):
            new = tuple(line for line in file.sweep.latest if line not in printed)
            printed |= set(new)
            view.show(replace(file.sweep, ended=new), time.monotonic())
            time.sleep(SECONDS)
            file = LiveFile.read(folder)
    file = LiveFile.read(folder)  # the coordinator writes the page before it gives its lock back
    print_line(ended_sentence(file) or dead_sentence(file))
    if file.sweep.phase is not SweepPhase.ENDED:
        return ExitCode.STOPPED
    print_line(folder / file.page)
    return ExitCode.DONE


def newest_unfinished_sweep(sweeps: Path) -> Path:
    """The folder below `sweeps`, two levels deep, whose unfinished live page was written last; raises `BadInput`."""
    pages = sorted(sweeps.glob(f"*/*/{LIVE_PAGE}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for page in pages:
        with suppress(BadInput):  # a damaged page is no reason to see no other
            if LiveFile.read(page.parent).sweep.phase is not SweepPhase.ENDED:
                return page.parent
    last = f"; the last one is over: {pages[0].parent}" if pages else ""
    raise BadInput(f"Expected an unfinished sweep below {sweeps}/{last}. Name a folder, as in dpsweep watch FOLDER.")


def _has_coordinator(folder: Path) -> bool:
    """Whether a coordinator holds the folder's lock; one whose lock this user may not try is taken at its word."""
    try:
        return is_lock_held(SweepFolder(root=folder).coordinator_lock_path)
    except OSError:
        return True
