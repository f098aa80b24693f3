"""What leaves a search that hides its losers: the winner, and nothing that counts tries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.searches.stored_draw import SearchOutcome
from dpsweep.accounting.selection.interface import Draw
from dpsweep.reports.pages.comparison import release_sweeps, write_comparison
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release
from tests.randomized import SEARCHES
from tests.sweeper.search_programs import (
    ONCE,
    POISSON,
    SELECTION,
    Place,
    Program,
    bodies,
    folder_of,
    released,
    result_of,
    work,
)

pytestmark = SEARCHES
WIDE = (*SELECTION, "privacy.noise_multiplier=3,4")
"""Eight points."""


def test_no_file_that_leaves_tells_the_number_of_tries_or_anything_of_losers(
    place: Callable[..., Place], tmp_path: Path
) -> None:
    """Two searches that differ in K, in losers, in their fates, and agree in the winner, look the same."""
    searches = (
        ((5,), {0: 0.6}),
        (
            (0, 7, 2, 5, 5, 1, 1, 6),
            {0: 0.1, 1: "failed", 2: None, 3: 0.6, 4: 0.6, 5: "diverged", 6: 0.59999, 7: "failed"},
        ),
        ((5, 5), {0: None, 1: 0.6}),
    )
    seen, books, budgets = [], [], []
    for number, (tries, fates) in enumerate(searches):
        ledger = Ledger(tmp_path / f"{number}.sqlite")
        here = place(WIDE, root=str(number), own=ledger)
        assert work(here.plant(Draw(tries=tries)), fates) == list(range(len(tries)))
        write_report(here.folder.root, ledger)
        seen.append(released(here))
        books.append(bodies(ledger))
        budgets.append(
            [(charge.body["epsilon"], charge.body["trials"]) for charge in ledger.statement("digits").charges]
        )
    assert seen[0] == seen[1] == seen[2]
    assert books[0] == books[1] == books[2]
    assert budgets[0] == budgets[1] == budgets[2]
    command = json.loads(seen[1]["report.json"])["repeat"]
    assert command.startswith("dpsweep sweep dataset=... trainer=")
    assert all(word in command for word in ("tuning=private_selection", "tuning.mean=3", "privacy.noise_multiplier="))
    assert not any(word in command for word in ("digits", "seed", "/", here.plan.id)), "the public record alone"
    told = [content.decode() for name, content in seen[1].items() if not name.endswith((".png", ".pdf"))]
    text = " ".join(re.sub(r"<[^>]*>", " ", content) for content in told)
    for secret in ("59.9", "10.0 %", "failed<", "gone", "2026-01-01", "seconds", here.plan.id):
        assert secret not in text, secret


def test_beside_others_it_tells_no_more(
    place: Callable[..., Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two searches that differ in K and in losers look the same side by side with another, to their curator too."""
    monkeypatch.chdir(tmp_path)
    searches = (((5,), {0: 0.6}), ((0, 5, 1), {0: 0.1, 1: 0.6, 2: "failed"}))
    seen = []
    for number, (tries, fates) in enumerate(searches):
        ledger = Ledger(tmp_path / f"{number}.sqlite")
        monkeypatch.setenv("DPSWEEP_LEDGER", str(ledger.path))
        here, other = (place(line, root=str(number), own=ledger) for line in (WIDE, POISSON))
        work(here.plant(Draw(tries=tries)), fates)
        work(other.plant(Draw(tries=(3,))), {0: 0.5})
        folders = [here.folder.root, other.folder.root]
        pages = write_comparison(folders, tmp_path / str(number)), [*release_sweeps(folders)][-1]
        seen.append([page.with_suffix(suffix).read_text() for page in pages for suffix in (".html", ".json")])
        assert not [*pages[0].parent.glob("*.png")], "no map"
    assert seen[0] == seen[1]
    assert "a secret number of tries" in seen[0][2]


