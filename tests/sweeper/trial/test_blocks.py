"""Blocks: which points may be trained together, and that every division of them trains each point once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent, gaussian
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Block, Trial
from dpsweep.sweeper.trial.blocks import (
    MOST,
    group_points_into_blocks,
    jobs_with_due_points,
    most_stacked_points,
    points_in_part_of_block,
)

Compose = Callable[[Sequence[str]], PricedPlan]

LINE = ("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "steps=3", "privacy.noise_multiplier=3")


def points(count: int, model: str = "dpsweep.trainers.models.fully_connected.logistic") -> tuple[Trial, ...]:
    event = PlanEvent(training=gaussian(noise_multiplier=1.0))
    config = {
        "dataset": {"_target_": "dpsweep.trainers.data.sets.images.EmbeddedImages"},
        "model": {"_target_": model},
        "engine": {"_target_": "dpsweep.trainers.engines.opacus.Opacus"},
        "loss": {"_target_": "dpsweep.trainers.declarations.losses.CrossEntropy"},
    }
    trainers = [
        {"_target_": "dpsweep.trainers.methods.named_methods.DpSgd", "lr": float(place)} for place in range(count)
    ]
    privacy = {"noise_multiplier": 1.0}
    return tuple(
        Trial(method="dpsgd", axes={}, config={**config, "trainer": trainer, "privacy": privacy}, event=event)
        for trainer in trainers
    )


def test_numbers_of_a_methods_parts_are_free_within_a_block() -> None:
    first, second, other = points(3)
    clip, normalize = {"kind": "clip", "clip_norm": 1.0}, {"kind": "normalize", "regularizer": 1.0}
    trials = [
        replace(trial, config={**trial.config, "trainer": {"kind": "method", "lr": 1.0, "transform": transform}})
        for trial, transform in ((first, clip), (second, clip | {"clip_norm": 2.0}), (other, normalize))
    ]
    assert [len(block.trials) for block in group_points_into_blocks(trials, shared=False)] == [2, 1]


@settings(deadline=None, max_examples=200)
@given(count=st.integers(1, 40), parts=st.integers(1, 50))
def test_the_parts_of_a_block_are_all_of_it_once_and_of_equal_size(count, parts) -> None:
    block = Block(trials=points(count))
    found = [points_in_part_of_block(block, part, parts) for part in range(parts)]
    assert [trial for part in found for trial in part] == list(block.trials)
    assert max(map(len, found)) - min(map(len, found)) <= 1


@settings(deadline=None, max_examples=200)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    workers=st.integers(1, 5),
    together=st.none() | st.integers(1, 20),
    shared=st.booleans(),
    skip=st.integers(0, 7),
)
def test_every_point_that_is_due_is_in_one_job(sizes, workers, together, shared, skip) -> None:
    trials, blocks = points(sum(sizes)), []
    for number, size in enumerate(sizes):
        first = sum(sizes[:number])
        blocks.append(Block(trials=trials[first : first + size], shared=shared))
    due = [trial for place, trial in enumerate(trials) if skip == 0 or place % skip]
    jobs = [*jobs_with_due_points(blocks, due, workers=workers, together=together)]
    assert [trial.id for job in jobs for trial in job.due] == [trial.id for trial in due]
    by_id = {block.id: block for block in blocks}
    for job in jobs:
        part = points_in_part_of_block(by_id[job.block], job.part, job.parts)
        assert {trial.id for trial in job.due} <= {trial.id for trial in part}
        if shared:
            assert job.parts == 1
        elif together is not None:
            assert len(job.due) <= together
        else:
            assert len(job.due) == 1, "these are not stacked"


def test_points_that_differ_in_numbers_alone_are_one_block(compose_priced: Compose) -> None:
    plan = compose_priced([*LINE, "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=0.1,1", "repeats=2"]).plan
    assert [len(block.trials) for block in plan.blocks] == [8]
    for axis, blocks in (("steps=3,4", 2), ("trainer=dpsgd,dpadam", 2), ("model=logistic,one_hidden", 2)):
        line = [*LINE, "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1", axis]
        assert len(compose_priced(line).plan.blocks) == blocks
    noises = [*LINE[:-1], "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "privacy.noise_multiplier=3,4"]
    assert len(compose_priced(noises).plan.blocks) == 1


def test_workers_share_a_block_whose_models_are_stacked(compose_priced: Compose) -> None:
    plan = compose_priced([*LINE, "trainer=dpsgd", "trainer.lr=1,2,3,4,5", "trainer.clip_norm=1"]).plan
    assert most_stacked_points(plan.trials[0].config)
    for workers, sizes in ((1, [5]), (2, [2, 3]), (9, [1] * 5)):
        jobs = [*jobs_with_due_points(plan.blocks, plan.trials, workers=workers, together=None)]
        assert [len(job.due) for job in jobs] == sizes
    assert max(len(job.due) for job in jobs_with_due_points(plan.blocks, plan.trials, workers=1, together=2)) == 2
    for least, sizes in ((2, [1, 2, 2]), (4, [2, 3]), (9, [5])):
        jobs = [*jobs_with_due_points(plan.blocks, plan.trials, workers=9, together=None, least=least)]
        assert [len(job.due) for job in jobs] == sizes


def test_a_job_has_no_more_points_than_it_can_hold_open() -> None:
    block = Block(trials=points(MOST + 1))
    assert len([*jobs_with_due_points([block], block.trials, workers=1, together=MOST)]) == 2


def test_models_that_are_large_are_stacked_in_smaller_numbers(
    compose_priced: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = [*LINE, "model=one_hidden", "model.width=7", "trainer=dpsgd", "trainer.lr=1,2,3,4,5", "trainer.clip_norm=1"]
    plan = compose_priced(line).plan
    parameters = 64 * 7 + 7 + 7 * 10 + 10
    monkeypatch.setattr("dpsweep.sweeper.trial.blocks.FLOATS", 2 * parameters + 1)
    assert most_stacked_points(plan.trials[0].config) == 2
    assert [len(job.due) for job in jobs_with_due_points(plan.blocks, plan.trials, workers=1, together=None)] == [
        1,
        2,
        2,
    ]


@pytest.mark.parametrize("choice", ["engine=opacus", "model=cnn"])
def test_what_is_not_stacked_is_a_job_for_each_point(compose_priced: Compose, choice: str) -> None:
    line = [*LINE, "dataset=mnist", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1", choice]
    plan = compose_priced(line).plan
    assert not most_stacked_points(plan.trials[0].config)
    assert [len(job.due) for job in jobs_with_due_points(plan.blocks, plan.trials, workers=1, together=None)] == [1, 1]
    (both,) = jobs_with_due_points(plan.blocks, plan.trials, workers=9, together=None, least=2)
    assert len(both.due) == 2, "they are short, and take turns"
    assert len([*jobs_with_due_points(plan.blocks, plan.trials, workers=9, together=1, least=2)]) == 2


SHARED = ("subsample=shared", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1")


def test_shared_subsamples_are_another_plan_and_price(compose_priced: Compose) -> None:
    shared = compose_priced([*LINE, *SHARED])
    alone = compose_priced([*LINE, *SHARED[1:]])
    assert shared.plan.has_shared_subsamples
    assert not alone.plan.has_shared_subsamples
    assert shared.plan.id != alone.plan.id
    assert {trial.id for trial in shared.plan.trials}.isdisjoint(trial.id for trial in alone.plan.trials)
    assert shared.quote.epsilon > alone.quote.epsilon
    assert type(shared.plan).from_json(shared.plan.to_json()) == shared.plan


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["tuning=private_selection"], "Expected subsample=shared to be independent under "),
        (["tuning=random_stopping"], "Expected subsample=shared to be independent under "),
        (["subsample=mine"], "Expected subsample=mine to be independent or shared"),
        (["steps=3,4"], "these differ in steps"),
        (["trainer=dpsgd,dpadam"], "these differ in trainer"),
        (["checkpoint.every=2"], "Expected checkpoint.every=2 to be null with subsample=shared"),
        (["plan.spare_attempts=1"], "Expected plan.spare_attempts=1 to be 0 with subsample=shared"),
        (["search=random", "search.trials=2"], "all points run at once"),
        (["sampler=fixed_size", "privacy.adjacency=replace_one"], "Expected shared subsamples to be sampler=poisson's"),
        (["clip_schedule=linear"], "Expected shared subsamples to .* with one noise multiplier throughout a run"),
        (
            ["clip_schedule=linear", "clip_schedule.noise=multiplier", "clip_schedule.least=0.5,0.25"],
            "these differ in clip_schedule",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_where_subsamples_cannot_be_shared_one_sentence_says_why(
    compose_priced: Compose, more: list[str], why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        compose_priced([*LINE, *SHARED, *more])
