"""What verifying finds beyond the chain: balances that do not follow, and another ledger in the place of the one known.

A ledger that was deleted, lost with its mount, cut short or replaced is a whole chain like any other, and would open
with a fresh budget. So this machine remembers, in the user's state directory, how each ledger ended when it was last
verified; a ledger in that place that does not hold this end is refused, also before anything is opened in it. The
memory only grows. Another machine, or another user, has its own and so finds nothing that it did not see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_state_path

from accounting.account import Balance, Kind
from accounting.errors import LedgerDamaged
from accounting.lines import End, Lines
from accounting.plan import write_json
from accounting.reading import as_written

FREE = (Kind.START, Kind.RESUME, Kind.SETTLE, Kind.DATA)
"""What leaves a balance as it was."""


def count_whole(lines: Lines, name: str) -> int:
    """The number of lines, each whole and with the balance that follows from those before it."""
    with as_written(f"the ledger {name}", LedgerDamaged):
        return _count_whole(lines, name)


def _count_whole(lines: Lines, name: str) -> int:
    balances: dict[str, tuple[Mapping[str, Any], Balance]] = {}
    count = 0
    for entry in lines.walk():
        count += 1
        known = balances.get(entry.account)
        if known is not None and entry.kind in FREE and entry.balance == known[0]:
            continue
        if (known is None) != (entry.kind == Kind.OPEN):
            raise LedgerDamaged(f"Entry {entry.seq} of {name} does not follow from those before it: {entry.kind}.")
        after = Balance.opened(entry.body) if known is None else known[1].after(entry.kind, entry.body)
        if not after.stands_in(entry.balance):
            raise LedgerDamaged(f"The balance in entry {entry.seq} of {name} does not follow from those before it.")
        balances[entry.account] = (entry.balance, after)
    return count


def refuse_another(name: str, lines: Lines | None, ends: Sequence[End], who: str, otherwise: str = "") -> None:
    """Raises `LedgerDamaged` where the ledger does not hold all the ends that `who` remembers; None is no ledger."""
    gone = [end for end in ends if end.entries and (lines is None or not lines.holds(end))]
    if gone:
        count = 0 if lines is None else lines.end().entries
        found = f"has {count} entries and not the" if count < gone[0].entries else "has others than the first"
        raise LedgerDamaged(
            f"The ledger {name} {found} {gone[0].entries} that {who} remembers: it was cut short, or another one was "
            f"put in its place. Restore it, or set DPSWEEP_LEDGER to the right one{otherwise}."
        )


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How a ledger ended when this user last verified it on this machine; `place` is its file or address."""

    place: str

    @property
    def path(self) -> Path:
        """The file that remembers it. Deleting it forgets the ledger, which is for a person to do on purpose."""
        return user_state_path("dpsweep") / "ends" / f"{hashlib.sha256(self.place.encode()).hexdigest()[:16]}.json"

    def end(self) -> End:
        """The end that is remembered; of a ledger never seen, that of an empty one."""
        try:
            form = json.loads(self.path.read_text())
            return End(entries=int(form["entries"]), head=str(form["head"]))
        except (FileNotFoundError, NotADirectoryError):
            return End()
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise LedgerDamaged(
                f"What this machine remembers of the ledger {self.place} cannot be read ({cause}). Where you know that "
                f"the ledger is the right one, delete {self.path}."
            ) from cause

    def remember(self, end: End) -> None:
        """Remembers an end that follows from the one known; a shorter one changes nothing."""
        if end.entries <= self.end().entries:
            return
        try:
            self.path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock")):
                if end.entries > self.end().entries:
                    write_json(self.path, {"ledger": self.place} | asdict(end), mode=0o600)
        except OSError as cause:
            raise LedgerDamaged(
                f"The end of the ledger {self.place} cannot be remembered in {self.path.parent}: {cause.strerror}; "
                "XDG_STATE_HOME names another place."
            ) from cause

    def refuse_another(self, lines: Lines | None, end: End) -> None:
        """Raises `LedgerDamaged` where the ledger does not hold `end`, remembered before the ledger was looked at."""
        refuse_another(self.place, lines, [end], "this machine", f"; if it was on purpose, delete {self.path}")
