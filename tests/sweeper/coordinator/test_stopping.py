"""The first Ctrl-C asks jobs by a file, the second one is out, and workers hear neither."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsweep.sweeper.coordinator import signals as stopping
from dpsweep.sweeper.coordinator.signals import (
    SIGNALS,
    command_to_pay_again,
    command_to_repeat,
    create_stop_file_on_signals,
)
from tests.waiting import HANGS

ALONE = """
import os, signal, sys, time
from pathlib import Path
from dpsweep.sweeper.coordinator.signals import create_stop_file_on_signals
with create_stop_file_on_signals(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGINT)
    deadline = time.monotonic() + 120
    while not Path(sys.argv[1]).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    print(Path(sys.argv[1]).exists())
"""
IS_DEAF = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


@pytest.fixture
def stop(tmp_path: Path) -> Path:
    return tmp_path / "stop"


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test does, signals are what they were."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    assert {number: signal.getsignal(number) for number in SIGNALS} == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def send(number: signal.Signals) -> None:
    """As a terminal does, to the process and not to one of its threads; returns when it is about to be handled."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        ours.settimeout(HANGS)
        before = signal.set_wakeup_fd(theirs.fileno())
        try:
            os.kill(os.getpid(), number)
            assert ours.recv(1) == bytes([number])
        finally:
            signal.set_wakeup_fd(before)


@pytest.mark.parametrize("number", SIGNALS)
def test_once_makes_the_file_and_says_so(stop: Path, number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    with create_stop_file_on_signals(stop):
        assert not stop.exists()
        send(number)
        assert stop.exists()
    assert stop.exists(), "jobs that outlive their coordinator look for it too"
    assert "Ctrl-C again stops at once" in capfd.readouterr().err


@pytest.mark.parametrize("number", SIGNALS)
def test_twice_is_out(stop: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SAME_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt), create_stop_file_on_signals(stop):
        send(number)
        send(number)


def test_signals_that_come_together_are_one_request(stop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SAME_SECONDS", 1e9)
    with create_stop_file_on_signals(stop):
        send(signal.SIGTERM)
        send(signal.SIGTERM)
    assert stop.exists()


def test_an_earlier_stop_is_over(stop: Path) -> None:
    stop.touch()
    with create_stop_file_on_signals(stop):
        assert not stop.exists()


def test_where_no_file_can_be_made_once_is_out(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), create_stop_file_on_signals(tmp_path / "gone" / "stop"):
        send(signal.SIGINT)


def test_a_thread_leaves_signals_alone(stop: Path) -> None:
    found = []

    def run() -> None:
        with create_stop_file_on_signals(stop):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


def test_a_coordinator_without_another_thread_hears_it_too(stop: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, str(stop)], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_workers_are_born_deaf_to_ctrl_c_and_nobody_else_is(stop: Path) -> None:
    def born() -> str:
        return subprocess.run([sys.executable, "-c", IS_DEAF], capture_output=True, text=True, check=True).stdout

    with create_stop_file_on_signals(stop):
        assert born() == "True\n"
    assert born() == "False\n"


@pytest.mark.parametrize(
    ("typed", "level", "said"),
    [
        (["/v/bin/python", "-m", "sweeper", "trainer.lr=1,2"], "", "python -m sweeper trainer.lr=1,2"),
        (["/v/bin/python", "/v/bin/dpsweep", "sweep", "data='a b'"], "", """dpsweep sweep 'data='"'"'a b'"'"''"""),
        (["/v/bin/python", "/v/bin/dpsweep", "sweep"], "1", "dpsweep sweep (or the same make command)"),
        (["/v/bin/python", "/v/bin/dpsweep", "sweep", "--again", "steps=3"], "1", "dpsweep sweep steps=3"),
        (["/v/bin/python", "-m", "sweeper", "hydra.sweeper.retry=again"], "", "python -m sweeper"),
    ],
)
def test_the_command_is_what_was_typed(
    typed: list[str], level: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", typed)
    monkeypatch.delenv("MAKELEVEL", raising=False)
    if level:
        monkeypatch.setenv("MAKELEVEL", level)
    assert command_to_repeat() == said


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["/v/bin/python", "/v/bin/dpsweep", "resume", "a b"], "dpsweep resume 'a b' --again"),
        (["python", "-m", "sweeper", "hydra.sweeper.retry=none", "steps=3"], "python -m sweeper steps=3 --again"),
        (["python", "notebook.py"], "the same call with again=True"),
        (["python"], "the same call with again=True"),
    ],
)
def test_the_command_that_accepts_a_charge(typed: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", typed)
    assert command_to_pay_again() == said
