"""What the private store knows of one attempt at a search that hides its losers.

The ledger hears of such a search as a whole, so it cannot tell a folder of the search from an older copy of it. The
store can: it knows the digest of the draw, which tries began, with which result each ended, and who won. What always
holds: a folder that contradicts the store trains nothing and releases nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.ledger.private_store import PRIVATE, PrivateStore, made_folder
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.execution import DrawnTrial, SearchOutcome, read_stored
from dpsweep.accounting.records.trial_result import TrialResult


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """The store's side of one attempt at a search."""

    store: PrivateStore
    attempt: int

    @property
    def exists(self) -> bool:
        """Whether the store knows of this attempt."""
        return self._search.exists()

    def begin(self, draw: Path) -> None:
        """Stores the digest of the draw in this file; nothing of the attempt has begun yet."""
        self.store.make()
        write_json(self._search, {"draw": _digest(draw)}, mode=PRIVATE)

    def end(self, trial: str, files: Path) -> None:
        """Stores that a try is over, and the digest of its result where there is one; once and for ever."""
        path = self._end(trial)
        if not path.exists():
            made_folder(path.parent)
            write_json(path, {"result": TrialResult.digest(files)}, mode=PRIVATE)

    def conclude(self, outcome: SearchOutcome) -> None:
        """Stores how the search ended."""
        write_json(self._outcome, asdict(outcome), mode=PRIVATE)

    @property
    def outcome(self) -> SearchOutcome | None:
        """How the search ended, None where it goes on."""
        return SearchOutcome.read(self._outcome)

    def contradiction(
        self, draw: Path, outcome: Path, places: Mapping[str, Path], tries: Iterable[DrawnTrial]
    ) -> str | None:
        """How a sweep folder differs from the store, in words that follow "it"; None where the two agree.

        `draw` and `outcome` are the folder's files, `places` the folders of its tries.
        """
        if read_stored(self._search, lambda form: str(form["draw"])) != _digest(draw):
            return "holds another draw"
        for one in tries:
            files, record = places[one.trial.id], self.store.record(one.trial.id)
            if any(not (files / claim.name).exists() for claim in self._claims(record)):
                return f"does not show that trial {one.trial.id} began"
            if one.result is not None and not Receipt.claimed(record, self.attempt):
                return f"holds a result of trial {one.trial.id} that this search did not make"
            ended = read_stored(self._end(one.trial.id), _result_of)
            if ended is not None and ended != TrialResult.digest(files):
                return f"does not hold the result that trial {one.trial.id} ended with"
        known, shown = self.outcome, SearchOutcome.read(outcome)
        if shown is not None and shown.attempt == self.attempt and shown != known:
            return "names another winner"
        return None

    def _claims(self, record: Path) -> list[Path]:
        return [*record.glob(f"claim-{self.attempt}"), *record.glob(f"claim-{self.attempt}-*")]

    @property
    def _search(self) -> Path:
        return self.store.root / f"search-{self.attempt}.json"

    @property
    def _outcome(self) -> Path:
        return self.store.root / f"outcome-{self.attempt}.json"

    def _end(self, trial: str) -> Path:
        return self.store.record(trial) / f"ended-{self.attempt}.json"


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _result_of(form: Mapping[str, Any]) -> str | None:
    return None if form["result"] is None else str(form["result"])
