"""A worker ends with the process that started it, whichever way the system tells of that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait

CHILD = """
import os, sys, threading, time
from pathlib import Path
from dpsweep.sweeper import processes
parent = os.getppid()
{bind}
(Path(sys.argv[1]) / "bound").write_text(str(os.getpid()))
time.sleep(600)
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
LATE = "import os; from dpsweep.sweeper import processes; {bind}; print('lives on')"


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize(
    "bind",
    [
        "processes.end_process_with_parent(parent)",
        "threading.Thread(target=processes.wait_for_parent_end_then_exit, args=(parent,), daemon=True).start()",
    ],
    ids=["by the system", "by a thread"],
)
def test_a_child_ends_with_its_parent(tmp_path: Path, bind: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD.format(bind=bind), str(tmp_path)]) as parent:
        bound = tmp_path / "bound"
        wait(lambda: bound.exists() and bool(bound.read_text()), "the child's start")
        child = int(bound.read_text())
        assert alive(child)
        parent.kill()
    wait(lambda: not alive(child), "the child's end")


@pytest.mark.parametrize(
    "bind", [f"processes.{name}(os.getpid())" for name in ("end_process_with_parent", "wait_for_parent_end_then_exit")]
)
def test_a_child_whose_parent_is_gone_already_ends_at_once(bind: str) -> None:
    """No process is its own parent, as the process that started this one is not any more."""
    done = subprocess.run([sys.executable, "-c", LATE.format(bind=bind)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
