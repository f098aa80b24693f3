"""A page is drawn again if anything that it is made from changed, or if one of its files did; else it stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.reports.pages import curator_page, page_memory
from dpsweep.reports.pages.page_memory import redraw_report_if_outdated
from dpsweep.sweeper.searches.admission import Retry
from tests.sweeper.proposing import run
from tests.sweeper.search_programs import GRID, Place

Drawn = list[Path]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """The folders whose page was drawn."""
    folders: Drawn = []
    draw = curator_page.write_report

    def noted(folder: Path, ledger: Ledger) -> Path:
        folders.append(folder)
        return draw(folder, ledger)

    monkeypatch.setattr(curator_page, "write_report", noted)
    return folders


@pytest.fixture
def here(place: Callable[..., Place]) -> Place:
    """A sweep of four points of which two ran."""
    sweep = place(GRID)
    work = sweep.begin(Retry.KILLED)
    run(sweep, work, work.due[:2])
    return sweep


def test_an_unchanged_page_is_not_drawn_again(here: Place, drawn: Drawn) -> None:
    page = redraw_report_if_outdated(here.folder.root, here.ledger)
    before = {path: path.stat().st_mtime_ns for path in page.parent.iterdir()}
    assert redraw_report_if_outdated(here.folder.root, here.ledger) == page
    assert len(drawn) == 1
    assert {path: path.stat().st_mtime_ns for path in page.parent.iterdir()} == before


def _new_result(here: Place) -> None:
    work = here.begin(Retry.NONE)
    run(here, work, work.due[:1])


def _edited(name: str) -> Callable[[Place], None]:
    def edit(here: Place) -> None:
        path = here.folder.root / name
        path.write_bytes(path.read_bytes() + b" ")

    return edit


def _deleted(here: Place) -> None:
    (here.folder.root / "curator" / "heatmap.png").unlink()


@pytest.mark.parametrize(
    "change",
    [_new_result, _edited("curator/report.html"), _edited("curator/heatmap.svg"), _deleted, _edited("multirun.yaml")],
    ids=["result", "page", "picture", "deleted", "command"],
)
def test_a_change_draws_the_page_again(here: Place, drawn: Drawn, change: Callable[[Place], None]) -> None:
    (here.folder.root / "multirun.yaml").write_text("hydra: {}")
    page = redraw_report_if_outdated(here.folder.root, here.ledger)
    first = page.read_text()
    change(here)
    assert redraw_report_if_outdated(here.folder.root, here.ledger) == page
    assert len(drawn) == 2
    if change is not _new_result:
        assert page.read_text() == first


def test_other_code_or_other_libraries_draw_the_page_again(
    here: Place, drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    redraw_report_if_outdated(here.folder.root, here.ledger)
    monkeypatch.setattr(page_memory, "_digest_of_program_and_libraries", lambda: "another")
    redraw_report_if_outdated(here.folder.root, here.ledger)
    assert len(drawn) == 2


def test_a_line_in_the_ledger_draws_the_page_again(here: Place, drawn: Drawn) -> None:
    redraw_report_if_outdated(here.folder.root, here.ledger)
    here.begin(Retry.NONE)  # a launch
    redraw_report_if_outdated(here.folder.root, here.ledger)
    assert len(drawn) == 2


def test_a_folder_cannot_say_itself_that_its_page_is_current(here: Place, drawn: Drawn) -> None:
    """The memory is in the private store; a copy of it in the folder is one more file."""
    page = redraw_report_if_outdated(here.folder.root, here.ledger)
    memory = here.folder.private_store.root / page_memory.MEMORY_FILE
    assert memory.stat().st_mode & 0o077 == 0
    (here.folder.root / page_memory.MEMORY_FILE).write_bytes(memory.read_bytes())
    page.write_text("forged")
    redraw_report_if_outdated(here.folder.root, here.ledger)
    assert len(drawn) == 2
    assert "forged" not in page.read_text()


def test_a_damaged_memory_costs_a_drawing(here: Place, drawn: Drawn) -> None:
    redraw_report_if_outdated(here.folder.root, here.ledger)
    (here.folder.private_store.root / page_memory.MEMORY_FILE).write_text("{")
    redraw_report_if_outdated(here.folder.root, here.ledger)
    assert len(drawn) == 2
    form = json.loads((here.folder.private_store.root / page_memory.MEMORY_FILE).read_text())
    assert set(form) == {"inputs", "files"}


def test_what_is_no_sweep_is_refused_as_ever(tmp_path: Path, ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="to be the folder of a sweep"):
        redraw_report_if_outdated(tmp_path, ledger)
