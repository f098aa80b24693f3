"""docs/contributing.md as a newcomer follows it: its blocks, and a copy of the tree to apply them to."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contributing.md"
BLOCK = re.compile(r'^```(?P<language>\w+)(?: title="(?P<path>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^\[\w+\.py\]\((?P<file>examples/contributing/\w+\.py)\) becomes `(?P<path>[^`]+)`", re.MULTILINE)
COPIED = (
    "accounting",
    "trainers",
    "sweeper",
    "reports",
    "conf",
    "docs",
    "dpsweep",
    "tests",
    "README.md",
    "pyproject.toml",
)
PROGRAMS = {
    "dpsweep": [sys.executable, "-m", "dpsweep"],
    "python": [sys.executable],
    "pip": [sys.executable, "-m", "pip", "--quiet"],
}


@dataclass(frozen=True, kw_only=True)
class DocumentBlock:
    """A fenced block of the page or a file beside it: a file, a change to a file, or commands."""

    language: str
    path: str | None
    text: str

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of a console."""
        return tuple(line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ "))


def sections() -> dict[str, tuple[DocumentBlock, ...]]:
    """The blocks of each section "Add a ..." in their order."""
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    titled = {part.partition("\n")[0]: part for part in parts}
    return {title: tuple(_blocks(part)) for title, part in titled.items() if title.startswith("Add ")}


def _blocks(section: str) -> Iterator[DocumentBlock]:
    found = (match for pattern in (BLOCK, FILE) for match in pattern.finditer(section))
    for match in sorted(found, key=lambda match: match.start()):
        if match.re is FILE:
            yield DocumentBlock(language="python", path=match["path"], text=(PAGE.parent / match["file"]).read_text())
        else:
            yield DocumentBlock(language=match["language"], path=match["path"], text=match["text"])


def changed(text: str, diff: str) -> str:
    """A file's text after a change, whose lines before it must stand in the file once, one below the other."""
    before = "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] in (" ", "-"))
    after = "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] in (" ", "+"))
    if text.count(before) != 1:
        raise ValueError(f"Expected these lines once, found them {text.count(before)} times:\n{before}")
    return text.replace(before, after)


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A copy of the tree, with a ledger and folders of its own."""

    root: Path

    @classmethod
    def copied(cls, root: Path) -> Checkout:
        """The parts of the tree that programs and tests need, links as links."""
        for name in COPIED:
            source, target = ROOT / name, root / name
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "frozen"))
            else:
                shutil.copy(source, target)
        return cls(root=root)

    def apply(self, block: DocumentBlock) -> str:
        """Writes a file, changes one, or runs commands, and returns what these printed."""
        if block.path is None:
            return "".join(self.run(command) for command in block.commands)
        path = self.root / block.path
        if block.language == "diff":
            path.write_text(changed(path.read_text(), block.text))
        elif path.exists():
            raise ValueError(f"Expected {block.path} to be absent from the tree.")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        return ""

    def run(self, command: str) -> str:
        """What a command of the page prints; raises with its output where it fails."""
        program, *arguments = (part for word in shlex.split(command) for part in self._expanded(word))
        done = subprocess.run(
            [*PROGRAMS[program], *arguments], capture_output=True, text=True, cwd=self.root, env=self._environment()
        )
        if done.returncode:
            raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _expanded(self, word: str) -> list[str]:
        paths = sorted(str(path.relative_to(self.root)) for path in self.root.glob(word)) if word.endswith("*") else []
        return paths or [word]

    def _environment(self) -> dict[str, str]:
        own = {f"XDG_{kind}_HOME": str(self.root / "home" / kind.lower()) for kind in ("STATE", "CONFIG", "DATA")}
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("DPSWEEP_", "PYTEST_", "COV_"))}
        site = str(self.root / "site")
        places = os.pathsep.join((str(self.root), str(self.root / "sweeper" / "plugin"), site))
        own |= {"PIP_TARGET": site, "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
        return kept | own | {"PYTHONPATH": places, "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
