"""Resumed runs: no instant at which a process may die makes one cheaper, and each ends as if it had never stopped."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import are_same_events, repeat
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.methods.named_methods import Adadp, DpAdamWosm, DpMomentum, DpNadam, DpNsgd, DpSgd, ProjectedDpSgd
from dpsweep.trainers.methods.updates import HalfSteps
from tests.trainers.attempts import EVERY, PRICED, RECORDS, RUN, Attempt, Killed, Spy, flat, fresh_model


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
            assert are_same_events(outcome.event, repeat(RUN.event_of_one_period, attempt.spent)), (
                "the lost steps are told"
            )
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
    with pytest.raises(ContractBroken, match=r"to be at most the \d+ priced ones"):
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
    assert are_same_events(outcome.event, RUN.event)
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
    schedule = Constant() if isinstance(trainer.update, HalfSteps) else RUN.schedule
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
    assert are_same_events(outcome.event, run.event)
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


def test_no_step_runs_beyond_the_price(tmp_path: Path) -> None:
    attempt, spy = Attempt(place=tmp_path, priced=5), Spy()
    with pytest.raises(ContractBroken, match="4 steps taken and 2 to come to be at most the 5 priced"):
        attempt.session(0, spy)
    assert spy.taken == 4
