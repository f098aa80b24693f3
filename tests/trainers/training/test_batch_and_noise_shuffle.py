"""Epochs: every record in one step of each, nobody moved by another, charged and ended as wholes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import (
    PlanEvent,
    are_same_events,
    mechanisms_with_counts,
    number_of_steps,
    repeat,
    shuffled_gaussian,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.permit import Receipt, StepLog
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.taken_steps import steps_spent, took_declared_steps
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Shuffle, privacy_event_counts_of_run
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.checkpoint import TrialJournal, read_checkpoint
from dpsweep.trainers.training.gradient_sums import EngineSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run, Unrecorded
from tests.places import both
from tests.trainers.single_run import train

RECORDS, PERIOD = 20, 4
RUN = Run(
    trainer=DpSgd(lr=0.5, clip_norm=0.3),
    sampler=Shuffle(batch_size=6),
    schedule=Constant(),
    noise_multiplier=0.7,
    steps=3 * PERIOD,
    train_records=RECORDS,
)
RNG = np.random.Generator(np.random.Philox(7))


def epochs(available: int, rows: int) -> np.ndarray:
    """The step [rows, available] that has each record in each of so many epochs drawn side by side."""
    units, sizes = RUN.sampler.draw_batch_indices(rows, available, RECORDS, RNG)
    assert len(sizes) == PERIOD * rows
    found = np.full((rows, available), -1)
    for place, part in enumerate(np.split(units, np.cumsum(sizes)[:-1])):
        assert part.tolist() == sorted(set(part.tolist()))
        assert (found[place % rows, part] == -1).all(), "once an epoch"
        found[place % rows, part] = place // rows
    assert (found >= 0).all(), "and no less"
    return found


@pytest.mark.parametrize("available", [0, 1, 17, 23])
@pytest.mark.parametrize("rows", [1, 3])
def test_every_record_is_in_one_step_of_each_epoch(available: int, rows: int) -> None:
    assert epochs(available, rows).shape == (rows, available)


def test_nobody_is_moved_by_another() -> None:
    """The steps of three records out of 3 or 40: all 64 triples alike, as of independent uniform steps."""
    times = 32_000
    for available in (3, 40):
        found = epochs(available, times)
        counts = np.bincount(found[:, [0, 1, -1]] @ [16, 4, 1], minlength=64)
        assert ((counts - times / 64) ** 2 / (times / 64)).sum() < 63 + 6 * np.sqrt(2 * 63)
        sizes = (found == 0).sum(axis=1)
        assert sizes.var() == pytest.approx(available * 3 / 16, rel=0.1)


@pytest.mark.parametrize(("noise", "epsilon"), [(3.6, 15.10), (2.0, 33.10), (1.2, 69.46)])
def test_a_run_of_a_hundred_epochs_costs_what_a_hundred_gaussians_do(noise: float, epsilon: float) -> None:
    """5000 steps of 1000 of 50000 records, an independent accountant's numbers."""
    sampler = Shuffle(batch_size=1000)
    run = replace(RUN, sampler=sampler, steps=5000, train_records=50_000, noise_multiplier=noise)
    assert are_same_events(run.event, shuffled_gaussian(epochs=100, steps=50, noise_multiplier=noise))
    assert Pld().epsilon(run.event, 1e-5, Adjacency.ADD_OR_REMOVE_ONE) == pytest.approx(epsilon, rel=1e-3)


class Seen(EngineSums):
    """An engine's sums, and the units of each step."""

    def over(self, rows: Sequence[int], transforms: Sequence[Any]) -> Any:
        total = super().over(rows, transforms)

        def spied(weights: torch.Tensor, batch: Batch, shrink: float) -> torch.Tensor:
            assert batch.common == (len(weights) == 1)
            BATCHES.append([part.tolist() for part in np.split(batch.units, np.cumsum(batch.sizes)[:-1])])
            return total(weights, batch, shrink)

        return spied


BATCHES: list[list[list[int]]] = []


@pytest.mark.parametrize("share_streams", [True, False])
def test_the_loop_takes_whole_epochs_and_each_run_its_own(share_streams: bool) -> None:
    """One of the two diverges at its first step, and takes the rest of the epoch along."""
    BATCHES.clear()
    models = [model(0), model(1)]
    runs = [RUN, replace(RUN, trainer=DpSgd(lr=3e38, clip_norm=1e6))]
    sums = Seen(models=models, engine=Opacus(), records=DATA, device="cpu", chunk=None)
    streams = (
        [reproducible_streams(1, "one")] * 2
        if share_streams
        else [reproducible_streams(1, "another"), reproducible_streams(1, "a third")]
    )
    one, other = train_together(runs, models, sums, DATA, streams, device="cpu")
    assert are_same_events(one.event, RUN.event)
    assert (other.diverged, other.steps) == (True, PERIOD)
    assert are_same_events(other.event, replace(RUN, steps=PERIOD).event)
    assert [len(batches) for batches in BATCHES] == [2] * PERIOD + [1] * 2 * PERIOD
    for first in range(0, RUN.steps, PERIOD):
        for run in range(len(BATCHES[first])):
            taken = [unit for batches in BATCHES[first : first + PERIOD] for unit in batches[run]]
            assert sorted(taken) == list(range(len(DATA)))
    assert BATCHES[0][0] != BATCHES[0][1]
    assert BATCHES[0][0] != BATCHES[PERIOD][0]


