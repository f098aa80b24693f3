"""What machines do to a sweep besides: clocks that jump, scores that are none, memory and ledgers that run out."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.records.trial_result import Status
from tests.faults.sandbox import CHECKPOINTS, FAULTS, SWEEP, Sandbox, agree, sentence
from tests.faults.syscalls import Stroke
from tests.forked_programs import CLOCK

pytestmark = FAULTS

Make = Callable[[tuple[str, ...]], Sandbox]


def test_a_clock_that_jumps_by_days_at_every_look_charges_nothing_twice(sandbox: Make, undisturbed: Sandbox) -> None:
    box = sandbox((*SWEEP, *CHECKPOINTS))
    box.environment = {**box.environment, CLOCK: "400"}
    box.run(Stroke.KILL, undisturbed.when("os.fsync .*/steps-1", 2))
    box.check()
    box.finish(1)
    times = [entry.at for entry in box.entries]
    assert times != sorted(times), "the clock was really seen to jump"
    assert box.charges == 1
    agree(box, undisturbed)


@pytest.mark.parametrize(
    ("broken", "said"),
    [("undefined", "score.value=nan to be finite"), pytest.param("memory", "MemoryError", marks=pytest.mark.long)],
)
def test_a_score_that_is_none_fails_its_trial_which_stays_charged_and_is_not_repeated(
    sandbox: Make, broken: str, said: str
) -> None:
    box = sandbox((*SWEEP, *CHECKPOINTS, f"+score.broken={broken}"))
    box.status = Status.FAILED
    for _ in range(2):
        done = box.run()
        assert said in sentence(done, ExitCode.DONE_WITH_FAILURES)
        assert "they stay charged" in done.err
        box.check()
    assert box.charges == 1
    for path in box.folder.trials_folder.glob("*/result.json"):
        assert said in json.loads(path.read_text())["error"]
    assert said in (box.folder.root / "curator" / "report.html").read_text()


def test_a_process_that_the_kernel_kills_for_its_memory_loses_the_trial_that_it_was_at_and_no_charge(
    sandbox: Make,
) -> None:
    """While it measures a score, so that its attempt never goes on, whatever its checkpoint says."""
    box = sandbox((*SWEEP, *CHECKPOINTS, "+score.broken=killed"))
    assert box.run().code == -signal.SIGKILL
    box.check()
    box.finish(1)
    assert box.charges == 2
    assert sum(box.looks.values()) == (4 + 1) * 3, "one of the two trials ran twice"


def test_a_ledger_that_is_too_full_for_a_charge_refuses_it_and_nothing_runs(
    sandbox: Make, undisturbed: Sandbox
) -> None:
    box = sandbox((*SWEEP, *CHECKPOINTS, "repeats=200"))
    said = sentence(box.run(Stroke.PACKED, undisturbed.when("after a commit")), ExitCode.LEDGER_DAMAGED)
    assert "is full" in said
    box.check()
    assert box.charges == 0
    assert not box.looks


def test_a_ledger_that_fills_up_after_the_charge_stops_the_sweep_which_goes_on_where_there_is_room(
    sandbox: Make, undisturbed: Sandbox
) -> None:
    """So many runs that their lines need further pages."""
    box = sandbox((*SWEEP, *CHECKPOINTS, "repeats=8"))
    said = sentence(box.run(Stroke.PACKED, undisturbed.when(r"open .*/\.plan\.json")), ExitCode.LEDGER_DAMAGED)
    assert "is full" in said
    box.check()
    assert box.charges == 1
    box.finish(1)
    assert box.charges == 1
