"""Memory of the curator's page: a page is not drawn again while nothing that it is made from has changed.

Drawing takes seconds, and a repeated command often has nothing new to show. A page of which a picture failed is drawn
again. The memory lies in the plan's private store, which the folder's author cannot write: a folder from somebody else
is always drawn. It holds digests of the inputs and of the page's files. Inputs are all files of the sweep's folder but
the study and the live page, all files of the private store, the verified length and the account's last entry of the
ledger, and the program's own code and libraries.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path

import dpsweep
from dpsweep.accounting.durable_files import PRIVATE, write_json
from dpsweep.accounting.errors import DAMAGE
from dpsweep.accounting.files import refuse_link
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.printing import print_error, print_line
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import LIVE_PAGE, SweepFolder, private_store_of_plan, restrict_to_owner
from dpsweep.accounting.rehearsal import ledger_of_sweep_folder

FOLDER = "curator"
FILE = "report.html"
COMPARISON = "comparison.html"
NUMBERS = {FILE: "report.json", COMPARISON: "comparison.json"}
"""The file with the numbers of each page."""

LOCKS = ".lock"
"""The first letters of the names of locks and of the files that name their holders, which no page shows."""

FAILED = "pictures_that_failed"
"""The key of the sentences on pictures that could not be drawn, in the numbers of a page."""

MEMORY_FILE = "page.json"
LIBRARIES = ("matplotlib", "seaborn", "pandas", "numpy", "scipy", "jinja2")


def redraw_report_if_outdated(folder: Path, ledger: Ledger) -> Path:
    """The path of a sweep folder's page for its curator, drawn anew unless it is as it would be drawn now.

    Raises `BadInput` if the folder is not a sweep or the ledger did not charge it.
    """
    refuse_link(folder / FOLDER)
    memory, now = None, None
    with suppress(OSError, *DAMAGE):  # drawing says what is wrong
        plan = Plan.read(folder / "plan.json")
        store = private_store_of_plan(ledger, plan.account, plan.id).root
        memory, now = store / MEMORY_FILE, _digest_of_page_inputs(folder, plan.account, store, ledger)
        if json.loads(memory.read_text()) == {"inputs": now, "files": _file_digests_below_folder(folder / FOLDER)}:
            restrict_to_owner(folder / FOLDER)
            return folder / FOLDER / FILE
    from dpsweep.reports.pages.curator_page import write_report

    page = write_report(folder, ledger)
    if memory is not None and memory.parent.is_dir() and not failed_picture_sentences(page):
        with suppress(OSError):  # a full disk costs the next command its shortcut, and this one nothing
            write_json(memory, {"inputs": now, "files": _file_digests_below_folder(page.parent)}, mode=PRIVATE)
    return page


def report_sweeps(folders: Sequence[Path], target: Path | None = None) -> Iterator[Path]:
    """The page of each sweep for its curator, and one of all side by side, in `target`, where there are several.

    Raises `BadInput` if a folder is not a sweep or its ledger did not charge it.
    """
    for folder in folders:
        yield redraw_report_if_outdated(folder, ledger_of_sweep_folder(folder))
    if len(folders) > 1:
        from dpsweep.reports.pages.comparison import write_comparison

        yield write_comparison(folders, target)


def failed_picture_sentences(page: Path) -> tuple[str, ...]:
    """A sentence for each picture of a page that could not be drawn, from the numbers beside the page."""
    form = json.loads(page.with_name(NUMBERS[page.name]).read_text())
    return tuple(form.get(FAILED, {}).values())


def print_page_path_and_failures(page: Path) -> None:
    """Prints a page's path, and on standard error which of its pictures could not be drawn."""
    for sentence in failed_picture_sentences(page):
        print_error(sentence)
    print_line(page)


def _digest_of_page_inputs(folder: Path, account: str, store: Path, ledger: Ledger) -> str:
    """The digest of everything that the page is made from."""
    entries = verify_entries(ledger.chain)
    last = ledger.statement(account).entries[-1]
    own = _file_digests_below_folder(folder, (FOLDER, LIVE_PAGE, SweepFolder(root=folder).optuna_study_path.name))
    form = [
        _digest_of_program_and_libraries(),
        str(folder.absolute()),
        ledger.name,
        entries,
        last.digest,
        own,
        _file_digests_below_folder(store, (MEMORY_FILE,)),
    ]
    return sha256(json.dumps(form).encode()).hexdigest()


def _file_digests_below_folder(folder: Path, without: Collection[str] = ()) -> dict[str, str]:
    """The SHA-256 of every file below a folder, or of a link's target, by its path.

    Locks and the files and folders `without` which the folder is taken are left out.
    """
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        named = [
            (name, entry)
            for one in entries
            if one.name not in without
            for name, entry in _walk_files_without_locks(one, one.name)
        ]
    return {
        name: sha256(_file_content_or_link_target(entry)).hexdigest()
        for name, entry in sorted(named, key=itemgetter(0))
    }


def _walk_files_without_locks(entry: os.DirEntry[str], name: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files and links at and below an entry, without locks, by their paths below the folder that has its name.

    Entries, and not paths: a sweep has eight files a trial, and a path takes longer than its file's digest.
    """
    if entry.is_symlink() or entry.is_file():
        if not entry.name.startswith(LOCKS):
            yield name, entry
    elif entry.is_dir():
        with os.scandir(entry) as below:
            for one in below:
                yield from _walk_files_without_locks(one, f"{name}/{one.name}")


def _file_content_or_link_target(entry: os.DirEntry[str]) -> bytes:
    path = Path(entry.path)
    return str(path.readlink()).encode() if entry.is_symlink() else path.read_bytes()


@cache
def _digest_of_program_and_libraries() -> str:
    """The state of the program: its files' sizes and times, and the versions of the libraries that draw."""
    root = Path(dpsweep.__file__).parent
    rooms = [root, *(room.resolve() for room in sorted(root.iterdir()) if room.is_symlink())]
    files = [path for room in rooms for path in sorted(room.rglob("*")) if path.suffix in (".py", ".j2")]
    states = [[str(path), (state := path.stat()).st_size, state.st_mtime_ns] for path in files]
    return sha256(json.dumps([states, [version(name) for name in LIBRARIES]]).encode()).hexdigest()
