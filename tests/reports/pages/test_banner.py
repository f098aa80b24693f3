"""The banner of the curator's page: that it is for the curator alone, and the command that makes a page to share."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dpsweep.reports.pages.curator_page import write_report

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (0.5, 1)}}
SHARED = "dpsweep release makes the page that may be shared."
SweepOf = Callable[..., Any]


def banner(page: Path) -> str:
    """The words of the banner."""
    ((words),) = re.findall(r'<div class="banner \w+" role="note">(.*?)</div>', page.read_text(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", "", words)).split())


@pytest.mark.parametrize("fates", [{}, {1: "failed"}])
def test_the_page_is_for_the_curator_alone_and_a_command_makes_another(
    sweep_of: SweepOf, fates: dict[int, str]
) -> None:
    made = sweep_of(AXES, fates=fates)
    assert banner(write_report(made.folder, made.ledger)) == f"For you alone: do not pass this page on. {SHARED}"


def test_nothing_may_be_shown_of_what_the_records_contradict(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, randomness="reproducible")
    page = write_report(made.folder, made.ledger)
    assert "nothing of this page may be shown" in banner(page)
    assert SHARED not in banner(page)
    assert "For a paper" not in page.read_text()


def test_a_search_without_a_winner_has_no_page_to_share(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1,)}}, fates={0: "failed"})
    assert banner(write_report(made.folder, made.ledger)) == "For you alone: do not pass this page on."
