"""A script's process ends, with all that it started, whatever ends the job that runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.ledger.permit import PrivateStore
from dpsweep.sweeper.trial import handover
from dpsweep.sweeper.trial.handover import (
    end_scripts_and_remove_files_of_dead_jobs,
    script_inputs_folder,
    temporary_session_folder,
)
from dpsweep.sweeper.trial.script_run import run_script_and_return_exit_status, script_environment_variables
from tests.sweeper.forking import is_gone
from tests.waiting import wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

SLEEPER = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(999)']).pid)"


def run(folder: Path, program: str, *, should_stop: Callable[[], bool] = lambda: False) -> tuple[int, str]:
    (folder / "work").mkdir()
    (folder / "script.py").write_text(program)
    status = run_script_and_return_exit_status(
        folder / "script.py",
        ["--lr=1"],
        script_environment_variables(folder, [], device="cpu", threads=1),
        folder=folder,
        output=folder / "script.log",
        should_stop=should_stop,
    )
    return status, (folder / "script.log").read_text()


def test_what_a_script_started_is_killed_when_it_ends(tmp_path: Path) -> None:
    status, printed = run(tmp_path, SLEEPER)
    assert status == 0
    wait(lambda: is_gone(int(printed)), "the end of what the script started")


DAEMON = """
import subprocess, sys
sleep = "[sys.executable, '-c', 'import time; time.sleep(999)']"
start = f"import subprocess, sys; print(subprocess.Popen({sleep}, start_new_session=True).pid)"
subprocess.run([sys.executable, "-c", start], start_new_session=True, env={}, check=True)
"""
"""A script whose grandchild is in a session of its own, without a parent, and without the script's variables."""


def test_what_left_the_group_of_a_script_is_killed_when_the_script_ends(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(999)"]) as another:
        status, printed = run(tmp_path, DAEMON)
        assert status == 0
        assert is_gone(int(printed))
        assert another.poll() is None, "children that are not the script's go on"
        another.kill()


def test_a_child_that_the_job_starts_while_a_script_runs_goes_on(tmp_path: Path) -> None:
    """What runs in the job beside the script, such as a library's helper, is none of the script's."""
    helpers: list[subprocess.Popen[bytes]] = []

    def start_helper() -> bool:
        if not helpers:
            helpers.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(999)"]))
        return False

    run(tmp_path, "import time; time.sleep(.2)", should_stop=start_helper)
    try:
        assert helpers[0].poll() is None
    finally:
        helpers[0].kill()
        helpers[0].wait()


def stray_of(folder: Path) -> subprocess.Popen[bytes]:
    """A process that a script left, which was handed this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-c", "import time; time.sleep(999)"]
    environment = script_environment_variables(folder, [], device="cpu", threads=1)
    return subprocess.Popen(words, env=environment, start_new_session=True)


def test_what_a_killed_job_left_is_found_by_its_attempt_and_what_runs_is_left(tmp_path: Path) -> None:
    store = PrivateStore(root=tmp_path / "private" / "ledger" / "digits-1")
    another = PrivateStore(root=tmp_path / "private" / "another-ledger" / "digits-1")
    ours, of_another = script_inputs_folder(store) / "ours", script_inputs_folder(another) / "ours"
    with temporary_session_folder(store, "running") as running:
        strays = [stray_of(folder) for folder in (ours, running, of_another)]
        try:
            end_scripts_and_remove_files_of_dead_jobs(store)
            assert strays[0].wait(60) == -signal.SIGKILL
            assert [stray.poll() for stray in strays[1:]] == [None, None]
            assert [folder.exists() for folder in (ours, running, of_another)] == [False, True, True]
        finally:
            for stray in strays:
                stray.kill()
                stray.wait()
    assert not running.exists()


def test_a_script_runs_once_at_a_time_from_whatever_copy_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "PATIENCE_SECONDS", 0)
    store = PrivateStore(root=tmp_path / "private" / "ledger" / "digits-1")
    with temporary_session_folder(store, "trial") as first:
        with pytest.raises(ContractBroken, match="another one runs it"), temporary_session_folder(store, "trial"):
            pytest.fail("two processes were handed one folder")
        assert first.exists()
    with temporary_session_folder(store, "trial") as again:
        assert again == first


LISTENER = """
import signal, sys, time
time.sleep(0.5)
signal.signal(15, lambda *_: (print("heard"), sys.exit(75)))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [15])
time.sleep(999)
"""


def test_a_stop_request_waits_until_the_script_listens(tmp_path: Path) -> None:
    assert run(tmp_path, LISTENER, should_stop=lambda: True) == (75, "heard\n")


def test_a_script_that_never_listens_runs_to_its_end(tmp_path: Path) -> None:
    assert run(tmp_path, "import time; time.sleep(0.5); print('done')", should_stop=lambda: True) == (0, "done\n")


def test_an_error_in_the_job_ends_the_script(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "script.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(999)")
    output = tmp_path / "script.log"

    def interrupted() -> bool:
        if output.read_text():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        run_script_and_return_exit_status(
            tmp_path / "script.py",
            [],
            script_environment_variables(tmp_path, [], device="cpu", threads=1),
            folder=tmp_path,
            output=output,
            should_stop=interrupted,
        )
    assert is_gone(int(output.read_text()))


def test_the_environment_is_bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "HTTP_PROXY", "AWS_SECRET_ACCESS_KEY", "DPSWEEP_LEDGER"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    cpu, cuda = (
        script_environment_variables(tmp_path, [tmp_path], device=device, threads=2) for device in ("cpu", "cuda")
    )
    assert "secret" not in cpu.values()
    assert cpu["CUDA_VISIBLE_DEVICES"] == ""
    assert cuda["CUDA_VISIBLE_DEVICES"] == "1"
    assert cpu["OMP_NUM_THREADS"] == "2"
    assert cpu["HF_HUB_OFFLINE"] == "1"
    assert cpu["DPSWEEP_ATTEMPT"] == str(tmp_path / "attempt.json")
    assert cpu["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)
