"""`sampler=auto`: prices choose the sampler, and the plan is the one that its name would have made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan

Compose = Callable[[Sequence[str]], PricedPlan]
LINE = ["dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1", "steps=60"]
QUICK = ["accountant=rdp", "accountant.witnesses=[]"]
LARGE_DELTA = ["privacy.delta=.45", "privacy.accept_delta=.45", "budget.delta=.5"]
LITTLE_NOISE = ["sampler.batch_size=360", "steps=4", "privacy.noise_multiplier=.4", *LARGE_DELTA]
"""An epoch of four steps at noise .4, where a small epsilon has a large delta."""


def sampler_of(plan: Plan) -> str:
    (name,) = {str(run.config["sampler"]["kind"]) for run in plan.all_runs}
    return name


@pytest.mark.parametrize(
    ("settings", "chosen", "others"),
    [
        ([], "random_allocation", ["poisson"]),
        (["privacy.noise_multiplier=3"], "random_allocation", ["poisson"]),
        (LITTLE_NOISE, "poisson", ["random_allocation"]),
        (["steps=61"], "poisson", []),
        (["privacy.adjacency=replace_one"], "poisson", ["random_allocation", "fixed_size"]),
    ],
)
def test_the_cheapest_sampler_makes_the_plan_that_its_name_makes(
    compose_priced: Compose, settings: list[str], chosen: str, others: list[str]
) -> None:
    auto = compose_priced([*LINE, *settings, "sampler=auto"])
    named = {name: compose_priced([*LINE, *settings, f"sampler={name}"]) for name in (chosen, *others)}
    own = named[chosen].plan
    assert sampler_of(auto.plan) == chosen
    assert (auto.plan.id, auto.plan.event, auto.quote) == (own.id, own.event, named[chosen].quote)
    (note,) = auto.plan.notes
    assert replace(auto.plan, notes=()).to_json() == own.to_json()
    assert note.startswith(f"sampler=auto chose {chosen}: ")
    assert [part.split()[0] for part in note.split("; ")[1:]] == others
    if own.target_epsilon is None:
        assert all(named[name].quote.epsilon > auto.quote.epsilon for name in others)
    else:
        noises = {name: one.plan.trials[0].config["privacy"]["noise_multiplier"] for name, one in named.items()}
        assert all(noises[name] > noises[chosen] for name in others)
        assert all(str(noise) in note for noise in noises.values())


def test_final_runs_and_secret_parts_have_the_sampler_too(compose_priced: Compose) -> None:
    """Where a part is secret, only Poisson samples are allowed."""
    line = [*LINE, "trainer.lr=1", "privacy.noise_multiplier=4", "sampler=auto"]
    assert sampler_of(compose_priced([*line, "tuning=disjoint"]).plan) == "random_allocation"
    assert sampler_of(compose_priced([*line, *QUICK, "tuning=subsampled"]).plan) == "poisson"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["sampler=auto", "sampler.batch_size=10000"], "Expected sampler.batch_size=10000 <= records="),
        (["sampler=auto,poisson"], "Expected sampler=auto to be the only one"),
        (
            ["sampler=auto", "solve=steps", "privacy.noise_multiplier=3"],
            "Expected sampler=auto to be a sampler by name",
        ),
        (["sampler=auto", "steps=when_budget_spent"], "Expected sampler=auto to be a sampler by name"),
    ],
)
def test_where_nothing_can_be_compared_one_sentence_says_so(
    compose_priced: Compose, settings: list[str], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        compose_priced([*LINE, *QUICK, *settings])
