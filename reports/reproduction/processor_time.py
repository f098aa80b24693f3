"""The processor time of the search behind a figure, added up over the pieces in which it was trained, and their code.

A file in the figure's folder has a line for each call of `make reproduce` that trained: a search that was stopped and
resumed, or killed, costs the sum of its pieces.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FILE = "processor_time.jsonl"
SOURCE = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class ProcessorTime:
    """Processor seconds of all pieces, None if one was not measured, and the distinct commits that trained."""

    seconds: float | None
    commits: tuple[str, ...]


def read_processor_time(folder: Path) -> ProcessorTime:
    """The sum over the pieces that the figure's folder records."""
    file = folder / FILE
    pieces = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    seconds = [piece["seconds"] for piece in pieces]
    return ProcessorTime(
        seconds=sum(seconds) if seconds and None not in seconds else None,
        commits=tuple(dict.fromkeys(piece["commit"] for piece in pieces if piece["commit"])),
    )


@contextmanager
def record_processor_time(folder: Path) -> Iterator[None]:
    """Records the processor time of the processes that end within the context, however it is left, if they trained."""
    before, runs = _processor_seconds_of_children(), _time_of_newest_run_file(folder)
    try:
        yield
    finally:
        if _time_of_newest_run_file(folder) != runs:
            piece = {"seconds": round(_processor_seconds_of_children() - before, 2), "commit": commit_of_source()}
            with (folder / FILE).open("a") as file:
                file.write(f"{json.dumps(piece)}\n")


def _time_of_newest_run_file(folder: Path) -> int:
    """When a file was last added to the folder of any run, in nanoseconds; 0 without runs."""
    return max((run.stat().st_mtime_ns for run in folder.glob("sweeps/*/trials/*")), default=0)


def commit_of_source() -> str:
    """The short commit of the source that runs, with `+` if it was changed since; empty outside a checkout."""
    try:
        commit = _git_output("rev-parse", "--short=10", "HEAD")
        return commit + "+" * bool(_git_output("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git_output(*words: str) -> str:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(("git", "-C", str(SOURCE), *words), capture_output=True, text=True, check=True, env=outside)
    return done.stdout.strip()


def _processor_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
