"""The private store's record of one attempt at a search that hides its losers.

The ledger records a search with hidden losers as a whole, so it cannot distinguish the search's folder from an older
copy. The store can: it has the digest of the draw, the started tries, the digest of each result, and the winner.
Invariant: a folder that contradicts the store trains nothing and releases nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpsweep.accounting.codec import read_stored
from dpsweep.accounting.folders import made_folder
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.ledger.private_store import PRIVATE, PrivateStore, new_nonce
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.stored_draw import DrawnTrial, SearchOutcome
from dpsweep.accounting.validation import text


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """The store's record of one attempt at a search."""

    store: PrivateStore
    attempt: int

    @property
    def exists(self) -> bool:
        """Whether the store has a record of this attempt."""
        return self._search.exists()

    def begin(self, draw: Path) -> None:
        """Stores the digest of the draw in this file, before any try begins; a stored digest is never replaced."""
        if not self.exists:
            self.store.make()
            write_json(self._search, {"draw": _digest(draw)}, mode=PRIVATE)

    def end(self, trial: str, files: Path) -> None:
        """Stores the end of a try and the digest of its result, if there is one; a stored end is never replaced."""
        path = self._end_path(trial)
        if not path.exists():
            made_folder(path.parent)
            write_json(path, {"result": TrialResult.digest(files)}, mode=PRIVATE)

    def conclude(self, outcome: SearchOutcome) -> SearchOutcome:
        """Stores the outcome of the search, unless one is stored; returns the stored one, which is never replaced.

        Of several writers at once the first one's stays: a whole file gets its name by a hard link, if nothing has it.
        """
        whole = self._outcome_path.with_name(f"{self._outcome_path.stem}-{new_nonce()}.json")
        write_json(whole, outcome.to_json(), mode=PRIVATE)
        with suppress(OSError):
            os.link(whole, self._outcome_path)
        whole.unlink()
        if self.outcome is None:  # a file system without hard links
            write_json(self._outcome_path, outcome.to_json(), mode=PRIVATE)
        return self.outcome or outcome

    @property
    def outcome(self) -> SearchOutcome | None:
        """The outcome of the search, None if it is not finished."""
        return SearchOutcome.read(self._outcome_path)

    def contradiction(
        self, draw: Path, outcome: Path, places: Mapping[str, Path], tries: Iterable[DrawnTrial]
    ) -> str | None:
        """The difference between a sweep folder and the store, in words that follow "it"; None if the two agree.

        `draw` and `outcome` are the folder's files, `places` the folders of its tries.
        """
        if read_stored(self._search, lambda form: text("draw", form["draw"])) != _digest(draw):
            return "holds another draw"
        for one in tries:
            files, record = places[one.trial.id], self.store.record(one.trial.id)
            if any(not (files / claim.name).exists() for claim in self._claims(record)):
                return f"does not show that trial {one.trial.id} began"
            if one.result is not None and not Receipt.claimed(record, self.attempt):
                return f"holds a result of trial {one.trial.id} that this search did not make"
            ended = read_stored(self._end_path(one.trial.id), _result_of)
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
    def _outcome_path(self) -> Path:
        return self.store.root / f"outcome-{self.attempt}.json"

    def _end_path(self, trial: str) -> Path:
        return self.store.record(trial) / f"ended-{self.attempt}.json"


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _result_of(form: Mapping[str, Any]) -> str | None:
    return None if form["result"] is None else text("result", form["result"])
