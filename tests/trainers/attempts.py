"""Attempts at a small trial, in sessions that may die, and an engine that counts its looks at the records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dpsweep.accounting.events.build import PlanEvent, repeat
from dpsweep.accounting.ledger.permit import Receipt, StepLog
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.taken_steps import can_resume, steps_spent
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import StepDecay
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.methods.named_methods import DpAdam
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Streams, reproducible_streams
from dpsweep.trainers.training.checkpoint import TrialJournal, read_checkpoint
from dpsweep.trainers.training.run import Outcome, Run
from tests.places import both
from tests.trainers.single_run import train

SHAPE, CLASSES, RECORDS = (6,), 3, 20
RUN = Run(
    trainer=DpAdam(lr=0.05, clip_norm=0.3, beta1=0.8, beta2=0.9),
    sampler=Poisson(batch_size=5),
    schedule=StepDecay(milestones=[0.5], factors=[0.1]),
    noise_multiplier=0.7,
    steps=6,
    train_records=RECORDS,
)
EVERY, PRICED = 2, 8


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Spy:
    """The engine, and how many sums over the records it was asked for."""

    stacks: ClassVar[bool] = False
    taken: int = 0
    instant: Callable[[], None] = lambda: None

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        self.taken += 1
        self.instant()
        return Opacus().bounded_gradient_sum_and_norms(model, batch, task)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt at a trial in a folder of its own, for which `priced` steps were charged."""

    place: Path
    run: Run = RUN
    priced: int = PRICED
    every: int | None = EVERY
    records: int = RECORDS

    @property
    def trial(self) -> Trial:
        event = PlanEvent(training=repeat(self.run.event_of_one_period, self.priced))
        return Trial(method="dpadam", axes={}, config={}, event=event)

    def receipt(self, resume: int = 0) -> Receipt:
        paper = Receipt(account="a", plan="p", trial=self.trial.id, attempt=1, charge="c", entries=1, head="h")
        return replace(paper, resume=resume)

    def session(
        self,
        resume: int = 0,
        engine: Engine | None = None,
        streams: Streams | None = None,
        model: nn.Module | None = None,
        **options: Any,
    ) -> tuple[Tensor, Outcome]:
        receipt = self.receipt(resume)
        receipt.write(self.place)
        steps = (
            StepLog.resume(both(self.place), self.trial, receipt)
            if resume
            else StepLog(place=both(self.place), attempt=1, priced=self.trial.priced_steps)
        )
        model = model or fresh_model(resume)
        outcome = train(
            self.run,
            model,
            engine or Opacus(),
            some_records(self.records),
            streams or reproducible_streams(1, f"session {resume}"),
            device="cpu",
            journal=TrialJournal(receipt=receipt, run=self.run, every=self.every, steps=steps),
            since=read_checkpoint(steps, self.run, "cpu") if resume else None,
            **options,
        )
        return flat(model), outcome

    @property
    def spent(self) -> int:
        return steps_spent(both(self.place), self.trial, 1)

    @property
    def resumable(self) -> bool:
        return can_resume(both(self.place), self.trial, 1)

    @property
    def checkpoint(self) -> Path:
        return self.place / "checkpoint-1"


def some_records(count: int) -> Records:
    generator = torch.Generator().manual_seed(count)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return Records(features=torch.randn(count, *SHAPE, generator=generator), labels=labels)


def fresh_model(seed: int) -> nn.Module:
    return build_model_with_seeded_weights(lambda: logistic(SHAPE, CLASSES), seed)


def flat(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()
