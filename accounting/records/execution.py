"""What a sweep runs for its price: every point once, what a sampler proposes, or the tries of a secret draw.

The price of a plan is that of its event, so a plan may run only where its event says what running it does. What always
holds for a search that hides its losers:

* The draw is made once, stored for its owner alone before the first run, and never made again, extended or cut short.
* A try is a point at a place in the draw. Two tries of one point are two runs, each with its own folder and randomness,
  initial weights included: the theorems are about tries that are all alike, so nothing public may tell them apart.
* A try ends with a result, or begins and ends without one; then it scores worst, and no other takes its place.
* Once the winner is known it is written down, and what comes later changes nothing. All of it is as secret as noise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.types import ThresholdDpEvent
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.ledger.private_store import PRIVATE
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.numbers import whole
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.selection.execution import pays_for_execution, search_paid_by
from dpsweep.accounting.selection.interface import Draw, Execution, Proposals, Search, rule_from_config
from dpsweep.accounting.validation import DAMAGE, in_short, text

DRAW = "draw"
"""The key of a try's place in the draw, in its configuration."""

DRAW_FILE, OUTCOME_FILE, ENDED = "draw.json", "outcome.json", "ended"
"""Where a sweep's folder keeps its draw, what came of it, and which tries are over."""

Stored = TypeVar("Stored")


def execution_of(plan: Plan) -> Execution:
    """How the plan is executed; raises `BadInput` where its event does not pay for what its rule declares to run."""
    rule = rule_from_config(plan.rule)
    execution = rule.execution if pays_for_execution(rule, plan.event, plan.paid) else None
    if plan.proposed is not None:
        rule.check(Search(proposals=Proposals.ADAPTIVE))
        execution = Execution.PROPOSED if execution is Execution.EVERY_POINT else None
    if execution is None:
        raise BadInput(
            f"A sweep under {rule.name} can be planned and priced, but not run yet: `sweep` runs every point once, or "
            "the tries of a draw that shows the winner alone. Choose tuning=composition or tuning=private_selection, "
            "and final=false."
        )
    return execution


def read_draw(plan: Plan, path: Path) -> StoredDraw | None:
    """The stored draw of this very plan; None where there is none."""
    stored = StoredDraw.read(path)
    if stored is not None and stored.plan != plan.id:
        raise BadInput(f"Expected {path} to be the draw of plan {plan.id}; it is one of plan {stored.plan}.")
    return stored


def check_draw(plan: Plan, draw: Draw) -> Draw:
    """The same draw; raises `BadInput` where the plan's event does not pay for such a one."""
    search = search_paid_by(plan.event, [trial.event for trial in plan.trials])
    rule, points = rule_from_config(plan.rule).name, range(len(plan.trials))
    limit = None if search is None else search.limit
    first_good = search is not None and isinstance(search.event, ThresholdDpEvent)
    for condition, holds in (
        ("pay for a search", search is not None),
        ("compare scores as they are", not draw.handicaps),
        ("have a threshold if its event has one", (draw.threshold is not None) == first_good),
        (f"try points of {points}", all(point in points for point in draw.tries)),
        (f"make at most {limit} tries", limit is None or len(draw.tries) <= limit),
    ):
        if not holds:
            raise BadInput(f"Expected the draw of {rule} to {condition}: another one is not what the plan pays for.")
    return draw


@dataclass(frozen=True, kw_only=True)
class StoredDraw:
    """A rule's draw in the sweep's folder, and the attempt at which plan's search it was made for.

    `salt` are 128 random bits that go into the digest of the search's winner (`accounting/records/released_winner.py`).
    """

    plan: str
    attempt: int
    draw: Draw
    salt: str = ""

    def write(self, path: Path) -> None:
        """Stores it for its owner alone, once and for ever."""
        if path.exists():
            raise BadInput(f"Expected {path} to be absent: a draw is never made again.")
        about = {"plan": self.plan, "attempt": self.attempt, "salt": self.salt}
        write_json(path, about | self.draw.to_json(), mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> StoredDraw | None:
        """The stored draw, None where there is none; a damaged one is refused, never guessed."""
        return read_stored(
            path,
            lambda form: cls(
                plan=text("plan", form["plan"]),
                attempt=whole("attempt", form["attempt"]),
                draw=Draw.from_json(form),
                salt=text("salt", form.get("salt", "")),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """How an attempt at a search ended: the winner's place in the draw, None where nothing won."""

    attempt: int
    winner: int | None

    def write(self, path: Path) -> None:
        """Stores it for its owner alone."""
        write_json(path, asdict(self), mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> SearchOutcome | None:
        """The stored outcome, None where the search goes on."""
        return read_stored(
            path,
            lambda form: cls(
                attempt=whole("attempt", form["attempt"]),
                winner=None if form["winner"] is None else whole("winner", form["winner"]),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class DrawnTrial:
    """A try as it stands: not begun, begun, ended; with a result, or without."""

    trial: Trial
    begun: bool
    ended: bool
    result: TrialResult | None

    @property
    def score(self) -> float | None:
        """What it is compared by; None, worse than any, unless it finished."""
        if self.result is None or self.result.status is not Status.FINISHED or self.result.score is None:
            return None
        return float(self.result.score["value"])


def is_try(trial: Trial) -> bool:
    """Whether a trial is a try of a secret draw, and no point of a plan."""
    return DRAW in trial.config


def tries_of(plan: Plan, draw: Draw) -> tuple[Trial, ...]:
    """A trial for each try: the point's own, and its place in the draw."""
    points = plan.trials
    return tuple(
        replace(points[point], config={**points[point].config, DRAW: place})
        for place, point in enumerate(check_draw(plan, draw).tries)
    )


def read_tries(plan: Plan, stored: StoredDraw, root: Path) -> tuple[DrawnTrial, ...]:
    """Every try as a sweep's folder shows it; one that was marked as ended has begun even if its own folder is gone."""
    found = []
    for trial in tries_of(plan, stored.draw):
        place = root / "trials" / trial.id
        result = TrialResult.read(place)
        marked = end_mark(root, trial, stored.attempt).exists()
        begun = Receipt.claimed(place, stored.attempt) or marked
        own = begun and result is not None and result.attempt == stored.attempt
        found.append(
            DrawnTrial(
                trial=trial,
                begun=begun,
                ended=marked or own,
                result=result if own else None,
            )
        )
    return tuple(found)


def end_mark(root: Path, trial: Trial, attempt: int) -> Path:
    """The empty file that says that a try is over, whatever becomes of its folder."""
    return root / ENDED / f"{trial.id}-{attempt}"


def scores_of(tries: Sequence[DrawnTrial]) -> dict[int, float | None]:
    """The scores of the tries that have ended, by their places."""
    return {place: one.score for place, one in enumerate(tries) if one.ended}


def read_stored(path: Path, made: Callable[[Mapping[str, Any]], Stored]) -> Stored | None:
    """What `made` makes of a stored JSON file, None where there is none; a damaged one is refused, never guessed."""
    try:
        return made(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as cause:
        raise BadInput(f"Expected {path} to be whole and readable, got {in_short(cause)}.") from cause
