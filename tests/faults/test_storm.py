"""A storm: kills among restored, renamed, linked, copied and deleted folders, stores and ledgers, in random order.

After every stroke the same command is given, and killed or not. Whatever lies where, no look at the records is one that
the newest ledger does not pay for. An older ledger, or none, gets its lines back from the mirror, by each path that
leads to it. What docs/ledger.md names as not detected is no stroke: a store is only put back to before the last launch.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.ledger.book import Launched
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from tests.faults.sandbox import CHECKPOINTS, HIDING, SWEEP, Sandbox
from tests.faults.syscalls import Stroke
from tests.faults.test_folders import POISSON, refuse_unpaid
from tests.forked_programs import Done
from tests.randomized import SEARCHES

pytestmark = SEARCHES

KILLED = -9
INSTANTS = 330
GOES_ON = (ExitCode.DONE, ExitCode.DONE_WITH_FAILURES, ExitCode.BAD_INPUT)
"""How a command may end on the newest ledger; a folder that is an older copy is bad input."""

RULES: Mapping[str, tuple[str, ...]] = {
    "points": (),
    "spares": ("plan.spare_attempts=2",),
    "selection": HIDING,
    "poisson": POISSON,
}


@dataclass(kw_only=True)
class Copies:
    """What was put aside at one instant, and how many launches the ledger knew then."""

    root: Path
    entries: int
    launches: int


@dataclass(kw_only=True)
class Storm:
    """A sandbox with all that was put aside so far. `books` is the folder of the ledger and of its store."""

    sandbox: Sandbox
    chance: Random
    books: Path
    newest: Path
    copies: list[Copies] = field(default_factory=list)
    strokes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def over(cls, sandbox: Sandbox, chance: Random) -> Storm:
        """A storm over a sandbox in which a first command was killed after its charge."""
        storm = cls(
            sandbox=sandbox,
            chance=chance,
            books=sandbox.root / "books",
            newest=sandbox.outside / "newest" / "ledger.sqlite",
        )
        while not storm.entries:
            storm.goes_on()
        storm.put_aside()
        return storm

    @property
    def entries(self) -> int:
        """How many lines the newest ledger has."""
        opened = self.newest.exists() and "digits" in Ledger(self.newest).account_names()
        return len(self.statement) if opened else 0

    @property
    def statement(self) -> tuple[str, ...]:
        return tuple(entry.kind for entry in Ledger(self.newest).statement("digits").entries)

    @property
    def launches(self) -> int:
        return self.statement.count(Launched.kind)

    @property
    def ledger_files(self) -> list[Path]:
        return sorted(self.books.glob("ledger.sqlite*"))

    @property
    def store(self) -> Path:
        (store,) = self.books.glob("*.private")
        return store

    @property
    def folder(self) -> Path:
        return self.sandbox.folder.root

    def command(self, *words: str, at: int | None = None, ledger: Path | None = None) -> Done:
        """Gives the command, killed at an instant, by default at a random one; 0 lets it end."""
        sandbox = self.sandbox
        place = str(ledger or self.books / "ledger.sqlite")
        before, known = sandbox.words, sandbox.environment
        sandbox.words, sandbox.environment = (*before, *words), {**known, "DPSWEEP_LEDGER": place}
        instant = self.chance.choice((0, self.chance.randrange(1, INSTANTS))) if at is None else at
        done = sandbox.run(Stroke.KILL if instant else Stroke.NONE, instant)
        sandbox.words, sandbox.environment = before, known
        assert "Traceback" not in done.err, done.err
        self.strokes["kill"] += done.code == KILLED
        return done

    def goes_on(self, *words: str, ledger: Path | None = None) -> None:
        """The command on the newest ledger, which only grows; then every look is paid for."""
        done = self.command(*words, ledger=ledger)
        assert done.code in (*GOES_ON, KILLED), done.err
        self.judge()

    def comes_back(self, ledger: Path | None = None) -> None:
        """The command on an older ledger, or on none, whose lines come back from the mirror."""
        done = self.command(at=0, ledger=ledger)
        assert done.code in GOES_ON, f"exit code {done.code}\n{done.out}\n{done.err}"
        self.judge()

    def is_refused(self, ledger: Path | None = None) -> None:
        """The command on a ledger with two names: it looks at nothing, and nothing is charged there."""
        looked = self.sandbox.looks
        done = self.command(at=0, ledger=ledger)
        assert done.code == ExitCode.LEDGER_DAMAGED, f"exit code {done.code}\n{done.out}\n{done.err}"
        assert self.sandbox.looks == looked

    def mirrors(self) -> None:
        """A command that lets the mirror have the line of a killed one, on which nothing ran."""
        assert self.command(at=0).code in GOES_ON
        self.judge()

    def judge(self) -> None:
        """Takes the present ledger as the newest, and compares with it all that was looked at."""
        before = self.entries
        if not (self.books / "ledger.sqlite").exists():
            assert not self.sandbox.looks
            return
        shutil.rmtree(self.newest.parent, ignore_errors=True)
        self.newest.parent.mkdir()
        for path in self.ledger_files:
            shutil.copy2(path, self.newest.parent)
        if not Ledger(self.newest).account_names():
            assert not self.sandbox.looks
            return
        assert self.entries >= before, "the ledger only grows"
        if any(self.sandbox.root.glob("sweeps/*/*/plan.json")):
            refuse_unpaid(self.sandbox, Plan.read(self.sandbox.folder.plan_path), Ledger(self.newest))

    def put_aside(self) -> None:
        """Keeps copies of folder, store and ledger."""
        root = self.sandbox.outside / f"copies-{len(self.copies)}"
        root.mkdir()
        for path in self.ledger_files:
            shutil.copy2(path, root)
        if any(self.books.glob("*.private")):
            shutil.copytree(self.store, root / "store")
        if any(self.sandbox.root.glob("sweeps/*/*/plan.json")):
            shutil.copytree(self.folder, root / "folder")
        self.copies.append(Copies(root=root, entries=self.entries, launches=self.launches))

    def ledger_back_to(self, folder: Path) -> None:
        """Puts a ledger's files in the place of the present ones."""
        for path in self.ledger_files:
            path.unlink()
        for path in folder.glob("ledger.sqlite*"):
            shutil.copy2(path, self.books)

    def older(self, having: str) -> Copies | None:
        """An earlier copy with such a part, if there is one."""
        able = [
            one
            for one in self.copies
            if (one.root / having).exists()
            and (having != "store" or one.launches < self.launches)
            and (having != "ledger.sqlite" or one.entries < self.entries)
        ]
        return self.chance.choice(able) if able else None


