"""A job hears of a stop by the file or by a signal of its own, and leaves a process as it found it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpsweep.sweeper.job import stop_requests
from dpsweep.sweeper.job.stop_requests import (
    LOOK_SECONDS,
    SIGNALS,
    call_with_early_signals_noted,
    stop_request_checker,
)

HANDLED = (*SIGNALS, signal.SIGINT)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A worker's handlers, and the ones before them in the end."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [0.0]
    with monkeypatch.context() as patch:
        patch.setattr("time.monotonic", lambda: now[0])
        yield now


def test_the_file_is_a_request_from_the_first_question_on(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    with stop_request_checker(tmp_path / "stop") as should_stop:
        assert should_stop()
        (tmp_path / "stop").unlink()
        assert should_stop(), "a request is never taken back"


def test_the_file_is_looked_for_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with clock(monkeypatch) as now, stop_request_checker(tmp_path / "stop") as should_stop:
        assert not should_stop()
        (tmp_path / "stop").touch()
        now[0] = 0.9 * LOOK_SECONDS
        assert not should_stop(), "a step may take less than a look"
        now[0] = LOOK_SECONDS
        assert should_stop()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_a_worker_is_a_request_to_its_job_alone(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_request_checker(tmp_path / "stop") as should_stop:
        assert not should_stop()
        os.kill(os.getpid(), number)
        assert should_stop()
    assert signal.getsignal(number) == before
    with stop_request_checker(tmp_path / "stop") as should_stop:
        assert not should_stop()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_a_jobs_imports_is_a_request_to_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(stop_requests, "_early", [])
    before = signal.getsignal(number)

    def job(gets: bool) -> bool:
        if gets:
            os.kill(os.getpid(), number)
        with stop_request_checker(tmp_path / "stop") as should_stop:
            return should_stop()

    assert not call_with_early_signals_noted(job, False)
    assert call_with_early_signals_noted(job, True)
    assert signal.getsignal(number) == before


def test_a_worker_is_deaf_to_the_terminal_while_it_works(tmp_path: Path) -> None:
    with stop_request_checker(tmp_path / "stop") as should_stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert not should_stop()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_in_the_coordinators_process_signals_stay_the_coordinators(tmp_path: Path) -> None:
    heard: list[int] = []
    for number in HANDLED:
        signal.signal(number, lambda number, _: heard.append(number))
    with stop_request_checker(tmp_path / "stop") as should_stop:
        for number in HANDLED:
            os.kill(os.getpid(), number)
        assert not should_stop(), "the coordinator makes the file"
    assert heard == list(HANDLED)


def test_a_thread_leaves_signals_alone(tmp_path: Path) -> None:
    found: list[object] = []

    def work() -> None:
        with stop_request_checker(tmp_path / "stop") as should_stop:
            found.append((signal.getsignal(signal.SIGINT), should_stop()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(signal.default_int_handler, False)]


def test_a_process_that_was_started_deaf_still_hears_its_own_signals(tmp_path: Path) -> None:
    """A shell starts what runs in its background with SIGINT ignored."""
    program = (
        "import os, signal, pathlib; from dpsweep.sweeper.job.stop_requests import stop_request_checker\n"
        "with stop_request_checker(pathlib.Path('stop')) as should_stop:\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print(should_stop())"
    )
    shell = 'trap "" INT; exec "$0" -c "$1"'
    done = subprocess.run(["sh", "-c", shell, sys.executable, program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "True\n", done.stderr


def test_ctrl_c_during_the_imports_is_one_sentence(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "hydra.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "dpsweep", "plan"],
        env=environment | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130
    assert done.stderr.startswith("Stopped before anything began: nothing was charged.\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("dpsweep.accounting.errors", "Stopped before anything began: nothing was charged."),
        (
            "dpsweep.accounting.ledger.ledger",
            "Stopped at once. Nothing more is charged, and what was charged stays so; ",
        ),
    ],
    ids=["no ledger", "a ledger"],
)
def test_ctrl_c_says_that_nothing_was_charged_where_no_ledger_is_known(module: str, sentence: str) -> None:
    program = (
        f"import {module}\nfrom dpsweep.sweeper.commands.one_sentence import *\n"
        "with one_sentence():\n    raise KeyboardInterrupt"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.startswith(sentence)
    assert done.returncode == 130
