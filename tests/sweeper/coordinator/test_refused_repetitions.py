"""Repeated runs that do not fit are refused in words that make sense for them: their plan is fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BudgetRefused
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
    rest = here.ledger.statement("digits").remaining_epsilon_and_delta[0] - 0.001
    here.ledger.record_outside_cost("digits", replace(here.plan.budget, epsilon=rest, delta=1e-6), "by hand")
    with pytest.raises(BudgetRefused) as refusal:
        here.begin(Retry.ALL)
    assert "neither their noise nor their rule can be another one" in str(refusal.value)
    assert "hydra.sweeper.retry=none goes on without them" in str(refusal.value)
    assert "budget raise dataset=digits" in str(refusal.value)
    assert here.begin(Retry.NONE).due == ()
