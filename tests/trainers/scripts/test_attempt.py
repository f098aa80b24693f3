"""The context of a script: receipt first, once, and steps that are marked before they run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpsweep
from dpsweep.accounting.errors import ContractBroken, NoReceipt, ReceiptUsed
from dpsweep.accounting.events.build import poisson_gaussian, repeat, to_json
from dpsweep.accounting.ledger.permit import StepLog, read_checkpoint_file
from dpsweep.accounting.records.sweep_folder import TrialPlace
from dpsweep.trainers.scripts.attempt import STOPPED
from dpsweep.trainers.scripts.handover_files import (
    ATTEMPT_FILE,
    KEPT,
    REPORT_FILE,
    VARIABLE,
    Handover,
    steps_in_first_stretch,
)

STEPS = 5
EVENT = repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.0), STEPS)


@pytest.fixture
def given(tmp_path: Path) -> Handover:
    for name in ("files", "record", f"handed/{KEPT}"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "record" / "claim-1").touch()
    np.savez(tmp_path / "handed" / "train.npz", features=np.full((3, 2), 255, np.uint8), labels=np.arange(3))
    np.savez(tmp_path / "handed" / "score.npz", features=np.zeros((2, 2), np.uint8))
    return Handover(
        plan="p",
        trial="t",
        attempt=1,
        resume=0,
        charge="c",
        hyperparameters={"lr": 0.5, "clip_norm": 1.0},
        noise_multiplier=1.0,
        sampler="poisson",
        sample_rate=0.1,
        batch_size=10,
        steps=STEPS,
        clip_norm=1.0,
        delta=1e-5,
        adjacency="add_or_remove_one",
        unit="record",
        records=100,
        classes=3,
        shape=(2,),
        seed=None,
        device="cpu",
        threads=1,
        event=to_json(EVENT),
        scaling={"scale": 255.0, "mean": 0.5, "std": 0.5},
        step=0,
        spent=0,
        marked=0,
        priced=STEPS + 4,
        every=None,
        files=str(tmp_path / "files"),
        record=str(tmp_path / "record"),
    )


def hand_over(given: Handover, folder: Path) -> Path:
    """As a job does: the first stretch is marked, and then the settings are written."""
    place = TrialPlace(files=Path(given.files), record=Path(given.record))
    stored = read_checkpoint_file(place.files, given.attempt)
    header = None if stored is None else stored[0]
    log = StepLog(place=place, attempt=1, priced=given.priced, marked=given.marked, header=header)
    log = log.take(steps_in_first_stretch(given))
    replace(given, marked=log.marked).write(folder / "handed")
    (folder / "record" / f"script-{given.attempt}-{given.resume}").unlink(missing_ok=True)
    return folder / "handed" / ATTEMPT_FILE


def marks(folder: Path) -> list[str]:
    return (folder / "record" / "steps-1").read_text().splitlines()


def test_without_a_receipt_nothing_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(NoReceipt, match="this script holds no receipt"), dpsweep.attempt():
        pass
    for content in (None, "", "{}", "[]", '{"name": 3}'):
        path = tmp_path / "attempt.json"
        if content is not None:
            path.write_text(content)
        with pytest.raises(NoReceipt, match=r"to be the attempt\.json of a running attempt"), dpsweep.attempt(path):
            pass


def test_an_attempt_that_nobody_claimed_is_refused(given: Handover, tmp_path: Path) -> None:
    path = hand_over(given, tmp_path)
    (tmp_path / "record" / "claim-1").unlink()
    with pytest.raises(NoReceipt, match="Expected attempt 1 at trial t to be claimed"), dpsweep.attempt(path):
        pass


def test_an_attempt_is_taken_once(given: Handover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(hand_over(given, tmp_path)))
    with dpsweep.attempt() as a:
        assert dict(a.hyperparameters) == {"lr": 0.5, "clip_norm": 1.0}
        assert a.train.features.tolist() == [[1.0, 1.0]] * 3, "scaled as a model of dpsweep's reads them"
        assert a.score_features.tolist() == [[-1.0, -1.0]] * 2
        assert a.train.units is None
        assert a.resumed is None
        with pytest.raises(TypeError):
            a.hyperparameters["lr"] = 3  # type: ignore[index]
    with pytest.raises(ReceiptUsed, match="was taken by a script before"), dpsweep.attempt():
        pass


def test_a_copy_of_what_was_handed_over_trains_nothing(given: Handover, tmp_path: Path) -> None:
    path = hand_over(given, tmp_path)
    shutil.copytree(path.parent, tmp_path / "copy")
    with dpsweep.attempt(path):
        shutil.copytree(path.parent, tmp_path / "later")
    for copied in ("copy", "later"):
        with (
            pytest.raises(ReceiptUsed, match="was taken by a script before"),
            dpsweep.attempt(tmp_path / copied / path.name),
        ):
            pass


def test_steps_are_marked_before_they_run_and_saved_after_each_stretch(given: Handover, tmp_path: Path) -> None:
    path = hand_over(replace(given, every=2), tmp_path)
    seen = []
    with dpsweep.attempt(path) as a:
        for step in a.each_step(save=lambda: b"state"):
            seen.append((step, sum(int(line.split()[0]) for line in marks(tmp_path))))
        with pytest.raises(ContractBroken, match="to be used once"):
            next(a.each_step())
    assert seen == [(0, 2), (1, 2), (2, 4), (3, 4), (4, 5)]
    stored = read_checkpoint_file(tmp_path / "files", 1)
    assert stored is not None
    header, _ = stored
    assert (header.step, header.spent, header.marked) == (4, 4, 4)


def test_a_stop_ends_after_the_step_with_a_checkpoint_and_another_session_goes_on(
    given: Handover, tmp_path: Path
) -> None:
    path = hand_over(given, tmp_path)
    done: list[int] = []
    with pytest.raises(SystemExit) as end, dpsweep.attempt(path) as a:
        for step in a.each_step(save=lambda: f"after {done[-1]}".encode()):
            done.append(step)
            if step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                assert a.should_stop()
    assert end.value.code == STOPPED
    stored = read_checkpoint_file(tmp_path / "files", 1)
    assert stored is not None
    header, state = stored
    assert (header.step, header.spent, header.marked) == (3, 3, 5)
    (tmp_path / "handed" / "state").write_bytes(state)
    (tmp_path / "record" / "claim-1-1").touch()
    path = hand_over(replace(given, resume=1, step=3, spent=3, marked=5), tmp_path)
    with dpsweep.attempt(path) as a:
        assert a.resumed == b"after 2"
        assert list(a.each_step()) == [3, 4]
    assert marks(tmp_path) == ["5 5", "2 7"]


def test_steps_beyond_the_priced_ones_are_refused(given: Handover, tmp_path: Path) -> None:
    path = hand_over(replace(given, every=2, priced=3), tmp_path)
    with dpsweep.attempt(path) as a, pytest.raises(ContractBroken, match="to be at most the 3 priced ones"):
        assert list(a.each_step()) == []


def test_a_script_that_cannot_save_runs_to_its_end(given: Handover, tmp_path: Path) -> None:
    path = hand_over(given, tmp_path)
    with dpsweep.attempt(path) as a:
        os.kill(os.getpid(), signal.SIGTERM)
        assert a.should_stop()
        assert len(list(a.each_step())) == STEPS


def test_a_report_is_written_before_it_is_refused(given: Handover, tmp_path: Path) -> None:
    path = hand_over(given, tmp_path)
    with dpsweep.attempt(path) as a:
        with pytest.raises(ValueError, match="Expected predictions="):
            a.report(event=EVENT, predictions=[0, 1, 2])
        assert not (path.parent / REPORT_FILE).exists()
        with pytest.raises(ContractBroken, match="it reports 6 steps, and 5 were declared"):
            a.report(event=repeat(EVENT.event, STEPS + 1), predictions=[0, 2])  # type: ignore[attr-defined]
    form = json.loads((path.parent / REPORT_FILE).read_text())
    assert form["name"] == "p/t/1/0"
    assert form["taken"] is None