def test_a_run_that_shall_stop_ends_its_epoch() -> None:
    asked: list[int] = []
    outcome = train(
        RUN,
        model(0),
        Opacus(),
        DATA,
        reproducible_streams(1, "a fourth"),
        device="cpu",
        on_step=asked.append,
        should_stop=lambda: asked[-1] > 1,
    )
    assert (outcome.stopped, outcome.steps) == (True, PERIOD)
    assert are_same_events(outcome.event, replace(RUN, steps=PERIOD).event)


class PartWay(Unrecorded):
    """A journal that would end a stretch in the middle of an epoch."""

    def mark_next_interval(self, missing: int) -> int:
        return PERIOD + 1


def test_no_epoch_begins_that_is_not_to_be_ended() -> None:
    with pytest.raises(ValueError, match="Expected interval=5 to be whole epochs of 4 steps"):
        train(RUN, model(0), Opacus(), DATA, reproducible_streams(1, "a fifth"), device="cpu", journal=PartWay())


class Killed(BaseException):
    """The process is gone."""


def test_an_epoch_that_was_begun_is_charged_whole() -> None:
    for steps, whole in ((1, 1), (PERIOD, 1), (PERIOD + 1, 2)):
        ran = privacy_event_counts_of_run(
            RUN.sampler, {1.0: steps}, records=RECORDS, noise_multiplier=0.7, public=False
        )
        assert list(ran.values()) == [whole]


def test_what_a_killed_run_had_begun_counts_as_an_epoch(tmp_path: Path) -> None:
    """A checkpoint each epoch, and one epoch priced beyond the three: killed in the second one, it has four."""
    event = PlanEvent(training=repeat(RUN.event_of_one_period, 4))
    trial = Trial(method="dpsgd", axes={}, config={}, event=event)
    paper = Receipt(account="a", plan="p", trial=trial.id, attempt=1, charge="c", entries=1, head="h")

    def dies(step: int) -> None:
        if step == PERIOD + 2:
            raise Killed

    def session(steps: StepLog, receipt: Receipt, **options: Any) -> Any:
        receipt.write(tmp_path)
        journal = TrialJournal(receipt=receipt, run=RUN, every=PERIOD, steps=steps)
        return train(
            RUN, model(0), Opacus(), DATA, reproducible_streams(1, "a sixth"), device="cpu", journal=journal, **options
        )

    with pytest.raises(Killed):
        session(StepLog(place=both(tmp_path), attempt=1, priced=trial.priced_steps), paper, on_step=dies)
    assert steps_spent(both(tmp_path), trial, 1) == 2 * PERIOD
    steps = StepLog.resume(both(tmp_path), trial, replace(paper, resume=1))
    outcome = session(steps, replace(paper, resume=1), since=read_checkpoint(steps, RUN, "cpu"))
    assert are_same_events(outcome.event, event.training)
    assert steps_spent(both(tmp_path), trial, 1) == number_of_steps(outcome.event) == 4 * PERIOD
    assert took_declared_steps(outcome.event, event.training, least=RUN.steps)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["steps=61"], "Expected steps=61 to be whole epochs of 2 steps."),
        (["checkpoint.every=5"], "Expected checkpoint.every=5 to be whole epochs of 2 steps."),
        (
            ["dataset=mnist", "steps=240", "score=public", "score.every=7"],
            "Expected score.every=7 to be whole epochs of 60 steps.",
        ),
        (["subsample=shared"], "Expected shared subsamples to be sampler=poisson's"),
        (["sampler.batch_size=2000"], "Expected sampler.batch_size=2000 <= records="),
    ],
)
def test_what_has_no_price_is_refused(
    compose_priced: Callable[[Sequence[str]], PricedPlan], overrides: list[str], sentence: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        compose_priced([*LINE, *overrides])
    assert sentence in str(refusal.value)


def test_a_plan_charges_epochs_and_those_that_may_be_lost(
    compose_priced: Callable[[Sequence[str]], PricedPlan],
) -> None:
    plan = compose_priced([*LINE, "checkpoint.every=6", "checkpoint.resumes=2"]).plan
    ((leaf, count),) = mechanisms_with_counts(plan.trials[0].event.training)
    assert (leaf.steps, count, plan.trials[0].config["steps"]) == (2, (60 + 2 * 6) // 2, 60)


LINE = ("dataset=digits", "trainer=dpsgd", "sampler=shuffle", "accountant=rdp", "accountant.witnesses=[]")


def model(seed: int) -> nn.Module:
    return build_model_with_seeded_weights(lambda: logistic((6,), 3), seed)


def some_records() -> Records:
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(3, (18,), generator=generator)
    return Records(features=torch.randn(18, 6, generator=generator), labels=labels)


DATA = some_records()
