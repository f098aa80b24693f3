"""Who holds a lock is named, a crash lets go of it, and what a crash left written refuses nobody."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.job import locks
from dpsweep.sweeper.job.locks import WORK, file_lock, is_being_trained, training_lock

HOLD = "import sys, time; from pathlib import Path; from dpsweep.sweeper.job.locks import file_lock\n"
HOLD += "with file_lock(Path(sys.argv[1]), 'It'):\n    print('held', flush=True)\n    time.sleep(3600)"


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_refusal_names_process_host_and_time_and_a_crash_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with holder(path) as process:
        named = f"The sweep is being run by process {process.pid} on {socket.gethostname()} since 20"
        with pytest.raises(BadInput, match=re.escape(named)), file_lock(path, "The sweep"):
            pass
        process.send_signal(signal.SIGKILL)
    assert path.with_name("lock.holder").exists(), "killed, so the name is still there"
    with file_lock(path, "The sweep"):
        assert f'"pid": {os.getpid()}' in path.with_name("lock.holder").read_text()
    assert not path.with_name("lock.holder").exists()


@pytest.mark.parametrize("note", ["", "[]", "{}", "null", '{"pid": 1}'])
def test_a_holder_that_cannot_be_read_still_holds(tmp_path: Path, note: str) -> None:
    path = tmp_path / "lock"
    with file_lock(path, "It"):
        path.with_name("lock.holder").write_text(note)
        with pytest.raises(BadInput, match="by another process; nothing was started"), file_lock(path, "It"):
            pass


def test_a_lock_is_let_go_of_by_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), file_lock(tmp_path / "lock", "It"):
        raise KeyError
    with file_lock(tmp_path / "lock", "It"):
        pass


def test_a_trial_is_at_work_while_a_job_holds_it(tmp_path: Path) -> None:
    assert not is_being_trained(tmp_path / "never")
    assert not (tmp_path / "never").exists(), "looking makes nothing"
    with training_lock(tmp_path):
        assert is_being_trained(tmp_path)
    assert not is_being_trained(tmp_path)


@contextmanager
def looking(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """A thread that looks at a trial's lock and stays in the middle of it.

    It goes on once this thread has been refused three times, or at the end. The list has the answers to this thread.
    """
    fcntl = pytest.importorskip("fcntl", reason="Windows has locks of one kind only")
    (place / WORK).touch()
    flock, looks, goes_on, answers = fcntl.flock, threading.Event(), threading.Event(), list[bool]()

    def slow_flock(file: object, operation: int) -> None:
        try:
            flock(file, operation)
        except BlockingIOError:
            answers.append(False)
            if answers.count(False) == 3:
                goes_on.set()
                looker.join()
            raise
        if threading.current_thread() is looker:
            looks.set()
            goes_on.wait()
        else:
            answers.append(True)

    looker = threading.Thread(target=is_being_trained, args=(place,))
    monkeypatch.setattr(fcntl, "flock", slow_flock)
    looker.start()
    looks.wait()
    try:
        yield answers
    finally:
        goes_on.set()
        looker.join()


def test_two_that_look_at_once_take_neither_for_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with looking(tmp_path, monkeypatch):
        assert not is_being_trained(tmp_path)


def test_a_look_however_long_refuses_no_job_that_begins_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "GLANCE_SECONDS", 0)
    with looking(tmp_path, monkeypatch) as answers, training_lock(tmp_path):
        assert answers.count(False) == 3


def test_no_place_for_a_lock_is_the_command_lines_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError), file_lock(tmp_path / "file" / "lock", "It"):
        pass
