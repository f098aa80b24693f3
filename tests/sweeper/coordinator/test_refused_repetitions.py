"""Runs that were killed are repeated on another charge only if the user accepts it, and only if it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BudgetRefused
from dpsweep.accounting.ledger.statement import remaining_amounts
from dpsweep.accounting.ledger.upkeep import charge_outside
from dpsweep.sweeper.coordinator.sweep_report import release_line
from dpsweep.sweeper.searches.admission import Retry
from tests.sweeper import proposing
from tests.sweeper.search_programs import GRID, Place

Places = Callable[..., Place]


@pytest.mark.parametrize(
    "words",
    [(), ("search=random", "search.trials=2"), ("plan.spare_attempts=1",), ("final=true",)],
    ids=["points", "proposed", "spares", "final"],
)
def test_a_repetition_beyond_the_budget_is_refused_with_what_is_left_to_do(place: Places, words: Sequence[str]) -> None:
    here = place((*GRID, *words, "budget.epsilon=30", "budget.delta=1e-3"))
    work = here.begin()
    proposing.go_on(here, work, many=1)
    rest = remaining_amounts(here.ledger.statement("digits"))[0] - 0.001
    charge_outside(here.ledger, "digits", replace(here.plan.budget, epsilon=rest, delta=1e-6), "by hand")
    with pytest.raises(BudgetRefused) as refusal:
        here.begin(Retry.AGAIN)
    assert "neither their noise nor their rule can be another one" in str(refusal.value)
    assert "hydra.sweeper.retry=none goes on without them" in str(refusal.value)
    assert "budget raise dataset=digits" in str(refusal.value)
    assert here.begin(Retry.NONE).due == ()


@pytest.mark.parametrize(
    ("words", "waiting"),
    [((), 2), (("search=random", "search.trials=4"), 2), (("plan.spare_attempts=1",), 1), (("final=true",), 2)],
    ids=["points", "proposed", "spares", "final"],
)
def test_what_is_paid_for_goes_on_and_the_rest_waits_for_a_word(
    place: Places, words: Sequence[str], waiting: int
) -> None:
    here = place((*GRID, *words))
    work = here.begin()
    first = work.due or work.more(4)
    proposing.run(here, work, first[:2])
    proposing.run(here, work, first[2:4], fate=None)
    work = here.begin(Retry.PAID)
    assert len(work.due) == len(first[4:]) + 2 - waiting
    proposing.run(here, work, work.due)
    assert not work.more(1), "no final run before the user has spoken"
    assert len(here.ledger.statement("digits").charges) == 1
    lost = "1 run that was" if waiting == 1 else "2 runs that were"
    told = work.repetition("COMMAND")
    assert f"Another attempt at {lost} killed or lost is not paid for: it charges epsilon " in told
    assert told.endswith("To accept the charge: COMMAND")
    again = here.begin(Retry.AGAIN)
    assert len(again.due) == waiting, "and none that finished"
    assert len(here.ledger.statement("digits").charges) == 2
    assert "without another charge" in again.repetition("COMMAND")


@pytest.mark.parametrize(
    ("words", "killed", "line"),
    [
        ((), 0, "to pass on: dpsweep release "),
        ((), 1, "to pass on without 1 killed run, which has no score: dpsweep release "),
        ((), 2, "to pass on without 2 killed runs, which have no score: dpsweep release "),
        ((), 4, "to pass on: nothing, since no run that may be handed over has finished"),
        (("final=true",), 1, "to pass on: nothing yet, since the final run waits until the killed runs are repeated "),
    ],
    ids=["none", "one", "two", "all", "before the final run"],
)
def test_what_may_be_passed_on_is_told_without_the_killed_runs(
    place: Places, words: Sequence[str], killed: int, line: str
) -> None:
    here = place((*GRID, *words))
    work = here.begin()
    proposing.run(here, work, work.due[killed:])
    proposing.run(here, work, work.due[:killed], fate=None)
    states = here.begin(Retry.PAID).log.states_of_runs()
    assert len(states.killed) == killed
    assert release_line(here.search, here.ledger, states).startswith(line)


def test_a_release_before_a_paid_repetition_is_told_to_fix_the_winner(place: Places) -> None:
    here = place((*GRID, "plan.spare_attempts=1"))
    work = here.begin()
    proposing.run(here, work, work.due[:1], fate=None)
    assert work.repetition("COMMAND").endswith("without another charge; a release before that fixes the winner.")


def test_data_declared_public_need_no_word(place: Places) -> None:
    public = ("dataset=digits", "dataset.public=true", "trainer=sgd", "trainer.lr=1,2", "score=training", "steps=3")
    here = place(public)
    work = here.begin()
    proposing.run(here, work, work.due, fate=None)
    assert "repeats 2 runs that were killed or lost without another charge" in work.repetition("COMMAND")
    assert len(here.begin(Retry.PAID).due) == 2
