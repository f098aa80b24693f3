"""docs/contributing.md works: each thing that it adds is added to a copy of the tree, planned, run and tested."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contributions import ROOT, Checkout, DocumentBlock, changed, sections
from tests.randomized import TRAINS

pytestmark = TRAINS

SECTIONS = sections()
STEPS = {"a method", "a selection rule", "an accountant", "a data set", "an exhibit", "a logger"}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout.copied(tmp_path)


def walk(checkout: Checkout, title: str) -> list[str]:
    """Applies a section's blocks in their order; what each console printed."""
    outputs = [checkout.apply(block) for block in SECTIONS[f"Add {title}"]]
    return [output for output in outputs if output]


def sweep_of(checkout: Checkout, account: str) -> Path:
    """The folder of the one sweep that ran; plans alone have folders too."""
    (trials,) = (checkout.root / "sweeps" / account).glob("*/trials")
    return trials.parent


def scores(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("trials/*/result.json"))]


def test_every_kind_of_thing_has_its_section() -> None:
    assert {title.removeprefix("Add ") for title in SECTIONS} == STEPS


@pytest.mark.parametrize("title", SECTIONS)
def test_what_a_newcomer_writes_has_the_style_of_the_house(title: str, tmp_path: Path) -> None:
    modules = [block for block in SECTIONS[title] if block.language == "python"]
    for place, block in enumerate(modules):
        assert ast.get_docstring(ast.parse(block.text))
        (tmp_path / f"module_{place}.py").write_text(block.text)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_a_method_is_added(checkout: Checkout) -> None:
    outputs = walk(checkout, "a method")
    assert "16 dpnadamwosm" in outputs[0]
    assert "16 dpnesterov" in outputs[1]
    folder = sweep_of(checkout, "digits")
    plan = json.loads((folder / "plan.json").read_text())
    trainers = [trial["config"]["trainer"] for block in plan["blocks"] for trial in block]
    assert [trainer["transform"] for trainer in trainers] == [
        {"kind": "normalize", "regularizer": 0.01},
        {"kind": "normalize", "regularizer": 1},
    ]
    assert {trainer["kind"] for trainer in trainers} == {"method"}
    assert len(plan["blocks"]) == 1, "points that differ in numbers alone train together"
    assert [result["status"] for result in scores(folder)] == ["finished"] * 2
    settings = (checkout.root / "docs" / "settings.md").read_text()
    assert "| `trainer=dpnadamwosm` | DP-NAdamWOSM:" in settings
    assert "| `trainer=dpnesterov` | DP-Nesterov:" in settings


@pytest.mark.long
def test_a_selection_rule_is_added(checkout: Checkout) -> None:
    priced, *_ = walk(checkout, "a selection rule")
    assert "winner_only" in priced
    folder = sweep_of(checkout, "digits")
    assert [result["status"] for result in scores(folder)] == ["finished"] * 2
    released = checkout.run(f"dpsweep release {folder.relative_to(checkout.root)}")
    page = checkout.root / released.strip().splitlines()[-1]
    rows = {
        place.name: json.loads((place / "report.json").read_text())["trials"]["rows"]
        for place in (folder / "curator", page.parent)
    }
    assert len(rows["curator"]) == 2
    assert len(rows["release"]) <= 1, "the winner alone"


@pytest.mark.long
def test_an_accountant_is_added(checkout: Checkout) -> None:
    priced, *_ = walk(checkout, "an accountant")
    assert "zCDP" in priced


@pytest.mark.long
def test_a_data_set_is_added(checkout: Checkout) -> None:
    outputs = walk(checkout, "a data set")
    assert "on iris" in outputs[0]
    folder = sweep_of(checkout, "iris")
    assert [result["status"] for result in scores(folder)] == ["finished"] * 2
    assert "| `dataset=iris` | Iris (Fisher 1936):" in (checkout.root / "docs" / "settings.md").read_text()


@pytest.mark.long
def test_an_exhibit_is_added(checkout: Checkout) -> None:
    walk(checkout, "an exhibit")
    folder = sweep_of(checkout, "digits")
    assert "How runs ended" in (folder / "curator" / "report.html").read_text()
    assert "How runs ended" not in (folder / "release" / "report.html").read_text()


@pytest.mark.long
def test_a_logger_is_added(checkout: Checkout) -> None:
    before = {path for path in checkout.root.rglob("*") if path.is_file()}
    walk(checkout, "a logger")
    folder = sweep_of(checkout, "digits")
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    assert sorted(line["trainer.lr"] for line in lines) == [1, 2]
    written = {block.path for block in SECTIONS["Add a logger"] if block.path}
    assert len(written) == 3
    assert not before & {checkout.root / path for path in written}, "nothing of dpsweep is edited"


def test_a_change_that_fits_nowhere_is_noticed() -> None:
    assert changed("one\ntwo\n", " one\n+between\n") == "one\nbetween\ntwo\n"
    assert changed("one\ntwo\n", "-two\n+three\n") == "one\nthree\n"
    for text in ("two\n", "one\none\n"):
        with pytest.raises(ValueError, match="Expected these lines once"):
            changed(text, " one\n+between\n")


def test_a_block_of_commands_has_one_in_each_line() -> None:
    assert DocumentBlock(language="console", path=None, text="$ dpsweep plan\nPlan\n$ python x.py\n").commands == (
        "dpsweep plan",
        "python x.py",
    )
