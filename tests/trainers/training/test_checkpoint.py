"""Checkpoints: no secret of a run lies on the disk, damage is refused, and a full disk makes no run cheaper."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import are_same_events, repeat
from dpsweep.accounting.ledger.permit import StepLog
from dpsweep.accounting.records.taken_steps import read_checkpoint_of_log
from dpsweep.trainers.methods.method import Trainer
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.methods.updates import Update
from dpsweep.trainers.randomness import reproducible_streams
from dpsweep.trainers.training.checkpoint import read_checkpoint
from dpsweep.trainers.training.run import Outcome
from tests.places import both
from tests.trainers.attempts import RUN, Attempt, Killed, Spy


def test_a_checkpoint_holds_nothing_of_the_streams(tmp_path: Path) -> None:
    streams = reproducible_streams(5, "trial")
    attempt = Attempt(place=tmp_path)
    attempt.session(streams=streams)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name != "receipt.json")
    assert attempt.checkpoint.read_bytes() in content
    for stream in (streams.subsampling, streams.noise, streams.score):
        state = stream.bit_generator.state["s"]
        secrets = [int(word) for word in state["seed"]]
        assert len(secrets) == 22, "the key and what AES makes of it; the counter of a stream with a seed begins at 0"
        for word in secrets:
            for shown in (word.to_bytes(8, "little"), word.to_bytes(8, "big"), str(word).encode(), b"%x" % word):
                assert shown not in content


def test_a_checkpoint_is_tensors_numbers_and_text(tmp_path: Path) -> None:
    attempt = Attempt(place=tmp_path)
    attempt.session()
    state = read_checkpoint_of_log(StepLog.read(both(tmp_path), attempt.trial, 1))[1]
    kept = torch.load(BytesIO(state), weights_only=True)
    assert set(kept) == {"weights", "average", "fixed", "state", "ran", "drawn", "seconds", "curve"}
    assert set(kept["state"]) == {"first", "second", "steps"}
    assert kept["state"]["steps"] == 4


def stopped_and_resumed(attempt: Attempt, restored: Callable[[], object] = lambda: None) -> Outcome:
    """A run of which a first session takes a stretch, and two others the rest."""
    attempt.place.mkdir()
    attempt.session(should_stop=lambda: True)
    restored()
    attempt.session(1, should_stop=lambda: True)
    return attempt.session(2)[1]


def test_a_checkpoint_is_for_its_owner_alone_and_there_is_one(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        attempt = Attempt(place=tmp_path)
        attempt.session()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(attempt.checkpoint.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"receipt.json", "steps-1", "checkpoint-1"}


def test_a_checkpoint_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    attempt = Attempt(place=tmp_path)
    attempt.session()
    whole = attempt.checkpoint.read_bytes()
    steps = StepLog.read(both(tmp_path), attempt.trial, 1)
    for content in (whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], b""):
        attempt.checkpoint.write_bytes(content)
        with pytest.raises(ContractBroken, match="to be as it was written"):
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
    steps = StepLog.resume(both(tmp_path), attempt.trial, attempt.receipt(1))
    assert steps.header is not None
    assert steps.header.step == 2
    _, outcome = attempt.session(1, spy)
    assert attempt.spent == 10
    assert spy.taken == 9
    assert are_same_events(outcome.event, repeat(RUN.event_of_one_period, 10))


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


@dataclass(frozen=True, kw_only=True)
class Forgetful(Trainer):
    """An update whose state is a list, which no checkpoint holds."""

    label = "forgetful"
    lr: float = 0.1

    @property
    def transform(self) -> GradientTransform:
        return DpSgd(lr=1.0, clip_norm=1.0).transform

    @property
    def update(self) -> ListState:
        return ListState()


class ListState(Update[list[Tensor]]):
    def start(self, gradient: Tensor) -> list[Tensor]:
        return [gradient]

    def direction(self, state: list[Tensor], gradient: Tensor) -> tuple[list[Tensor], Tensor]:
        return state, gradient


def test_a_state_that_no_checkpoint_holds_is_refused_before_the_first_step(tmp_path: Path) -> None:
    attempt, spy = Attempt(place=tmp_path, run=replace(RUN, trainer=Forgetful())), Spy()
    with pytest.raises(TypeError, match="Expected state=list to be None or a dataclass"):
        attempt.session(0, spy)
    assert spy.taken == 0
