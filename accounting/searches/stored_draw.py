"""The stored draw of a search that hides its losers, its tries, their outcome, and the private store's record of it.

Invariants of such a search:

* The draw is made once, stored for its owner alone before the first run, and never repeated, extended or shortened.
* A try is a point at a place in the draw. Two tries of one point are two runs, each with its own folder and randomness,
  initial weights included: the theorems assume identically distributed tries, so nothing public may distinguish them.
* A try ends with a result, or starts and ends without one; then it has the worst score, and no other try replaces it.
* The winner is recorded as soon as it is known, and later events do not change it. All of this is as secret as noise.
* A folder that contradicts the store trains nothing and releases nothing. The ledger records a search with hidden
  losers as a whole, so it cannot distinguish the search's folder from an older copy. The store can: it has the digest
  of the draw, the started tries, the digest of each result, and the winner.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from dpsweep.accounting.chain.hash_chain import new_nonce
from dpsweep.accounting.codec import BESIDE, OMITTED, Count, Stored, from_json, parse_json_file_or_none
from dpsweep.accounting.durable_files import PRIVATE, make_private_folder_durably, write_json
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.permit import PrivateStore, claim_path
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.searches.interface import StoredChoice
from dpsweep.accounting.selection.interface import Draw
from dpsweep.accounting.selection.rules import rule_from_config

DRAW = "draw"
"""The key of the place in the draw, in a try's configuration."""


COIN_BYTES = 32
"""The random bytes that the coins of a secret part are made from."""


def require_draw_paid_by_plan(plan: Plan, draw: Draw) -> Draw:
    """Returns the draw; raises `BadInput` if the plan's event does not cover it."""
    rule = rule_from_config(plan.rule)
    events = [trial.event_with_final_run for trial in plan.trials]  # each try is a run of its own
    if not rule.runs(plan.event_without_card, events):
        raise BadInput(f"Expected the draw of {rule.name} to be paid for: the plan pays for no such search.")
    rule.check_draw(draw, len(plan.trials))
    return draw


@dataclass(frozen=True, kw_only=True)
class StoredDraw(StoredChoice):
    """A rule's draw in the sweep's folder, with the attempt at the search that the draw is for.

    `salt` has 128 random bits for the digest of the search's winner (`accounting/records/released_files.py`). `coins`
    has 256 random bits, from which each record's coin is made if the search reads a secret part; empty otherwise.
    """

    attempt: Count
    salt: str = ""
    coins: Annotated[str, OMITTED] = field(default="", repr=False)
    draw: Annotated[Draw, BESIDE]

    def write(self, path: Path) -> None:
        """Stores the draw for its owner alone; a stored draw is never replaced."""
        if path.exists():
            raise BadInput(f"Expected {path} to be absent: a draw is never made again.")
        write_json(path, self.to_json(), mode=PRIVATE)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> StoredDraw:
        """Reads `to_json`'s form, and no other form of the same draw."""
        stored = from_json(cls, form)
        if stored.to_json() != form:
            raise ValueError("Expected a draw as it was written, without what is absent from it.")
        return stored


