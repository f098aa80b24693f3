"""Forked work: what is said comes back, nothing is inherited that could hurt, and nobody is left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from hydra.core.utils import JobReturn

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.job.locks import file_lock
from dpsweep.sweeper.launchers.fork_launcher import can_fork, run_each_in_forked_process
from tests.sweeper import forking
from tests.sweeper.forking import LONG, SOON, end_by, is_gone
from tests.waiting import wait

Launch = Callable[..., Sequence[JobReturn]]

pytestmark = pytest.mark.skipif(not can_fork(), reason="needs Linux")

nobody_is_left = forking.nobody_is_left


def say(text: str) -> bytes:
    return text.encode()


@pytest.mark.parametrize("at_once", [1, 2, 20])
def test_what_is_said_comes_back_in_order(at_once: int) -> None:
    works = [partial(say, f"{place}") for place in range(7)]
    assert run_each_in_forked_process(works, at_once) == [f"{place}".encode() for place in range(7)]


def test_no_work_is_no_result() -> None:
    assert run_each_in_forked_process([], 2) == []


@pytest.mark.parametrize("at_once", [1, 3])
def test_so_many_run_at_once_and_no_more(tmp_path: Path, at_once: int) -> None:
    at_work, full = tmp_path / "at work", tmp_path / "full"
    at_work.mkdir()

    def work() -> bytes:
        mine = at_work / f"{os.getpid()}"
        mine.touch()
        wait(lambda: full.exists() or len(list(at_work.iterdir())) >= at_once, "so many at once")
        full.touch()  # the last ones have no such company
        time.sleep(0.02)  # time for one too many
        seen = len(list(at_work.iterdir()))
        mine.unlink()
        return f"{seen}".encode()

    seen = [int(said) for said in run_each_in_forked_process([work] * 6, at_once) if isinstance(said, bytes)]
    assert len(seen) == 6
    assert full.exists(), "so many were at work at once"
    assert max(seen) <= at_once


def test_much_comes_back_whole_from_several_at_once() -> None:
    assert run_each_in_forked_process([lambda: bytes(3_000_000)] * 3, 3) == [bytes(3_000_000)] * 3


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (partial(end_by, signal.SIGKILL), "A worker was ended by SIGKILL."),
        (partial(end_by, signal.SIGTERM), "A worker was ended by SIGTERM."),
        (lambda: os._exit(3), "A worker exited with code 3 and no result."),
        (lambda: os._exit(0), "A worker exited with code 0 and no result."),
        (lambda: 1 / 0, "A worker exited with code 1 and no result."),
    ],
)
def test_a_lost_worker_is_one_sentence_and_its_neighbours_go_on(work: Callable[[], bytes], sentence: str) -> None:
    before, lost, *after = run_each_in_forked_process(
        [partial(say, "a"), work, partial(say, "b"), partial(say, "c")], 2
    )
    assert (before, after) == (b"a", [b"b", b"c"])
    assert isinstance(lost, ChildProcessError)
    assert str(lost) == sentence


def test_a_worker_is_deaf_to_the_terminal() -> None:
    assert run_each_in_forked_process([partial(end_by, signal.SIGINT)], 1) == [b"it lives"]


def test_a_worker_handles_signals_as_a_new_program_does(tmp_path: Path) -> None:
    def handlers() -> bytes:
        names = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2, signal.SIGPIPE)
        return repr([signal.getsignal(one) for one in names]).encode()

    expected = [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL, signal.SIG_IGN]
    kept = {
        number: signal.signal(number, lambda *_: (tmp_path / "heard").touch())
        for number in (signal.SIGTERM, signal.SIGUSR2)
    }
    try:
        assert run_each_in_forked_process([handlers], 1) == [repr(expected).encode()]
        (lost,) = run_each_in_forked_process([partial(end_by, signal.SIGUSR2)], 1)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    assert "SIGUSR2" in str(lost)
    assert not (tmp_path / "heard").exists()


def test_nothing_that_the_parent_has_open_is_open_in_a_worker(tmp_path: Path) -> None:
    def files() -> bytes:
        paths = Path("/proc/self/fd").iterdir()
        return "\n".join(str(path.readlink()) for path in paths if path.is_symlink()).encode()

    outputs = {str(Path(f"/proc/self/fd/{number}").readlink()) for number in (1, 2)}
    with file_lock(tmp_path / "lock", "It"), (tmp_path / "open").open("w") as file:
        (said,) = run_each_in_forked_process([files], 1)
        assert file.write("the parent's still") > 0
    assert isinstance(said, bytes)
    found = said.decode().splitlines()
    rest = {name for name in found if name not in (os.devnull, *outputs) and not name.endswith("/fd")}
    (pipe,) = rest
    assert pipe.startswith("pipe:")
    assert str(tmp_path) not in said.decode()


def test_a_number_that_an_object_of_the_parents_knows_leads_nowhere_but_stays_taken(tmp_path: Path) -> None:
    """Else a worker's own file could get it, and be closed by that object."""
    with (tmp_path / "open").open("w") as file:
        (said,) = run_each_in_forked_process(
            [lambda: os.fsencode(Path(f"/proc/self/fd/{file.fileno()}").readlink())], 1
        )
    assert said == os.fsencode(os.devnull)


