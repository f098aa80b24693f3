"""What an attempt has taken and may still take: neither a crash nor damage makes it cheaper."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsweep.accounting.errors import ContractBroken, NoReceipt
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.permit import Header, Receipt, StepLog
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.taken_steps import can_resume, steps_spent
from tests.places import both

STEP = events.poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0)
TRIAL = Trial(
    method="dpsgd",
    axes={},
    config={"steps": 10},
    event=PlanEvent(training=events.repeat(STEP, 14), validation=events.gaussian(noise_multiplier=9.0)),
)
RECEIPT = Receipt(
    account="digits", plan="plan", trial=TRIAL.id, attempt=2, charge="charge", entries=3, head="head", resume=0
)
TENSORS = b"weights of a kind"


def checkpoint(steps: StepLog, *, step: int, spent: int | None = None, receipt: Receipt = RECEIPT) -> StepLog:
    """What a job does after a stretch, on 17 bytes of weights."""
    header = Header(
        plan=receipt.plan,
        trial=receipt.trial,
        attempt=receipt.attempt,
        charge=receipt.charge,
        step=step,
        steps=10,
        spent=step if spent is None else spent,
        marked=steps.marked,
    )
    header.write_checkpoint(steps.place.files, TENSORS)
    return replace(steps, header=header)


def begun(place: Path) -> StepLog:
    RECEIPT.write(place)
    return StepLog(place=both(place), attempt=2, priced=TRIAL.priced_steps)


def interrupted(place: Path) -> StepLog:
    """Killed in its second stretch of four."""
    return checkpoint(begun(place).take(4), step=4).take(4)


def test_a_killed_stretch_counts_in_full_and_a_checkpoint_counts_what_ran(tmp_path: Path) -> None:
    steps = begun(tmp_path)
    assert steps_spent(both(tmp_path), TRIAL, 2) == 0
    assert not can_resume(both(tmp_path), TRIAL, 2)
    steps = steps.take(4)
    assert steps_spent(both(tmp_path), TRIAL, 2) == steps.spent == 4
    assert not can_resume(both(tmp_path), TRIAL, 2), "there is nothing to go on from"
    steps = checkpoint(steps, step=3)
    assert steps_spent(both(tmp_path), TRIAL, 2) == steps.spent == 3, "it was stopped before the fourth"
    steps = steps.take(4)
    assert steps_spent(both(tmp_path), TRIAL, 2) == steps.spent == 7
    assert StepLog.read(both(tmp_path), TRIAL, 2) == StepLog.resume(both(tmp_path), TRIAL, RECEIPT) == steps
    assert can_resume(both(tmp_path), TRIAL, 2)


def test_what_is_missing_must_fit_within_what_was_priced(tmp_path: Path) -> None:
    steps = interrupted(tmp_path)
    assert TRIAL.priced_steps == 14
    assert can_resume(both(tmp_path), TRIAL, 2), "8 were spent and 6 are missing"
    steps.take(1)
    assert not can_resume(both(tmp_path), TRIAL, 2), "9 were spent and 6 are missing"
    with pytest.raises(ContractBroken, match="9 steps taken and 6 missing to be at most the 14 priced"):
        StepLog.resume(both(tmp_path), TRIAL, RECEIPT)


def test_steps_that_were_lost_before_a_checkpoint_stay_spent_after_it(tmp_path: Path) -> None:
    steps = interrupted(tmp_path).take(4)
    checkpoint(steps, step=8, spent=12)
    assert steps_spent(both(tmp_path), TRIAL, 2) == 12
    with pytest.raises(ContractBroken, match="12 steps taken and 3 to come"):
        StepLog.resume(both(tmp_path), TRIAL, RECEIPT).take(3)


def test_no_more_is_marked_than_was_priced(tmp_path: Path) -> None:
    steps = begun(tmp_path).take(10).take(4)
    for more in (1, 10):
        with pytest.raises(ContractBroken, match=f"14 steps taken and {more} to come"):
            steps.take(more)
    assert steps_spent(both(tmp_path), TRIAL, 2) == 14
    with pytest.raises(ContractBroken, match="0 steps taken and 15 to come"):
        StepLog(place=both(tmp_path), attempt=3, priced=TRIAL.priced_steps).take(15)
    assert not (tmp_path / "steps-3").exists()


def test_an_attempt_begins_once(tmp_path: Path) -> None:
    begun(tmp_path).take(4)
    with pytest.raises(ContractBroken, match="File exists"):
        begun(tmp_path).take(4)
    assert StepLog(place=both(tmp_path), attempt=3, priced=TRIAL.priced_steps).take(4).spent == 4, (
        "another attempt is another file"
    )


def test_an_attempt_that_was_scored_never_goes_on(tmp_path: Path) -> None:
    steps = interrupted(tmp_path)
    assert can_resume(both(tmp_path), TRIAL, 2)
    scored = steps.score()
    assert not can_resume(both(tmp_path), TRIAL, 2)
    assert steps_spent(both(tmp_path), TRIAL, 2) == 8
    assert StepLog.read(both(tmp_path), TRIAL, 2) == scored
    for more in (
        lambda: scored.take(1),
        scored.score,
        lambda: StepLog.resume(both(tmp_path), TRIAL, RECEIPT),
    ):
        with pytest.raises(ContractBroken, match="was scored"):
            more()


@pytest.mark.parametrize(
    "other", [{"plan": "another"}, {"attempt": 1}, {"charge": "another"}, {"trial": "another"}], ids=str
)
def test_a_checkpoint_of_anything_else_is_refused(tmp_path: Path, other: dict[str, object]) -> None:
    """Somebody copied the files of another attempt, plan or charge into the place of this one's."""
    theirs = replace(RECEIPT, **other)  # type: ignore[arg-type]
    checkpoint(begun(tmp_path).take(4), step=4, receipt=theirs)
    (tmp_path / f"checkpoint-{theirs.attempt}").rename(tmp_path / "checkpoint-2")
    assert not can_resume(both(tmp_path), TRIAL, 2)
    with pytest.raises(NoReceipt, match="nothing goes on"):
        StepLog.resume(both(tmp_path), TRIAL, RECEIPT)


