"""Stretches: a run's journal hears of each beforehand, and a run that was stopped goes on as if it never had been."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import nn

from dpsweep.accounting.events.build import are_same_events
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.models.fully_connected import one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.run import BatchSizes, Progress
from tests.trainers.loops import CLASSES, NOMINAL, RUN, SHAPE, each_trainer, some_records, trained
from tests.trainers.single_run import train


@dataclass
class Notes:
    """A journal in memory: stretches of `every` steps, and copies of what was kept."""

    every: int
    stretches: list[int] = field(default_factory=list)
    kept: list[Progress] = field(default_factory=list)

    def mark_next_interval(self, missing: int) -> int:
        self.stretches.append(min(self.every, missing))
        return self.stretches[-1]

    def save_progress(self, progress: Progress) -> None:
        copies = {"weights": progress.weights.clone(), "ran": progress.ran.copy()}
        self.kept.append(replace(progress, **copies))


def test_a_run_goes_in_stretches_and_is_kept_after_each_but_the_last() -> None:
    notes = Notes(every=3)
    seen: list[list[int]] = []
    run = replace(RUN, steps=8)
    _, outcome = trained(
        run,
        some_records(80),
        reproducible_streams(1, "one"),
        journal=notes,
        on_step=lambda step: seen.append(list(notes.stretches)),
    )
    assert seen == [[3]] * 3 + [[3, 3]] * 3 + [[3, 3, 2]] * 2, "a stretch is announced before its first step"
    assert [progress.step for progress in notes.kept] == [3, 6]
    assert [progress.ran.total() for progress in notes.kept] == [3, 6]
    assert are_same_events(outcome.event, run.event)
    assert not outcome.stopped


def test_stretches_change_nothing_but_what_is_written_down() -> None:
    whole, _ = trained(RUN, some_records(80), reproducible_streams(1, "trial"))
    parts, _ = trained(RUN, some_records(80), reproducible_streams(1, "trial"), journal=Notes(every=1))
    assert torch.equal(whole, parts)


def test_a_run_that_shall_stop_finishes_its_step_and_is_kept_as_it_is() -> None:
    notes, asked = Notes(every=4), iter([False, True])
    weights, outcome = trained(
        replace(RUN, steps=8),
        some_records(80),
        reproducible_streams(1, "another"),
        journal=notes,
        should_stop=lambda: next(asked),
    )
    assert outcome.stopped
    assert outcome.steps == 2
    assert are_same_events(outcome.event, replace(RUN, steps=2).event)
    assert [progress.step for progress in notes.kept] == [2]
    assert torch.equal(notes.kept[0].weights, weights)
    assert notes.stretches == [4]


def test_a_run_that_is_done_or_diverged_is_not_stopped() -> None:
    for run, asked in ((replace(RUN, steps=1), True), (replace(RUN, trainer=DpSgd(lr=3e38, clip_norm=1e6)), False)):
        notes = Notes(every=100)
        _, outcome = trained(
            run,
            some_records(80),
            reproducible_streams(1, "a third"),
            journal=notes,
            should_stop=lambda answer=asked: answer,
        )
        assert outcome.diverged == (run.steps == RUN.steps)
        assert not outcome.stopped
        assert notes.kept == [], "there is nothing to go on with"


class Refusal:
    """A journal that lets no step run."""

    def mark_next_interval(self, missing: int) -> int:
        raise ValueError(f"not one of {missing}")

    def save_progress(self, progress: Progress) -> None:
        raise AssertionError("nothing was reached")


def test_no_unit_is_drawn_before_the_journal_has_heard_of_it() -> None:
    streams, untouched = reproducible_streams(1, "trial"), reproducible_streams(1, "trial")
    with pytest.raises(ValueError, match="not one of 4"):
        trained(RUN, some_records(80), streams, journal=Refusal())
    assert streams.subsampling.random() == untouched.subsampling.random()


@each_trainer
def test_a_run_goes_on_as_if_it_had_never_stopped(trainer) -> None:
    """Without noise, and with everybody in every batch, two sessions end where one does."""
    run = replace(RUN, trainer=trainer, sampler=Poisson(batch_size=NOMINAL), noise_multiplier=0.0, steps=8)
    whole, _ = trained(run, some_records(80), reproducible_streams(1, "a fourth"))
    for steps in (1, 3, 7):
        notes = Notes(every=steps)
        trained(run, some_records(80), reproducible_streams(1, "a fifth"), journal=notes)
        rest, outcome = trained(run, some_records(80), reproducible_streams(1, "a sixth"), since=notes.kept[0])
        assert torch.equal(rest, whole)
        kept = notes.kept[0]
        assert kept.step == kept.ran.total() == kept.drawn.steps == steps, "whoever goes on with it leaves it alone"
        assert are_same_events(outcome.event, run.event)
        assert outcome.steps == 8
        assert outcome.batch_sizes == BatchSizes(smallest=80, mean=80.0, largest=80)


def test_what_training_leaves_alone_comes_from_the_first_session() -> None:
    """Half of the model is frozen at initial weights that the second session draws differently."""

    def half(seed: int) -> nn.Module:
        model = build_model_with_seeded_weights(lambda: one_hidden(SHAPE, CLASSES, width=5), seed)
        for parameter in list(model.parameters())[:2]:
            parameter.requires_grad_(False)
        return model

    first, second, notes = half(1), half(2), Notes(every=2)
    train(RUN, first, Opacus(), some_records(80), reproducible_streams(1, "a seventh"), device="cpu", journal=notes)
    assert not torch.equal(next(first.parameters()), next(second.parameters()))
    train(
        RUN, second, Opacus(), some_records(80), reproducible_streams(1, "an eighth"), device="cpu", since=notes.kept[0]
    )
    for mine, theirs in zip(list(first.parameters())[:2], second.parameters(), strict=False):
        assert torch.equal(mine, theirs)