def killed(storm: Storm) -> None:
    storm.goes_on()


def folder_restored(storm: Storm) -> None:
    if (older := storm.older("folder")) is None:
        return killed(storm)
    shutil.rmtree(place := storm.folder)
    shutil.copytree(older.root / "folder", place)
    return storm.goes_on()


def store_restored(storm: Storm) -> None:
    if (older := storm.older("store")) is None:
        return killed(storm)
    shutil.rmtree(place := storm.store)
    shutil.copytree(older.root / "store", place)
    return storm.goes_on()


def folder_copied(storm: Storm) -> None:
    if not any(storm.sandbox.root.glob("sweeps/*/*/plan.json")):
        return killed(storm)
    copy = storm.sandbox.root / f"copy-{storm.strokes.total()}"
    shutil.copytree(storm.folder, copy)
    return storm.goes_on(f"hydra.sweep.dir={copy}")


def ledger_restored(storm: Storm) -> None:
    storm.mirrors()
    if (older := storm.older("ledger.sqlite")) is None:
        return killed(storm)
    storm.ledger_back_to(older.root)
    return storm.comes_back(storm.chance.choice((None, by_file_link(storm), by_folder_link(storm))))


def ledger_restored_and_renamed(storm: Storm) -> None:
    storm.mirrors()
    if (older := storm.older("ledger.sqlite")) is None:
        return killed(storm)
    storm.ledger_back_to(older.root)
    renamed(storm)
    return storm.comes_back()


def ledger_deleted(storm: Storm) -> None:
    storm.mirrors()
    for path in storm.ledger_files:
        path.unlink()
    storm.comes_back()


def ledger_with_two_names(storm: Storm) -> None:
    os.link(storm.books / "ledger.sqlite", other := storm.books / "other.sqlite")
    storm.is_refused(storm.chance.choice((None, other)))
    other.unlink()
    storm.goes_on()


def books_renamed(storm: Storm) -> None:
    renamed(storm)
    storm.goes_on()


def ledger_by_file_link(storm: Storm) -> None:
    storm.goes_on(ledger=by_file_link(storm))


def ledger_by_folder_link(storm: Storm) -> None:
    storm.goes_on(ledger=by_folder_link(storm))


def renamed(storm: Storm) -> None:
    """Gives the folder of ledger and store another name."""
    storm.books = storm.books.rename(storm.sandbox.root / f"books-{storm.strokes.total()}")


def by_file_link(storm: Storm) -> Path:
    link = storm.sandbox.root / f"link-{storm.strokes.total()}.sqlite"
    link.unlink(missing_ok=True)
    link.symlink_to(storm.books / "ledger.sqlite")
    return link


def by_folder_link(storm: Storm) -> Path:
    link = storm.sandbox.root / f"linked-{storm.strokes.total()}"
    link.unlink(missing_ok=True)
    link.symlink_to(storm.books)
    return link / "ledger.sqlite"


STROKES: tuple[Callable[[Storm], None], ...] = (
    killed,
    folder_restored,
    store_restored,
    folder_copied,
    ledger_restored,
    ledger_restored_and_renamed,
    ledger_deleted,
    ledger_with_two_names,
    books_renamed,
    ledger_by_file_link,
    ledger_by_folder_link,
)


@pytest.mark.parametrize(
    ("rule", "rounds"),
    [("points", 1), *(pytest.param(rule, 4, id=f"{rule}, a storm", marks=pytest.mark.long) for rule in RULES)],
)
def test_no_look_is_unpaid_in_a_storm_of_kills_restores_renames_and_links(
    tmp_path: Path, chance: Random, rule: str, rounds: int
) -> None:
    """Each round has every stroke once, in an order of its own: 44 strokes and as many commands in a long storm."""
    storm = Storm.over(Sandbox.at(tmp_path / "sandbox", (*SWEEP, *CHECKPOINTS, *RULES[rule])), chance)
    for _ in range(rounds):
        for stroke in chance.sample(STROKES, len(STROKES)):
            storm.strokes[stroke.__name__] += 1
            try:
                stroke(storm)
            except Exception as broken:
                broken.add_note(f"after {dict(storm.strokes)}; the sandbox: {storm.sandbox.root}")
                raise
            storm.put_aside()
    assert all(storm.strokes[stroke.__name__] == rounds for stroke in STROKES)