def test_a_lock_stays_its_holders_whatever_workers_do(tmp_path: Path) -> None:
    """Letting go of an inherited lock would let go of the parent's."""
    with file_lock(tmp_path / "lock", "It"):
        run_each_in_forked_process([partial(say, "a"), partial(end_by, signal.SIGKILL)], 2)
        (said,) = run_each_in_forked_process([partial(_is_refused, tmp_path / "lock")], 1)
        assert said == b"True"
    with file_lock(tmp_path / "lock", "It"):
        pass


def _is_refused(lock: Path) -> bytes:
    try:
        with file_lock(lock, "It"):
            return b"False"
    except BadInput:
        return b"True"


def test_an_object_of_the_parents_is_not_finalised_in_a_worker(tmp_path: Path) -> None:
    """Not even by a collection that comes with the first allocations after the fork."""

    class Connection:
        def __init__(self) -> None:
            self.oneself = self

        def __del__(self) -> None:
            with (tmp_path / "closed").open("a") as file:
                file.write(f"{os.getpid()}\n")

    def collect() -> bytes:
        import gc

        return f"{gc.collect() and 0}".encode()

    Connection()
    run_each_in_forked_process([collect] * 2, 1)
    import gc

    gc.collect()
    assert (tmp_path / "closed").read_text() == f"{os.getpid()}\n"


def test_ctrl_c_ends_all_at_once_and_forgets_none_that_just_began(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> bytes:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(LONG)
        return b""

    def slow(pid: int) -> int:
        time.sleep(0.5)
        return find(pid)

    find = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", slow)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_each_in_forked_process([lambda: time.sleep(LONG) or b"", interrupt], 2)
    assert time.monotonic() - started < SOON


def test_ctrl_c_waits_until_a_worker_is_recorded_also_where_another_thread_receives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python runs the handler in the main thread, which blocks the signal, as soon as any thread has received it."""
    events: list[str] = []

    def opened(pid: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        events.append("recorded")
        return find(pid)

    find, over = os.pidfd_open, threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    monkeypatch.setattr(os, "pidfd_open", opened)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_each_in_forked_process([lambda: time.sleep(LONG) or b""], 1)
    finally:
        over.set()
        other.join()
    assert events == ["recorded"]


def test_ctrl_c_during_a_fork_that_fails_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    monkeypatch.setattr(os, "pidfd_open", refused)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_each_in_forked_process([lambda: time.sleep(LONG) or b""], 1)
    finally:
        over.set()
        other.join()


@pytest.mark.long
def test_two_hundred_come_and_go() -> None:
    assert run_each_in_forked_process([partial(say, "done")] * 200, 2) == [b"done"] * 200


def test_where_the_system_keeps_no_word_of_children_their_results_still_come() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_each_in_forked_process([partial(say, "a")] * 3, 2) == [b"a"] * 3
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_nobody_waits_for_a_workers_own_children(tmp_path: Path) -> None:
    def leave_one_behind() -> bytes:
        if pid := os.fork():
            (tmp_path / "pid").write_text(f"{pid}")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG)
        os._exit(0)

    started = time.monotonic()
    (lost,) = run_each_in_forked_process([leave_one_behind], 1)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert "SIGKILL" in str(lost)
    assert time.monotonic() - started < SOON


def test_where_no_more_processes_may_start_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    (lost,) = run_each_in_forked_process([partial(say, "a")], 1)
    assert str(lost) == "A worker could not be started: Resource temporarily unavailable."


ORPHANS = f"""
import os, sys, time
from pathlib import Path
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.sweeper.launchers.fork_launcher import run_each_in_forked_process
from dpsweep.sweeper.job.locks import file_lock

def work():
    Path(f"{{os.getpid()}}.pid").touch()
    print("a worker's word")
    time.sleep({LONG})
    return b""

print("the parent's word")
with file_lock(Path("lock"), "It"):
    run_each_in_forked_process([work] * 2, 2)
"""


def test_workers_die_with_their_parent_and_its_locks_are_free(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        parent = subprocess.Popen([sys.executable, "-c", ORPHANS], cwd=tmp_path, stdout=out)
    wait(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert _is_refused(tmp_path / "lock") == b"True"
    parent.kill()
    parent.wait()
    wait(lambda: all(is_gone(pid) for pid in workers))
    assert _is_refused(tmp_path / "lock") == b"False"


def test_what_the_parent_has_yet_to_print_is_printed_once(tmp_path: Path) -> None:
    program = ORPHANS.replace(f"time.sleep({LONG})", "pass")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == ["a worker's word", "a worker's word", "the parent's word"]
