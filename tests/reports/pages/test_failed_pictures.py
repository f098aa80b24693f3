"""A picture that fails costs neither the page nor the exit code: the page names it in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from dpsweep.accounting.records.sweep_folder import private_store_of_plan
from dpsweep.reports.figures import charts
from dpsweep.reports.pages.comparison import write_comparison
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.page_memory import FAILED, failed_picture_sentences
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.commands import cli
from tests.reports.pages.test_page import Reader

SweepOf = Callable[..., Any]
AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)}}
SECRET = "/home/alice/latex"
MAPS = ("heatmap", "heatmap-dpsgd")


@pytest.fixture
def no_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts with axes of their own stop; maps do not."""

    def fails(*_: object) -> None:
        raise RuntimeError(f"Failed to process <b>: no latex\x1b in {SECRET}")

    monkeypatch.setattr(charts, "style_axes", fails)


@pytest.fixture
def no_pdf(monkeypatch: pytest.MonkeyPatch) -> None:
    """No PDF file of a figure can be written, except that of the statement, which is written otherwise."""
    save = Figure.savefig

    def savefig(figure: Figure, *arguments: Any, **options: Any) -> None:
        if options.get("format") == "pdf" and "Title" not in options["metadata"]:
            raise ValueError(f"no font in {SECRET}")
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)


def _names(folder: Path, suffix: str) -> set[str]:
    return {path.stem for path in folder.glob(f"*.{suffix}")}


def test_the_page_stands_and_names_what_failed(sweep_of: SweepOf, request: pytest.FixtureRequest) -> None:
    made = sweep_of(AXES)
    whole = write_report(made.folder, made.ledger)
    drawn = _names(whole.parent, "png")
    assert failed_picture_sentences(whole) == ()
    before = json.loads((whole.parent / "report.json").read_text())
    request.getfixturevalue("no_chart")
    page = write_report(made.folder, made.ledger)
    form = json.loads((page.parent / "report.json").read_text())
    failed = set(form.pop(FAILED))
    assert failed == drawn - set(MAPS)
    assert failed, "there are charts"
    assert form == before, "every number, the price first, stands"
    assert _names(page.parent, "png") == _names(page.parent, "svg") == set(MAPS), "no older picture stays"
    text = "".join(Reader(page.read_text()).texts)
    for name in failed:
        assert f"The picture {name} could not be drawn: RuntimeError: Failed to process <b>: no latex\\x1b in" in text
    for name in MAPS:
        assert f"The picture {name} " not in text


def test_a_release_names_what_failed_without_what_lies_on_the_machine(sweep_of: SweepOf, no_chart: None) -> None:
    made = sweep_of(AXES)
    page = write_release(made.folder, made.ledger)
    text = "".join(Reader(page.read_text()).texts)
    for name in json.loads((page.parent / "report.json").read_text())[FAILED]:
        assert f"The picture {name} could not be drawn: RuntimeError." in text
    for path in page.parent.rglob("*"):
        assert SECRET.encode() not in path.read_bytes(), path
    assert _names(page.parent, "pdf") == {*MAPS, "statement"}


def test_a_release_without_its_pdf_files_names_every_picture(sweep_of: SweepOf, no_pdf: None) -> None:
    made = sweep_of(AXES)
    page = write_release(made.folder, made.ledger)
    assert set(json.loads((page.parent / "report.json").read_text())[FAILED]) >= set(MAPS)
    assert _names(page.parent, "png") == set()
    text = "".join(Reader(page.read_text()).texts)
    for name in MAPS:
        assert f"The picture {name} could not be drawn: ValueError." in text
    assert 'class="cells"' in page.read_text(), "the page's own map is no picture"


def test_the_command_ends_well_and_says_a_line_for_each(
    sweep_of: SweepOf, no_chart: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sweep_of(AXES)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(made.ledger.path))
    cli.report([str(made.folder)])
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == str(made.folder / "curator" / "report.html")
    failed = failed_picture_sentences(made.folder / "curator" / "report.html")
    assert tuple(err.splitlines()) == tuple(sentence.replace("\x1b", "\\x1b") for sentence in failed)
    assert failed


def test_a_map_that_fails_leaves_its_numbers(sweep_of: SweepOf, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    made = sweep_of(AXES)
    monkeypatch.setattr(Figure, "savefig", fails)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(made.ledger.path))
    for page, names in (
        (write_report(made.folder, made.ledger), MAPS),
        (write_comparison([made.folder], made.folder.parent / "beside"), MAPS[:1]),
    ):
        text = page.read_text()
        assert len(failed_picture_sentences(page)) >= len(names)
        for name in names:
            assert f"The picture {name} could not be drawn: MemoryError" in text
        assert "as a table" in text
        assert text.count("<label") == 6, "the map in the page is no picture"
        Reader(text)


def test_what_failed_is_drawn_again(sweep_of: SweepOf, request: pytest.FixtureRequest) -> None:
    """A page with a failed picture is not remembered as the page."""
    from dpsweep.reports.pages.page_memory import redraw_report_if_outdated

    made = sweep_of(AXES)
    private_store_of_plan(made.ledger, made.plan.account, made.plan.id).root.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "style_axes", lambda *_: 1 / 0)
        assert failed_picture_sentences(redraw_report_if_outdated(made.folder, made.ledger)) != ()
    page = redraw_report_if_outdated(made.folder, made.ledger)
    assert failed_picture_sentences(page) == ()
    assert {"collapse-1", "privacy"} <= _names(page.parent, "png")