@dataclass(frozen=True, kw_only=True)
class SearchOutcome(Stored):
    """The outcome of an attempt at a search: the winner's place in the draw, None if there is no winner."""

    attempt: Count
    winner: Count | None

    def write(self, path: Path) -> None:
        """Stores the outcome for its owner alone."""
        write_json(path, self.to_json(), mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> SearchOutcome | None:
        """The stored outcome, None if the search is not finished."""
        return parse_json_file_or_none(path, cls.from_json)


@dataclass(frozen=True, kw_only=True)
class DrawnTrial:
    """The state of a try: not begun, begun or ended, with or without a result."""

    trial: Trial
    begun: bool
    ended: bool
    result: TrialResult | None

    @property
    def score(self) -> float | None:
        """The score for the comparison; None, which is worse than any score, unless the try finished."""
        return self.result.score_value if self.result is not None and self.result.status is Status.FINISHED else None

    @property
    def noisy_right_predictions(self) -> float | None:
        """The number of right predictions, in place of the score, if the comparison has noise of its own."""
        return None if self.score is None or self.result is None else self.result.noisy_right_predictions


def is_try_of_secret_draw(trial: Trial) -> bool:
    """Whether a trial is a try of a secret draw and not a point of a plan."""
    return DRAW in trial.config


def is_on_secret_part_of_records(trial: Trial) -> bool:
    """Whether a trial reads a part of the records that secret coins decide."""
    part = trial.config.get("part")
    return isinstance(part, Mapping) and part.get("secret") is True


def coin_bits_of_secret_part(trial: Trial, plan: str, folder: SweepFolder) -> str:
    """The random bits, in hexadecimal, of the coins of the secret part that a trial reads; empty if it reads none.

    They lie with the draw of the search, whose digest the coordinator compares with the private store. Raises
    `ContractBroken` unless the folder has the draw of this plan.
    """
    if not is_on_secret_part_of_records(trial):
        return ""
    stored = StoredDraw.read(folder.draw_path)
    if stored is None or stored.plan != plan:
        raise ContractBroken(f"Expected the draw of plan {plan} to lie in {folder.root}.")
    return stored.coins


def trials_of_draw(plan: Plan, draw: Draw) -> tuple[Trial, ...]:
    """A trial for each try: the trial of its point, with the place in the draw."""
    points = plan.trials
    return tuple(
        replace(points[point], config={**points[point].config, DRAW: place})
        for place, point in enumerate(require_draw_paid_by_plan(plan, draw).tries)
    )


def read_state_of_try(trial: Trial, stored: StoredDraw, folder: SweepFolder) -> DrawnTrial:
    """The state of a run of the draw; one that is marked as ended counts as begun even if its folder is lost."""
    place = folder.trial_folder(trial.id)
    result = TrialResult.read(place)
    marked = end_mark_path(folder, trial, stored.attempt).exists()
    begun = claim_path(place, stored.attempt).exists() or marked
    own = begun and result is not None and result.attempt == stored.attempt
    return DrawnTrial(trial=trial, begun=begun, ended=marked or own, result=result if own else None)


def end_mark_path(folder: SweepFolder, trial: Trial, attempt: int) -> Path:
    """The empty file that marks a try as ended, even if the try's folder is deleted later."""
    return folder.end_marks_folder / f"{trial.id}-{attempt}"


def compared_score_by_index_of_ended_try(draw: Draw, tries: Sequence[DrawnTrial]) -> dict[int, float | None]:
    """What a draw compares of the ended tries, by their places: scores, or numbers of right predictions."""
    ended = ((place, one) for place, one in enumerate(tries) if one.ended)
    return {place: one.noisy_right_predictions if draw.handicaps else one.score for place, one in ended}


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """The store's record of one attempt at a search."""

    store: PrivateStore
    attempt: int

    @property
    def exists(self) -> bool:
        """Whether the store has a record of this attempt."""
        return self._draw_digest_path.exists()

    def store_digest_of_draw(self, draw: Path) -> None:
        """Stores the digest of the draw in this file, before any try begins; a stored digest is never replaced."""
        _store_once(self._draw_digest_path, {"draw": _file_digest(draw)})

    def store_end_of_try(self, trial: str, files: Path) -> None:
        """Stores the end of a try and the digest of its result, if there is one; a stored end is never replaced."""
        _store_once(self._end_of_try_path(trial), {"result": TrialResult.digest_of_result_file(files)})

    def store_outcome_once(self, outcome: SearchOutcome) -> SearchOutcome:
        """Stores the outcome of the search, unless one is stored; returns the stored one, which is never replaced.

        Of several writers at once the first one's stays: a whole file gets its name by a hard link, if nothing has it.
        """
        whole = self._outcome_path.with_name(f"{self._outcome_path.stem}-{new_nonce()}.json")
        write_json(whole, outcome.to_json(), mode=PRIVATE)
        with suppress(OSError):
            os.link(whole, self._outcome_path)
        if self.outcome is None:  # a file system without hard links
            whole.replace(self._outcome_path)
        whole.unlink(missing_ok=True)
        return self.outcome or outcome

    @property
    def outcome(self) -> SearchOutcome | None:
        """The outcome of the search, None if it is not finished."""
        return SearchOutcome.read(self._outcome_path)

    def difference_from_folder_text(self, folder: SweepFolder, tries: Iterable[DrawnTrial]) -> str | None:
        """The difference between a sweep folder and the store, in words that follow "it"; None if the two agree."""
        if parse_json_file_or_none(self._draw_digest_path, itemgetter("draw")) != _file_digest(folder.draw_path):
            return "holds another draw"
        for one in tries:
            trial, place = one.trial.id, folder.trial_folder_and_private_record(one.trial.id)
            claims = [path for end in ("", "-*") for path in place.record.glob(f"claim-{self.attempt}{end}")]
            if any(not (place.files / claim.name).exists() for claim in claims):
                return f"does not show that trial {trial} began"
            if one.result is not None and not claim_path(place.record, self.attempt).exists():
                return f"holds a result of trial {trial} that this search did not make"
            ended = parse_json_file_or_none(self._end_of_try_path(trial), itemgetter("result"))
            if ended is not None and ended != TrialResult.digest_of_result_file(place.files):
                return f"does not hold the result that trial {trial} ended with"
        shown = SearchOutcome.read(folder.outcome_path)
        if shown is not None and shown.attempt == self.attempt and shown != self.outcome:
            return "names another winner"
        return None

    @property
    def _draw_digest_path(self) -> Path:
        return self.store.root / f"search-{self.attempt}.json"

    @property
    def _outcome_path(self) -> Path:
        return self.store.root / f"outcome-{self.attempt}.json"

    def _end_of_try_path(self, trial: str) -> Path:
        return self.store.trial_record_folder(trial) / f"ended-{self.attempt}.json"


def _store_once(path: Path, form: Mapping[str, Any]) -> None:
    if not path.exists():
        make_private_folder_durably(path.parent)
        write_json(path, form, mode=PRIVATE)


def _file_digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
