"""Two users with mirrors of their own kill one another's commands between any two lines of a charge and a start."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.mirror import Mirror
from dpsweep.accounting.ledger.upkeep import name_mirror, verify_entries
from tests.accounting.books import BUDGET, ONE, processes
from tests.charges import charge_cost, start_attempts
from tests.databases import Place

USERS = ("alice", "bob")
LINES = 4200
"""More lines of the ledger and its chain than a charge with its start runs; a later instant kills nothing."""


def _as_user(user: str, states: str) -> None:
    os.environ.update({"LOGNAME": user, "XDG_STATE_HOME": f"{states}/{user}"})


def _command(pipe: Any, user: str, states: str, address: str, plan: str, instant: int) -> None:
    """Charges a plan unless it is charged, and starts its run unless it was started; dies at an instant, a line."""
    _as_user(user, states)
    left = instant

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if (
            "/accounting/ledger/" not in frame.f_code.co_filename
            and "/accounting/chain/" not in frame.f_code.co_filename
        ):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os._exit(9)
        return trace

    sys.settrace(trace)
    try:
        ledger = Ledger(address)
        if not ledger.attempts_of_plan("digits", plan).charges:
            charge_cost(ledger, "digits", plan=plan, trials=["a"], cost=ONE)
        if not ledger.attempts_of_plan("digits", plan).started["a"]:
            pipe.send(start_attempts(ledger, "digits", plan=plan, trials=["a"])[0].head)
        pipe.send(None)
    except DpsweepError as refusal:
        pipe.send(refusal)


def _look(pipe: Any, user: str, states: str, address: str) -> None:
    _as_user(user, states)
    ledger = Ledger(address)
    verify_entries(ledger.chain)
    pipe.send([entry.digest for entry in ledger.statement("digits").entries])


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.long)])
def test_no_kill_makes_a_fork_and_nothing_is_charged_or_started_twice(
    place: Place, tmp_path: Path, chance: Random, kills: int
) -> None:
    states, far = str(tmp_path / "states"), Mirror(path=tmp_path / "far.jsonl")
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    name_mirror(ledger.chain, far.path)
    returned, died, plan = set[str](), 0, 0
    while died < kills:
        user = chance.choice(USERS)
        arguments = (user, states, place.address, f"p{plan}", chance.randrange(1, LINES))
        with processes(_command, [arguments]) as (pipe,):
            try:
                while (head := pipe.recv()) is not None:
                    assert isinstance(head, str), head
                    returned.add(head)
                plan += 1
            except EOFError:
                died += 1
        mirrored = [row["digest"] for row in far.rows()]
        with processes(_look, [(USERS[died % 2], states, place.address)]) as (pipe,):
            lines = pipe.recv()
        assert mirrored == lines[: len(mirrored)], "a mirror has no line that was not committed"
        assert returned <= set(mirrored), "a start that returned is mirrored"
    entries = ledger.statement("digits").entries
    for kind, most in (("charge", plan + 1), ("start", plan + 1)):
        plans = [entry.plan for entry in entries if entry.kind == kind]
        assert len(plans) == len(set(plans)) <= most
