"""The banner of the curator's page: what the price covers, by rule and by what came of the runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)}}
SweepOf = Callable[..., Any]


def banner(page: Path) -> tuple[str, str]:
    """What the banner says the price does not cover, and what it covers; both empty if it says neither."""
    ((words),) = re.findall(r'<div class="banner \w+" role="note">(.*?)</div>', page.read_text(), flags=re.DOTALL)
    text = unescape(re.sub(r"<[^>]*>", "", words))
    assert "do not pass this page on" in text
    parts = re.findall(r"(?:The price covers (.*?), which you may show\. )?The price does not cover (.*?)\.", text)
    return parts[0][::-1] if parts else ("", "")


def test_under_composition_maps_and_scores_may_be_shown(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    uncovered, covered = banner(write_report(made.folder, made.ledger))
    for part in ("the best point", "its score", "the scores of all runs", "the maps", "“What mattered”"):
        assert part in covered
    for part in ("the account's budget", "times and folders of runs", "the charges", "“Reproduce and verify”"):
        assert part in uncovered


def test_maps_that_say_why_runs_have_no_score_stay_with_the_curator(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates={1: "failed"})
    uncovered, covered = banner(write_report(made.folder, made.ledger))
    assert "why runs have no score, which the maps show too" in uncovered
    assert "the maps" not in covered
    assert "the scores of all runs" in covered


def test_what_is_said_to_be_covered_is_in_the_release(sweep_of: SweepOf, only_winner: dict[str, str]) -> None:
    made = sweep_of(AXES, rule=only_winner)
    uncovered, covered = banner(write_report(made.folder, made.ledger))
    assert "the best point" in covered
    assert "its score" in covered
    released = write_release(made.folder, made.ledger).read_text()
    for title in re.findall("“(.*?)”", covered):
        assert re.search(f">{re.escape(title)}</h[23]>", released)
    for title in re.findall("“(.*?)”", uncovered):
        assert not re.search(f">{re.escape(title)}</h[23]>", released)
    assert {"the scores of all runs", "the conclusion", "the maps"} <= set(re.split(", | and ", uncovered))


def test_nothing_may_be_shown_of_what_the_records_contradict(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, randomness="reproducible")
    page = write_report(made.folder, made.ledger)
    assert banner(page) == ("", "")
    assert "nothing of this page may be shown" in page.read_text()
    assert "For a paper" not in page.read_text()


def test_a_sweep_without_a_score_covers_no_score(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1,)}}, fates={0: "failed"})
    uncovered, covered = banner(write_report(made.folder, made.ledger))
    assert "score" not in covered
    assert "why runs have no score" in uncovered