def test_the_receipt_decides_which_attempt_goes_on(tmp_path: Path) -> None:
    interrupted(tmp_path)
    other = replace(TRIAL, config={"steps": 10, "lr": 1})
    assert not can_resume(both(tmp_path), other, 2)
    assert not can_resume(both(tmp_path), TRIAL, 1)
    replace(RECEIPT, attempt=3).write(tmp_path)
    assert not can_resume(both(tmp_path), TRIAL, 2)
    replace(RECEIPT, resume=1).write(tmp_path)
    assert can_resume(both(tmp_path), TRIAL, 2), "a receipt to resume is one for the same attempt"
    (tmp_path / "receipt.json").unlink()
    assert not can_resume(both(tmp_path), TRIAL, 2)


@pytest.mark.parametrize("name", ["checkpoint-2", "steps-2"])
def test_no_damage_makes_an_attempt_go_on_or_cheaper(tmp_path: Path, name: str) -> None:
    """Every byte changed, every length cut to, and the file gone; that a last mark is gone as a whole shows nowhere."""
    interrupted(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    changed = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in range(len(whole))]
    cut = [whole[:length] for length in range(len(whole)) if whole[:length] != b"4 4\n"]
    for content in (*changed, *cut, whole + b"\0", whole + b"\xff", None):
        path.unlink() if content is None else path.write_bytes(content)
        assert not can_resume(both(tmp_path), TRIAL, 2), content
        assert steps_spent(both(tmp_path), TRIAL, 2) >= 8, content
    path.write_bytes(whole)
    assert can_resume(both(tmp_path), TRIAL, 2)


def test_a_file_that_nobody_may_read_is_damage_and_no_traceback(tmp_path: Path) -> None:
    for name in ("checkpoint-2", "steps-2", "receipt.json"):
        place = tmp_path / name
        place.mkdir()
        interrupted(place)
        (place / name).unlink()
        (place / name).mkdir()
        assert not can_resume(both(place), TRIAL, 2), name
        assert steps_spent(both(place), TRIAL, 2) >= 8
    assert not can_resume(both(tmp_path / "nowhere"), TRIAL, 2)
    assert steps_spent(both(tmp_path / "nowhere"), TRIAL, 2) == 0


