"""What an exhibit declares that it needs decides on which pages it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.reports.content.audience import Audience, Needs, Reader
from dpsweep.reports.content.facts import Bill
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.exhibits import catalogue
from dpsweep.reports.exhibits.exhibit import DeclaredExhibit, Exhibit
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release

AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)}}
WINNER = frozenset({Disclosure.WINNER, Disclosure.WINNER_SCORE})
SweepOf = Callable[..., Any]
Write = Callable[[Path, Any], Path]


def scores_of(sweep: Sweep, bill: Bill) -> Exhibit:
    """Every score that it can read."""
    findings = tuple(f"score {score:.6f}" for score in sweep.table["accuracy"].dropna())
    return Exhibit(key="added", title="All scores", note="", source="trials/*/result.json", findings=findings)


@pytest.fixture
def page_with(monkeypatch: pytest.MonkeyPatch, sweep_of: SweepOf) -> Callable[..., Any]:
    """What a page of a sweep says in an exhibit that needs so much; None where it is left out."""

    def exhibit(needs: Needs, write: Write, **recipe: Any) -> Any:
        added = DeclaredExhibit(needs=needs, make=scores_of)
        monkeypatch.setattr(catalogue, "FINDINGS", (*catalogue.FINDINGS, added))
        made = sweep_of(AXES, accuracy=lambda place: 0.3 + place / 1000, **recipe)
        page = write(made.folder, made.ledger)
        form = json.loads((page.parent / "report.json").read_text())
        assert ("All scores" in page.read_text()) == ("added" in form["exhibits"])
        return form["exhibits"].get("added", {}).get("findings")

    return exhibit


def test_what_needs_all_scores_is_left_out_of_a_release_of_the_winner(
    page_with: Callable[..., Any], only_winner: dict[str, str]
) -> None:
    assert page_with(Needs.ALL_SCORES, write_release, rule=only_winner) is None


def test_what_needs_all_scores_is_released_where_every_run_is_paid_for(page_with: Callable[..., Any]) -> None:
    assert len(page_with(Needs.ALL_SCORES, write_release)) == 6


@pytest.mark.parametrize("needs", [Needs.NOTHING, Needs.WINNER, Needs.WINNER_SCORE])
def test_what_declares_too_little_still_reads_the_winner_alone(
    page_with: Callable[..., Any], only_winner: dict[str, str], needs: Needs
) -> None:
    assert page_with(needs, write_release, rule=only_winner) == ["score 0.305000"]


def test_what_is_the_curators_stays_with_the_curator(page_with: Callable[..., Any]) -> None:
    assert page_with(Needs.CURATOR, write_release) is None


def test_the_curator_sees_it(page_with: Callable[..., Any], only_winner: dict[str, str]) -> None:
    assert len(page_with(Needs.CURATOR, write_report, rule=only_winner)) == 6


@pytest.mark.parametrize("needs", list(Needs))
@pytest.mark.parametrize(
    ("disclosed", "visible"),
    [
        (frozenset(), {Needs.NOTHING}),
        (frozenset({Disclosure.WINNER}), {Needs.NOTHING, Needs.WINNER}),
        (WINNER, {Needs.NOTHING, Needs.WINNER, Needs.WINNER_SCORE}),
        (frozenset(Disclosure), set(Needs) - {Needs.CURATOR}),
    ],
    ids=["nothing", "winner", "its score", "everything"],
)
def test_a_reader_sees_what_the_rule_discloses(
    needs: Needs, disclosed: frozenset[Disclosure], visible: set[Needs]
) -> None:
    assert Reader(audience=Audience.PUBLIC, disclosed=disclosed).may_see(needs) == (needs in visible)
    assert Reader(audience=Audience.CURATOR, disclosed=disclosed).may_see(needs)


def test_a_release_holds_no_exhibit_that_its_price_does_not_cover(
    sweep_of: SweepOf, only_winner: dict[str, str]
) -> None:
    fates = {1: "failed", 3: "diverged", 4: "killed"}
    made = sweep_of(AXES, rule=only_winner, fates=fates)
    path = write_release(made.folder, made.ledger)
    assert set(json.loads((path.parent / "report.json").read_text())["exhibits"]) == {"privacy"}
