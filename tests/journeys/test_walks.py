"""Six people and what each of them types, from an empty folder to what they came for; a walk has a most of commands.

A walk that grows a command has become harder: shorten it again, or say in the commit why it is worth it.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.randomized import TRAINS

pytestmark = [TRAINS, pytest.mark.usefixtures("pages")]

CLI = "dpsweep.sweeper.commands.cli"
VISITS = "--config-dir conf dataset=visits data=. compute.threads=1"
FILLED_IN = {
    "records": "400",
    "shape": "[3]",
    "labels": "['no', 'yes']",
    "classes": "2",
    "age": "[18, 90]",
    "categories": "{ward: [a, b]}",
    "delta": "1e-4",
    "epsilon": "16",
}
"""What the author of a declaration writes in place of ???; the ward is a category."""

SMALL = "dataset=digits steps=10 compute.threads=1"


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Commands with what each has to print, {sweep} the newest sweep's folder; at the end, files that must be there."""

    commands: Mapping[str, str]
    files: tuple[str, ...] = ()


WALKS = {
    "impatient": Walk(
        commands={f"sweep {SMALL}": "curator/report.html"},
        files=("{sweep}/curator/report.html", "{sweep}/curator/heatmap.png"),
    ),
    "phd_student": Walk(
        commands={
            f"plan {SMALL} trainer=dpsgd,dpnsgd,dpadam --rules": "for the whole search",
            f"sweep {SMALL} trainer=dpsgd,dpnsgd,dpadam trainer.lr=0.5,1": "dpsweep release",
            "release {sweep}": "release",
        },
        files=("{sweep}/release/methods.tex", "{sweep}/release/heatmap.pdf", "{sweep}/release/report.html"),
    ),
    "data_scientist_of_a_hospital": Walk(
        commands={
            "declare visits.csv label=fever": "conf/dataset/visits.yaml",
            "rehearse {visits} steps=5": "report.html",
            "plan {visits} steps=5 --for tre": "epsilon",
            "sweep {visits} steps=5 budget.sealed=auto": "dpsweep release",
            "release {sweep}": "release",
            "export {sweep}": "export",
        },
        files=("{sweep}/release/statement.html", "{sweep}/export/README.md"),
    ),
    "ml_engineer": Walk(
        commands={
            f"sweep {SMALL} search=tpe search.trials=3": "dpsweep release",
            "verify {sweep}": "paid",
            "budget dataset=digits --json": "epsilon",
            "export {sweep}": "export",
        },
        files=("{sweep}/export/README.md",),
    ),
    "data_protection_officer": Walk(
        commands={
            f"sweep {SMALL} tuning=private_selection tuning.mean=2": "dpsweep release",
            "release {sweep}": "release",
            "check {sweep}/release": "epsilon",
            "budget": "digits",
        },
        files=("{sweep}/release/statement.pdf",),
    ),
    "teacher": Walk(
        commands={
            "advise dataset=digits": "point",
            f"rehearse {SMALL}": "report.html",
            f"audit {SMALL} trainer=dpsgd trainer.lr=1 trainer.clip_norm=1": "epsilon",
        },
    ),
}
MOST = {
    "impatient": 1,
    "phd_student": 3,
    "data_scientist_of_a_hospital": 6,
    "ml_engineer": 4,
    "data_protection_officer": 4,
    "teacher": 3,
}
"""The most commands of each walk."""


@pytest.fixture(autouse=True)
def visits(tmp_path: Path) -> None:
    """A table of a hundred patients."""
    with (tmp_path / "visits.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["age", "ward", "fever"])
        rows.writerows([20 + row % 60, "ab"[row % 2], ("no", "yes")[row % 3 == 0]] for row in range(400))


def fill_in(declaration: Path) -> None:
    lines = [line for line in declaration.read_text().splitlines() if not line.strip().startswith("ward:")]
    for number, line in enumerate(lines):
        key = line.strip().partition(":")[0]
        if key in FILLED_IN and ("???" in line or key == "categories"):
            lines[number] = line.replace(line.partition(": ")[2], FILLED_IN[key])
    declaration.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("name", ["impatient", *(pytest.param(name, marks=pytest.mark.long) for name in [*WALKS][1:])])
def test_a_walk_ends_where_its_walker_wanted(name: str, program: Program, tmp_path: Path) -> None:
    walk, places = WALKS[name], {"visits": VISITS}
    assert len(walk.commands) <= MOST[name]
    for command, printed in walk.commands.items():
        done = program(*shlex.split(command.format(**places)), module=CLI)
        not_compared = 8 if command.startswith("check ") else 0  # `check` compares no pages, and says so
        assert done.returncode == not_compared, f"{command}: {done.stdout}{done.stderr}"
        assert printed in done.stdout + done.stderr, command
        for declaration in tmp_path.glob("conf/dataset/*.yaml"):
            fill_in(declaration)
        if found := sorted(tmp_path.glob("sweeps/*/*/plan.json"), key=lambda path: path.stat().st_mtime):
            places["sweep"] = str(found[-1].parent.relative_to(tmp_path))
    for file in walk.files:
        assert (tmp_path / file.format(**places)).is_file(), file
