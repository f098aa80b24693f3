"""Whatever is done to a sweep, in any order: the bill never falls, and nothing is trained that was not paid for.

After each step these hold, besides what `tests/fuzzing/world.py` says of folders:

- the ledger's entries only grow, and no reserved amount falls;
- each look at the records is one of an attempt that was started on a charge, and within what was priced for it;
- a hidden search trains no try but those of its draw, and no more attempts than are covered;
- a charge has one winner at most;
- `verify` finds each edit of a settled folder that changes what a page would claim;
- each command ends with a documented exit code and a sentence, never with a traceback.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzzing.duration import while_there_is_time
from tests.fuzzing.sweep_machine import Sweeps
from tests.randomized import SURE

pytestmark = pytest.mark.randomized(
    draws="nonces of launches and salts of results and releases", bound=SURE, false_alarm=0.0
)

ORDINARY = settings(max_examples=5, stateful_step_count=20, suppress_health_check=list(HealthCheck))
EXPLORING = settings(
    ORDINARY, max_examples=20, stateful_step_count=50, derandomize=False, database=None, phases=(Phase.generate,)
)
"""New examples in each run. They are not made smaller, which would take longer than to read them."""


def test_no_order_of_events_lowers_a_bill_or_trains_what_was_not_paid_for() -> None:
    run_state_machine_as_test(Sweeps, settings=ORDINARY)


@pytest.mark.long
def test_no_order_of_events_does_so_for_as_long_as_there_is_time() -> None:
    """As long as docs/contributing.md says; the steps of a failure are printed, and can be typed into a test."""
    while_there_is_time(lambda: run_state_machine_as_test(Sweeps, settings=EXPLORING))