def test_a_draw_of_no_tries_is_released_as_nothing(program: Program, place: Callable[..., Place]) -> None:
    here = place(POISSON)
    here.plant(Draw(tries=()))
    folder = folder_of(program(*POISSON))
    assert folder.root == here.folder.root
    assert SearchOutcome.read(folder.outcome_path) == SearchOutcome(attempt=1, winner=None)
    assert [entry.kind for entry in here.ledger.statement("digits").entries] == [
        "open",
        *ONCE,
        "launch",
        "data",
        "launch",
    ]
    empty = released(here)
    assert b"The search has no winner" in empty["report.html"]
    assert json.loads(empty["report.json"])["outcome"].startswith("The search has no winner")


def test_a_search_whose_tries_all_died_is_released_as_one_that_made_none(
    place: Callable[..., Place], tmp_path: Path
) -> None:
    nothing, dead = place(POISSON, root="a", own=Ledger(tmp_path / "a.sqlite")), place(POISSON, root="b")
    work(nothing.plant(Draw(tries=())), {})
    work(dead.plant(Draw(tries=(3, 1, 0))), {0: "failed", 1: None, 2: "diverged"})
    assert released(nothing) == released(dead)


def test_what_comes_after_the_winner_changes_nothing(place: Callable[..., Place]) -> None:
    """A job that was given up may write its result days later."""
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1)))
    work(log, {0: None, 1: 0.4})
    before = released(here)
    late = log.drawn_tries_in_current_state()[0].trial
    result_of(late, 0.99).write(here.folder.trial_folder(late.id))
    work(here.admit(), {})
    assert released(here) == before


def test_the_curators_page_shows_every_try_and_says_that_none_may_leave(place: Callable[..., Place]) -> None:
    here = place(SELECTION)
    work(here.plant(Draw(tries=(0, 0, 3))), {0: 0.5, 1: "failed", 2: 0.25})
    page = write_report(here.folder.root, here.ledger)
    html, form = page.read_text(), json.loads((page.parent / "report.json").read_text())
    assert [row["accuracy"] for row in form["trials"]["rows"]] == [0.5, None, 0.25]
    assert "For you alone" in html
    assert "of 3 finished" in re.sub(r"<[^>]*>", "", html)
    assert "Try 2: OSError: gone" in html
    assert "<figure" not in html, "a map would show points that were not drawn as missing"
    here.folder.draw_path.unlink()
    write_report(here.folder.root, here.ledger)
    assert "its draw is lost" in verify_sweep_folder_and_describe(here.folder.root, here.ledger)


def test_a_seed_makes_no_release_even_if_nothing_was_tried(place: Callable[..., Place]) -> None:
    here = place((*POISSON, "seed=7"))
    work(here.plant(Draw(tries=())), {})
    with pytest.raises(BadInput, match="NOT a private release"):
        write_release(here.folder.root, here.ledger)


def test_verify_finds_a_run_that_was_not_drawn_and_one_that_was_not_declared(place: Callable[..., Place]) -> None:
    here = place(SELECTION)
    log = here.plant(Draw(tries=(0, 1)))
    work(log, {0: 0.5, 1: 0.6})
    assert "ran nothing but its draw" in verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    trial = log.drawn_tries_in_current_state()[0].trial
    result = here.folder.trial_folder(trial.id) / "result.json"
    kept = result.read_text()
    form = json.loads(kept)
    form["event"] = events.to_json(events.repeat(trial.event.training, 2))
    result.write_text(json.dumps(form))
    with pytest.raises(ContractBroken, match="ran something else"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)
    result.write_text(kept)
    (here.folder.trial_folder("another") / "claim-1").parent.mkdir()
    (here.folder.trial_folder("another") / "claim-1").touch()
    with pytest.raises(ContractBroken, match="without a place in the draw"):
        verify_sweep_folder_and_describe(here.folder.root, here.ledger)
