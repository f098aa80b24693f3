"""The commands of a page, run one after another as a reader would, and compared with what the page shows of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DEPENDS_ON_THE_MACHINE = ("│time ", "time: ")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A command, its exit status, and the lines that the page shows of its output; `...` stands for any lines."""

    command: str
    status: int
    shown: tuple[str, ...]


def steps(page: str) -> Iterator[Step]:
    """The commands of the page's console blocks; a comment may give an exit code."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            code = re.search(r"# exit code (\d+)$", command)
            lines = (line for line in shown.splitlines() if line not in ("", "..."))
            yield Step(
                command=command,
                status=int(code[1]) if code else 0,
                shown=tuple(line for line in lines if not line.startswith(DEPENDS_ON_THE_MACHINE)),
            )


def follow(page: str, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Runs a page's commands in a folder; the lines that a page shows and a command does not print, in their order.

    Raises `AssertionError` with a command's output where its exit status is another than the page's.
    """
    place, missing = folder, []
    own = {**environment, "PATH": f"{_program(folder)}:{environment['PATH']}", "COLUMNS": "80"}
    for step in steps(page):
        if step.command.startswith("cd "):
            place = place / step.command.removeprefix("cd ")
            continue
        done = subprocess.run(step.command, shell=True, cwd=place, env=own, capture_output=True, text=True)
        assert done.returncode == step.status, f"{step.command}\n{done.stdout}{done.stderr}"
        rest = _plain(done.stdout + done.stderr)
        for line in step.shown:
            _, found, after = rest.partition(_plain(line.removeprefix("...")))
            missing += [] if found else [f"{step.command}: {line}"]
            rest = after if found else rest
    return missing


def _program(folder: Path) -> Path:
    """A folder with the program `dpsweep`, of this Python."""
    program = folder / "bin" / "dpsweep"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m dpsweep "$@"\n')
    program.chmod(0o755)
    return program.parent


def _plain(text: str) -> str:
    """Words with one space between them: tables and long lines are wrapped by the width of a terminal."""
    return " ".join(text.split())
