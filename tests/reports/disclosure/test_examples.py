"""The examples of docs/releases.md are what a release has, and a reader recomputes its price with Python alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dpsweep.reports.pages.release import write_release
from tests.reports.disclosure.forms import FORMATS, NAMES

PAGE = (Path(__file__).parents[3] / "docs" / "releases.md").read_text()
(CHECKSUM,) = re.findall(r"```text title=\"SHA-256 of price_check.py\"\n(\w+)\n```", PAGE)
EXAMPLES = dict(re.findall(r"```\w+ title=\"([\w.]+)\"\n(.*?)```", PAGE, re.DOTALL))
PROGRAM = "release/price_check.py"
AXES = {"dpsgd": {"trainer.lr": (0.5, 1.0, 2.0), "trainer.clip_norm": (0.4, 1.6)}}
SweepOf = Callable[..., Any]


@pytest.fixture
def made(sweep_of: SweepOf) -> Any:
    """The sweep of the page."""
    return sweep_of(AXES)


def rounded(line: str) -> str:
    """The line with long numbers cut to eight digits, and no digest: last digits may differ between machines."""
    return re.sub(r"\b[0-9a-f]{64}\b", "digest", re.sub(r"\d\.\d{9,}", lambda match: match.group()[:10], line))


def test_the_pages_examples_are_what_a_release_has(made: Any) -> None:
    """Each shown line is in the file, and the lines are in its order."""
    folder = write_release(made.folder, made.ledger, tuple(FORMATS.values()), date(2026, 12, 1)).parent
    assert set(EXAMPLES) == {one.file for one in FORMATS.values()}
    for name, example in EXAMPLES.items():
        lines = iter([rounded(line) for line in (folder / name).read_text().splitlines()])
        for shown in example.splitlines():
            assert rounded(shown) in lines, f"{name}: {shown}"
    figures = {path.with_suffix(".pdf").name for path in folder.glob("*.svg")}
    files = {path.name for path in folder.iterdir() if path.suffix not in (".png", ".svg", ".csv")} - figures
    table = set(re.findall(r"`([\w.]+\.\w+)`", PAGE.partition("| file |")[2].partition("\n\n")[0]))
    assert files == table
    assert {name for name in NAMES if f"`--for {name}`" in PAGE} == set(NAMES)


def test_an_outsider_recomputes_the_price_as_the_page_shows(made: Any) -> None:
    write_release(made.folder, made.ledger)
    assert sha256((made.folder / PROGRAM).read_bytes()).hexdigest() == CHECKSUM, "docs/releases.md has its checksum"
    (block,) = (text for text in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) if "$ python" in text)
    examples = re.findall(r"\$ python ([^#\n]*?) *(?:#[^\n]*)?\n(.*?)(?=\$|\Z)", block, re.DOTALL)
    assert [command for command, _ in examples] == [PROGRAM]
    for command, shown in examples:
        done = subprocess.run([sys.executable, "-I", *command.split()], cwd=made.folder, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert cut(done.stdout) == cut(shown)


def cut(text: str) -> str:
    """The text with numbers cut to four digits behind the point."""
    return re.sub(r"(\d\.\d{4})\d+", r"\1", text)
