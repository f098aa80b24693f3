"""Checkpoints: no instant at which a process may die makes a run cheaper, and no secret of it lies on the disk."""

from __future__ import annotations

import logging
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accounting.errors import ContractBroken
from accounting.events import PlanEvent, repeat, same
from accounting.plan import Trial
from accounting.receipt import Receipt
from accounting.steps import Steps, can_resume, go_on, steps_spent
from trainers.adadp import Adadp
from trainers.checkpoint import TrialJournal, read_checkpoint
from trainers.data.records import Records
from trainers.dpadam import DpAdam
from trainers.dpadamwosm import DpAdamWosm
from trainers.dpmomentum import DpMomentum
from trainers.dpnadam import DpNadam
from trainers.dpnsgd import DpNsgd
from trainers.dpsgd import DpSgd
from trainers.engines.engine import Engine, Minibatch, Task
from trainers.engines.opacus import Opacus
from trainers.entropy import Streams, reproducible_streams, secret_streams
from trainers.loop import train
from trainers.models.initialise import build
from trainers.models.logistic import logistic
from trainers.projected_dpsgd import ProjectedDpSgd
from trainers.run import Outcome, Run
from trainers.sampling import Poisson
from trainers.schedules import Constant, StepDecay
from trainers.transforms import GradientTransform

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

    def weighted_sum(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        self.taken += 1
        self.instant()
        return Opacus().weighted_sum(model, batch, task)


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
        event = PlanEvent(training=repeat(self.run.step_event, self.priced))
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
        steps = go_on(self.place, self.trial, receipt) if resume else Steps.begin(self.place, self.trial, 1)
        model = model or fresh_model(resume)
        outcome = train(
            self.run,
            model,
            engine or Opacus(),
            some_records(self.records),
            streams or secret_streams(),
            device="cpu",
            journal=TrialJournal(receipt=receipt, run=self.run, every=self.every, steps=steps),
            since=read_checkpoint(steps, self.run, "cpu") if resume else None,
            **options,
        )
        return flat(model), outcome

    @property
    def spent(self) -> int:
        return steps_spent(self.place, self.trial, 1)

    @property
    def resumable(self) -> bool:
        return can_resume(self.place, self.trial, 1)

    @property
    def tensors(self) -> Path:
        (path,) = self.place.glob("weights-*")
        return path


def some_records(count: int) -> Records:
    generator = torch.Generator().manual_seed(count)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return Records(features=torch.randn(count, *SHAPE, generator=generator), labels=labels)


def fresh_model(seed: int) -> nn.Module:
    return build(lambda: logistic(SHAPE, CLASSES), seed)


def flat(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


@dataclass
class Death:
    """Ends the process at its n-th instant: within and after every step, write, flush, rename and removal."""

    at: int
    instants: int = 0

    def instant(self, *_: object) -> None:
        self.instants += 1
        if self.instants == self.at:
            raise Killed

    @contextmanager
    def threatens(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for owner, name in ((os, "fsync"), (os, "open"), (os, "write"), (Path, "replace"), (Path, "unlink")):
                patch.setattr(owner, name, self._around(getattr(owner, name)))
            yield

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def threatened(*arguments: Any, **options: Any) -> Any:
            answer = call(*arguments, **options)
            self.instant()
            return answer

        return threatened


def died(attempt: Attempt, death: Death, spy: Spy, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether death came before the first session's end."""
    spy.instant = death.instant
    try:
        with death.threatens(monkeypatch):
            attempt.session(0, spy, on_step=death.instant)
    except Killed:
        return True
    finally:
        spy.instant = lambda: None
    return False


def test_whenever_a_process_dies_what_it_spent_is_known_and_within_the_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every instant of the first session; a second one ends the run wherever there is a checkpoint."""
    resumed = refused = 0
    at = 1
    while True:
        attempt, spy = Attempt(place=tmp_path / str(at)), Spy()
        attempt.place.mkdir()
        if not died(attempt, Death(at), spy, monkeypatch):
            break
        assert spy.taken <= attempt.spent <= PRICED
        if attempt.resumable:
            resumed += 1
            _, outcome = attempt.session(1, spy)
            assert not outcome.stopped
            assert outcome.steps == RUN.steps
            assert spy.taken <= attempt.spent <= PRICED
            assert same(outcome.event, repeat(RUN.step_event, attempt.spent)), "the lost steps are told"
        else:
            refused += 1
            assert not resumed, "there is a whole checkpoint at every instant after the first"
            with pytest.raises(ContractBroken):
                attempt.session(1, spy)
        at += 1
    assert spy.taken == attempt.spent == RUN.steps
    assert resumed > 20
    assert refused > 5, "there is no checkpoint in the first stretch"


@pytest.mark.parametrize("lost", [2, 3, 4])
def test_no_more_resumes_than_were_priced(lost: int, tmp_path: Path) -> None:
    """The first session dies in its second stretch, and every other one in its first."""
    attempt, spy = Attempt(place=tmp_path, priced=RUN.steps + lost), Spy()

    def dies(step: int) -> None:
        if step == EVERY + 1:
            raise Killed

    resumes = -1
    while resumes < 0 or attempt.resumable:
        resumes += 1
        with pytest.raises(Killed):
            attempt.session(resumes, spy, on_step=dies)
        assert spy.taken <= attempt.spent <= attempt.priced
    assert resumes == lost // EVERY
    assert spy.taken == EVERY + resumes + 1
    with pytest.raises(ContractBroken, match="does not go on"):
        attempt.session(resumes + 1, spy)
    assert spy.taken == EVERY + resumes + 1


def test_a_session_that_was_stopped_costs_nothing_more(tmp_path: Path) -> None:
    """Stopped after every single step, on a price without any resume."""
    attempt, spy = Attempt(place=tmp_path, priced=RUN.steps, every=None), Spy()
    for resume in range(RUN.steps - 1):
        _, outcome = attempt.session(resume, spy, should_stop=lambda: True)
        assert outcome.stopped
        assert outcome.steps == attempt.spent == spy.taken == resume + 1
        assert attempt.resumable
    _, outcome = attempt.session(RUN.steps - 1, spy, should_stop=lambda: True)
    assert not outcome.stopped
    assert same(outcome.event, RUN.event)
    assert attempt.spent == spy.taken == RUN.steps


@pytest.mark.parametrize(
    "trainer",
    [
        RUN.trainer,
        DpSgd(lr=0.5, clip_norm=0.3),
        DpNsgd(lr=0.5, regularizer=0.2),
        DpMomentum(lr=0.5, clip_norm=0.3, momentum=0.8),
        DpNadam(lr=0.05, regularizer=0.2),
        DpAdamWosm(lr=0.05, clip_norm=0.3, eps=0.01),
        ProjectedDpSgd(lr=0.5, clip_norm=0.3, radius=0.5),
        Adadp(lr=0.5, clip_norm=0.3, tolerance=0.01),
    ],
    ids=lambda one: one.label,
)
@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_run_goes_on_from_the_disk_as_if_it_had_never_stopped(
    trainer: Any, ema: float | None, tmp_path: Path
) -> None:
    """Without noise and with everybody in every batch; its model starts elsewhere, which leaves no trace."""
    schedule = Constant() if isinstance(trainer, Adadp) else RUN.schedule
    sampler = Poisson(batch_size=RECORDS)
    run = replace(RUN, trainer=trainer, schedule=schedule, sampler=sampler, noise_multiplier=0.0, ema=ema)
    places = tmp_path / "whole", tmp_path / "parts"
    for place in places:
        place.mkdir()
    whole, parts = (Attempt(place=place, run=run) for place in places)
    expected, _ = whole.session()
    stops = iter([False, False, True])
    parts.session(should_stop=lambda: next(stops))
    weights, outcome = parts.session(1)
    assert torch.equal(weights, expected)
    assert same(outcome.event, run.event)
    assert outcome.batch_sizes.mean == RECORDS


def test_the_noise_of_two_sessions_is_drawn_afresh(tmp_path: Path) -> None:
    """Two sessions that go on from one checkpoint on no records at all: what moves them is noise alone."""
    run = replace(RUN, trainer=DpSgd(lr=1.0, clip_norm=1.0), schedule=Constant(), steps=400)
    attempt = Attempt(place=tmp_path, run=run, records=0, priced=10**6, every=200)
    noises = []
    for resume in range(3):
        model = fresh_model(resume)
        path: list[Tensor] = []

        def dies_at_last(step: int, model: nn.Module = model, path: list[Tensor] = path) -> None:
            path.append(flat(model))
            if step == 399:
                raise Killed

        with pytest.raises(Killed):
            attempt.session(resume, model=model, on_step=dies_at_last)
        noises.append(np.diff(torch.stack(path).double().numpy(), axis=0)[-198:] / (0.7 / 5))
    limit = 6 / math.sqrt(noises[0].size)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs((noises[one] * noises[other]).mean()) < limit
    assert noises[2].std() == pytest.approx(1, abs=limit)
    assert len(np.unique(np.concatenate(noises).round(3), axis=0)) == 3 * 198


def test_a_checkpoint_holds_nothing_of_the_streams(tmp_path: Path) -> None:
    streams = reproducible_streams(5, "trial")
    attempt = Attempt(place=tmp_path)
    attempt.session(streams=streams)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name != "receipt.json")
    assert attempt.tensors.read_bytes() in content
    for stream in (streams.subsampling, streams.noise, streams.score):
        state = stream.bit_generator.state["state"]
        words = [int(word) for name in ("key", "counter") for word in state[name]]
        secrets = [word for word in words if word > 2**32]
        assert len(secrets) == 2, "the key; the counter of a stream with a seed begins at 0"
        for word in secrets:
            for shown in (word.to_bytes(8, "little"), word.to_bytes(8, "big"), str(word).encode(), b"%x" % word):
                assert shown not in content


def test_a_checkpoint_is_tensors_numbers_and_text(tmp_path: Path) -> None:
    attempt = Attempt(place=tmp_path)
    attempt.session()
    kept = torch.load(attempt.tensors, weights_only=True)
    assert set(kept) == {"weights", "average", "fixed", "state", "ran", "drawn", "seconds", "curve"}
    assert set(kept["state"]) == {"first", "second", "steps"}
    assert kept["state"]["steps"] == 4


def test_a_checkpoint_is_for_its_owner_alone_and_there_is_one(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        Attempt(place=tmp_path).session()
    finally:
        os.umask(mask)
    (tensors,) = tmp_path.glob("weights-*")
    assert stat.S_IMODE(tensors.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {
        "receipt.json",
        "steps-1",
        "checkpoint-1.json",
        tensors.name,
    }


def test_a_checkpoint_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    attempt = Attempt(place=tmp_path)
    attempt.session()
    whole = attempt.tensors.read_bytes()
    steps = Steps.read(tmp_path, attempt.trial, 1)
    for content in (whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], b""):
        attempt.tensors.write_bytes(content)
        with pytest.raises(ContractBroken, match="SHA-256 is another"):
            read_checkpoint(steps, RUN, "cpu")
    with pytest.raises(ContractBroken, match="has no checkpoint"):
        read_checkpoint(replace(steps, header=None), RUN, "cpu")


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second checkpoint finds no space, so the stretch before it is lost with the process that dies after it."""
    attempt, spy, replace_file = Attempt(place=tmp_path, priced=12), Spy(), Path.replace
    monkeypatch.setattr(logging.getLogger("dpsweep"), "propagate", True)

    def full(path: Path, target: Path) -> Path:
        if spy.taken >= 4:
            raise OSError(28, "No space left on device")
        return replace_file(path, target)

    def dies(step: int) -> None:
        if step == 5:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(Killed):
            attempt.session(0, spy, on_step=dies)
    assert "no checkpoint after step 4: [Errno 28] No space left on device" in caplog.text
    assert attempt.spent == 6
    steps = go_on(tmp_path, attempt.trial, attempt.receipt(1))
    assert steps.header is not None
    assert steps.header.step == 2
    _, outcome = attempt.session(1, spy)
    assert attempt.spent == 10
    assert spy.taken == 9
    assert same(outcome.event, repeat(RUN.step_event, 10))


def test_a_mark_that_finds_no_space_lets_nothing_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, spy, write = Attempt(place=tmp_path), Spy(), os.write

    def full(handle: int, line: bytes) -> int:
        if spy.taken >= 2:
            raise OSError(28, "No space left on device")
        return write(handle, line)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(ContractBroken, match="No space left on device"):
            attempt.session(0, spy)
    assert spy.taken == attempt.spent == 2


def test_no_step_runs_beyond_the_price(tmp_path: Path) -> None:
    attempt, spy = Attempt(place=tmp_path, priced=5), Spy()
    with pytest.raises(ContractBroken, match="4 steps taken and 2 to come to be at most the 5 priced"):
        attempt.session(0, spy)
    assert spy.taken == 4


@dataclass(frozen=True, kw_only=True)
class Forgetful:
    """An update whose state is a list, which no checkpoint holds."""

    label = "forgetful"
    lr: float = 0.1

    @property
    def transform(self) -> GradientTransform:
        return DpSgd(lr=1.0, clip_norm=1.0).transform

    @property
    def update(self) -> Forgetful:
        return self

    def start(self, gradient: Tensor) -> list[Tensor]:
        return [gradient]

    def direction(self, state: list[Tensor], gradient: Tensor) -> tuple[list[Tensor], Tensor]:
        return state, gradient


def test_a_state_that_no_checkpoint_holds_is_refused_before_the_first_step(tmp_path: Path) -> None:
    attempt, spy = Attempt(place=tmp_path, run=replace(RUN, trainer=Forgetful())), Spy()
    with pytest.raises(TypeError, match="Expected state=list to be None or a dataclass"):
        attempt.session(0, spy)
    assert spy.taken == 0
