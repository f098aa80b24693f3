"""The choice of a sweep's final run: the winning point of the search, run once more, by a rule that pays for that.

Invariants:

* The plan charges one final run, at the price of the costliest point, before the search begins.
* The point is chosen once, from the scores of the finished search, and stored before the final run begins. It is never
  chosen again: another final run is another charge.
* A final run is one of `Plan.finals`, with its own configuration, identity, folder and randomness.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.numbers import whole
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.stored_draw import read_stored
from dpsweep.accounting.validation import text


def read_final(plan: Plan, path: Path) -> Trial | None:
    """The chosen final run, None if none is chosen yet; refuses a damaged file, and one of another plan."""
    if not plan.finals:
        return None
    stored = read_stored(path, lambda form: (text("plan", form["plan"]), whole("point", form["point"])))
    if stored is None:
        return None
    if stored[0] != plan.id:
        raise BadInput(f"Expected {path} to be the final run of plan {plan.id}; it is one of plan {stored[0]}.")
    if stored[1] >= len(plan.finals):
        raise BadInput(f"Expected the point of {path} to be one of the {len(plan.finals)} of plan {plan.id}.")
    return plan.finals[stored[1]]


def store_final(plan: Plan, path: Path, point: int) -> Trial:
    """Stores the choice of a point, by its index in the plan, and returns its final run; a choice is never replaced."""
    known = read_final(plan, path)
    if known is not None and known != plan.finals[point]:
        raise BadInput(f"Expected {path} to be absent: a final run is never chosen again.")
    write_json(path, {"plan": plan.id, "point": point})
    return plan.finals[point]


def recover_final(plan: Plan, path: Path, started: Container[str]) -> None:
    """Restores from the ledger the choice of a final run that began, if the folder was deleted."""
    if read_final(plan, path) is None:
        for point, final in enumerate(plan.finals):
            if final.id in started:
                store_final(plan, path, point)
                return