def test_a_mark_is_on_the_disk_before_it_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[int, int]] = []
    fsync = os.fsync

    def watch(handle: int) -> None:
        fsync(handle)
        flushed.append((os.fstat(handle).st_ino, os.fstat(handle).st_size))

    monkeypatch.setattr(os, "fsync", watch)
    steps = StepLog(place=both(tmp_path), attempt=2, priced=TRIAL.priced_steps).take(4)
    path = tmp_path / "steps-2"
    assert (path.stat().st_ino, len("4 4\n")) in flushed
    assert tmp_path.stat().st_ino in {number for number, _ in flushed}, "nor may the file's name be lost"
    for more in (
        lambda: steps.take(4),
        lambda: replace(steps, marked=8).score(),
    ):
        flushed.clear()
        more()
        assert flushed == [(path.stat().st_ino, path.stat().st_size)]
    assert path.read_text() == "4 4\n4 8\nscore 8\n"


def test_of_two_processes_at_one_attempt_one_goes_on(tmp_path: Path) -> None:
    """A worker that outlived its coordinator, and the one that resumed its attempt in a copy of the folder."""
    orphan = begun(tmp_path).take(4)
    resumed = StepLog.read(both(tmp_path), TRIAL, 2).take(4)
    for more in (lambda: orphan.take(4), orphan.score):
        with pytest.raises(ContractBroken, match="goes on in another process: nothing more runs here"):
            more()
    resumed.score()
    with pytest.raises(ContractBroken, match="goes on in another process"):
        resumed.take(1)
    assert (tmp_path / "steps-2").read_text() == "4 4\n4 8\nscore 8\n"


@pytest.mark.parametrize("name", ["write", "fsync", "open"])
def test_nothing_runs_that_cannot_be_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    steps = begun(tmp_path).take(4)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, name, full)
    for mark in (lambda: steps.take(4), steps.score):
        with pytest.raises(ContractBroken, match=r"Nothing runs that was not marked in .*: No space|nothing more runs"):
            mark()


def test_a_mark_of_which_half_was_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, write = checkpoint(begun(tmp_path).take(4), step=4), os.write

    def write_half(handle: int, line: bytes) -> int:
        if len(line) < len("4 8\n"):
            raise OSError(28, "No space left on device")
        return write(handle, line[:2])

    monkeypatch.setattr(os, "write", write_half)
    with pytest.raises(ContractBroken, match="No space left"):
        steps.take(4)
    assert not can_resume(both(tmp_path), TRIAL, 2)
    assert steps_spent(both(tmp_path), TRIAL, 2) == 14


def test_only_the_owner_reads_them_and_a_result_leaves_the_marks_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        interrupted(tmp_path)
    finally:
        os.umask(mask)
    for name in ("steps-2", "checkpoint-2"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    (tmp_path / "checkpoint-2").unlink()
    assert {path.name for path in tmp_path.iterdir()} == {"steps-2", "receipt.json"}
    assert steps_spent(both(tmp_path), TRIAL, 2) == 8


@settings(max_examples=30, deadline=None)
@given(data=st.data(), every=st.integers(1, 12))
def test_spent_is_never_less_than_what_ran_nor_more_than_was_priced(
    data: st.DataObject, every: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sessions that end in every way there is, until the run is done or may not go on."""
    place, ran, step = tmp_path_factory.mktemp("trial"), 0, 0
    steps = begun(place)
    while step < 10:
        stretch = min(every, 10 - step)
        steps = steps.take(stretch)
        taken = data.draw(st.integers(0, stretch) | st.just(stretch))
        ran += taken
        assert ran <= steps_spent(both(place), TRIAL, 2) <= 14
        if data.draw(st.booleans() | st.just(True)):
            step += taken
            steps = checkpoint(steps, step=step, spent=steps.spent - stretch + taken)
            assert ran <= steps_spent(both(place), TRIAL, 2) <= 14
        if not can_resume(both(place), TRIAL, 2):
            break
        steps = StepLog.resume(both(place), TRIAL, RECEIPT)
        step = 0 if steps.header is None else steps.header.step
    assert step == 10 or steps.spent + 10 - step > 14 or steps.header is None
