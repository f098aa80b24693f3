"""Standard output that nobody reads is dropped; output that a full disk refuses is one sentence and exit code 6."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpsweep.accounting.errors import ExitCode

FULL = Path("/dev/full")
BUFFERING = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def command(*words: str, stdout: int, unbuffered: str) -> subprocess.CompletedProcess[str]:
    """`dpsweep WORDS` with this standard output."""
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(
        [sys.executable, "-m", "dpsweep", *words], stdout=stdout, stderr=subprocess.PIPE, text=True, env=env
    )


@BUFFERING
@pytest.mark.parametrize(("words", "code"), [(["--help"], ExitCode.DONE), (["plam"], ExitCode.BAD_INPUT)])
def test_a_command_whose_reader_has_gone_ends_as_it_would(words: list[str], code: ExitCode, unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = command(*words, stdout=write, unbuffered=unbuffered)
    os.close(write)
    assert done.returncode == code
    assert ("Did you mean plan?" in done.stderr) is (code is ExitCode.BAD_INPUT)
    assert "Traceback" not in done.stderr and "Broken pipe" not in done.stderr


@BUFFERING
def test_what_is_printed_before_the_reader_goes_arrives_and_the_program_goes_on(
    unbuffered: str, tmp_path: Path
) -> None:
    program = f"""
from pathlib import Path
from dpsweep.sweeper.processes import ignore_broken_pipe_on_stdout
print("before")
ignore_broken_pipe_on_stdout()
for line in range(100_000):
    print(line, "ä")
Path({str(tmp_path / "end")!r}).write_text("over")
"""
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert [running.stdout.readline() for _ in range(3)] == [b"before\n", "0 ä\n".encode(), "1 ä\n".encode()]
        running.stdout.close()
        assert running.stderr.read() == b""
    assert (running.returncode, (tmp_path / "end").read_text()) == (0, "over")


@BUFFERING
@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_output_is_one_sentence(unbuffered: str) -> None:
    with FULL.open("w") as full:
        done = command("--help", stdout=full.fileno(), unbuffered=unbuffered)
    assert done.returncode == ExitCode.DISK_FAILED
    assert done.stderr.count("\n") == 2 and done.stderr.startswith(
        "A file cannot be written or read: No space left on device. Once"
    )


def test_a_command_without_an_output_ends_as_it_would() -> None:
    line = f"{sys.executable} -m dpsweep --help >&-"
    done = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (ExitCode.DONE, "")
