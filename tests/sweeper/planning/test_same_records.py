"""All runs of a plan read the records of its account, cut in one way: its price takes that for granted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.searches.interface import search_class_for_plan
from tests.sweeper.search_programs import Compose

LINE = ("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpnsgd", "steps=3", "trainer.lr=1,2")
GRID = ("dataset=digits", "trainer=dpnsgd", "steps=3", "trainer.regularizer=1", "sampler.batch_size=100")


@pytest.fixture
def plan(compose_priced: Compose) -> Plan:
    return compose_priced([*LINE, "trainer.regularizer=1"]).plan


def with_second(plan: Plan, part: str, **changed: Any) -> Plan:
    """The plan with other settings of its second run."""
    (block,) = plan.blocks
    first, second = block.trials
    config = {**second.config, part: {**second.config[part], **changed}}
    return replace(plan, blocks=(replace(block, trials=(first, replace(second, config=config))),))


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("dataset", {"records": 1000}),
        ("dataset", {"name": "patients"}),
        ("dataset", {"unit": "patient"}),
        ("score", {"fraction": 0.6}),
        ("privacy", {"adjacency": "replace_one"}),
        ("privacy", {"unit": "patient"}),
    ],
    ids=str,
)
def test_runs_that_would_read_other_records_are_refused(plan: Plan, part: str, changed: dict[str, Any]) -> None:
    search_class_for_plan(plan)
    with pytest.raises(BadInput, match="to read the records of digits by one declaration"):
        search_class_for_plan(with_second(plan, part, **changed))


def test_the_noise_of_a_score_cuts_no_records(plan: Plan) -> None:
    search_class_for_plan(with_second(plan, "score", noise_std=7.0))


@pytest.mark.parametrize(
    "words",
    [
        ["grid.axes={dpnsgd:{trainer.lr:[1,2],score.fraction:[0.1,0.2]}}"],
        ["score.fraction=${trainer.lr}", "trainer.lr=0.1,0.2"],
    ],
    ids=["axis", "reference"],
)
def test_a_grid_gives_no_run_other_records(compose_priced: Compose, words: list[str]) -> None:
    with pytest.raises(BadInput, match="to read the records of digits by one declaration"):
        search_class_for_plan(compose_priced([*GRID, *words]).plan)
