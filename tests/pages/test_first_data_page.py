"""docs/first_data.md and docs/growing_data.md are true: their commands run in their order and print what is shown.

So is docs/tutorial.md, and so are the recipes of docs/how-to.md and docs/coming_from.md.
"""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pytest

from tests.console import follow, steps
from tests.randomized import TRAINS

pytestmark = TRAINS

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "your_data"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the pages copy from."""
    shutil.copytree(EXAMPLE, tmp_path / "docs" / "examples" / "your_data")
    return tmp_path


def rows_of(year: int, patients: range) -> str:
    """The visits of patients who joined in a year, two each."""
    lines = (
        f"P{patient},{20 + patient % 70},{('male', 'female')[patient % 2]},{100 + patient % 80},north,"
        f"{('no', 'yes')[(patient + visit + year) % 2]}\n"
        for patient in patients
        for visit in range(2)
    )
    return "".join(lines)


@pytest.mark.long
def test_a_table_becomes_a_signed_release(checkout: Path, environment: dict[str, str]) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("OpenSSH is not installed: apt-get install openssh-client")
    page = (DOCS / "first_data.md").read_text()
    assert follow(page, checkout, environment) == []
    assert {step.command.split()[1] for step in steps(page) if step.command.startswith("dpsweep")} == {
        *("plan", "budget", "sweep", "release", "export")
    }


@pytest.mark.long
def test_the_first_sweep_of_the_tutorial_prints_what_it_shows(tmp_path: Path, environment: dict[str, str]) -> None:
    assert follow((DOCS / "tutorial.md").read_text(), tmp_path, environment) == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["how-to", "coming_from"])
def test_recipes_are_commands_that_run(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    page = (DOCS / f"{name}.md").read_text()
    recipes = page.partition("## What people typed")[2].partition("\n## ")[0] or page
    assert {step.command.split()[1] for step in steps(recipes)} <= {"plan", "rehearse"}
    assert follow(recipes, tmp_path, environment) == []


@pytest.mark.long
def test_three_years_on_one_account(checkout: Path, environment: dict[str, str]) -> None:
    for year, patients in ((2027, range(400, 500)), (2028, range(500, 600))):
        (checkout / "docs" / "examples" / "your_data" / f"visits_{year}.csv").write_text(rows_of(year, patients))
    assert follow((DOCS / "growing_data.md").read_text(), checkout, environment) == []


def test_what_the_tutorial_quotes_of_its_files_is_there() -> None:
    page, declared = (DOCS / "first_data.md").read_text(), (EXAMPLE / "dataset" / "clinic.yaml").read_text()
    quoted = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    assert len(quoted) == 2
    assert all(block in declared for block in quoted)
    with (EXAMPLE / "visits.csv").open(newline="") as stream:
        assert len({row["patient"] for row in csv.DictReader(stream)}) == 400


def test_a_line_that_a_command_does_not_print_is_found(tmp_path: Path) -> None:
    page = "```console\n$ echo one two\none   two\n$ false # exit code 1\n$ echo three\nfour\n```"
    assert follow(page, tmp_path, os.environ) == ["echo three: four"]
    with pytest.raises(AssertionError, match="false"):
        follow("```console\n$ false\n```", tmp_path, os.environ)
