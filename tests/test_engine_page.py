"""docs/engine.md is true: its numbers are computed, its layers and limits are those of the code."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from dpsweep.sweeper.trial.blocks import MOST
from dpsweep.trainers.engines.gradients.layers import LAYERS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "engine.md").read_text()


def test_the_numbers_of_the_page_are_computed() -> None:
    failed, attempted = doctest.testfile(str(ROOT / "docs" / "engine.md"), module_relative=False)
    assert attempted > 0
    assert failed == 0


def test_the_engines_and_layers_are_those_that_there_are() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    assert named == {path.stem for path in (ROOT / "conf" / "engine").glob("*.yaml")}
    assert ", ".join(layer.__name__ for layer in LAYERS) in PAGE


def test_a_job_has_as_many_points_as_the_page_says() -> None:
    assert f"up to {MOST} points of a block" in PAGE
