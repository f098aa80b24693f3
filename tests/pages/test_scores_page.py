"""docs/scores.md is true: its numbers are computed, its scores and metrics are those that there are."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from dpsweep.accounting.stored_names.tags import FAMILY_OF
from dpsweep.trainers.declarations.metrics import ACCURACY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scores.md").read_text()


def test_the_numbers_of_the_page_are_computed() -> None:
    failed, attempted = doctest.testfile(str(ROOT / "docs" / "scores.md"), module_relative=False)
    assert attempted > 0
    assert failed == 0


def test_the_scores_and_metrics_are_those_that_there_are() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    scores = {path.stem for path in (ROOT / "conf" / "score").glob("*.yaml")}
    metrics = {tag for tag, family in FAMILY_OF.items() if family == "metric"}
    assert named == scores | metrics | {ACCURACY}
