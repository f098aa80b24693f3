"""docs/reproduction.md names the figures that there are, and those alone."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dpsweep.reports.reproduction.finding import Trained, figure_names, find_figure
from tests.printed_numbers import differences

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reproduction.md").read_text()
SUMMARY = PAGE.partition("<!-- summary: python docs/generators/gallery.py -->")[2].partition("<!-- end of summary -->")[
    0
]


def first_cells(heading: str) -> list[str]:
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in part.splitlines() if line.startswith("| `")))


def test_one_line_per_figure_and_none_that_is_missing() -> None:
    assert tuple(sorted(first_cells("Figures"))) == figure_names()
    assert not set(first_cells("Missing")) & set(figure_names())


def test_what_needs_no_training_is_said_to() -> None:
    for line in PAGE.splitlines():
        if (name := re.match(r"\| `(\w+)` \| [YMB]", line)) and name[1] in figure_names():
            assert line.endswith("| none |") is not isinstance(find_figure(name[1]), Trained)


def test_every_command_of_the_page_names_a_figure_and_a_scale_that_exist() -> None:
    from dpsweep.sweeper.commands.hydra_app import FULL, REDUCED

    assert set(re.findall(r"(?:FIGURE|experiment)=([a-d]_\w+)", PAGE)) <= set(figure_names())
    assert set(re.findall(r"(?:SCALE|scale)=(\w+)", PAGE)) <= {FULL, *REDUCED}


LARGE = ("a_fig3_c", "a_fig4", "a_fig5")
"""Figures with thousands of stored runs; a shorter run leaves them out, and has the others of each kind."""


@pytest.fixture(scope="module")
def gallery() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generators" / "gallery.py"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name.startswith(LARGE) else []) for name in figure_names()]
)
def test_the_page_says_what_the_stored_results_give(gallery: dict[str, Any], name: str) -> None:
    """The section of a figure, and its lines in the summary."""
    made = gallery["make"](name)
    printed = gallery["sections"](PAGE)[name]
    assert differences(gallery["section"](name, made).strip(), printed.strip()) == [], (
        "run `python docs/generators/gallery.py`"
    )
    for finding in () if made is None else made.reproduction.findings:
        begins = f"| {gallery['_cell'](finding.topic)} | {gallery['paper'](made.reproduction.source)}"
        (row,) = [line for line in summary_rows() if line.startswith(begins)]
        assert gallery["entry"](made, finding)[0] in row


def test_the_overview_says_what_the_summary_says() -> None:
    """One line for each claim, with as many tests of each verdict, and the interval of the first one."""
    overview = PAGE.partition("<!-- overview: python docs/generators/gallery.py -->")[2].partition(
        "<!-- end of overview -->"
    )[0]
    lines = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in overview.strip().splitlines()[2:]]
    rows = [re.split(r"(?<!\\) ?\| ?", row)[1:-1] for row in summary_rows()]
    assert [line[0] for line in lines] == [row[0] for row in rows]
    for (_, place, tally, interval), (_, paper, verdicts, intervals) in zip(lines, rows, strict=True):
        every = re.findall(r"\*\*(\w+)", verdicts)
        said = {word: int(count or 1) for word, count in re.findall(r"\*\*(\w+)[^*]*\*\*(?: \((\d))?", tally)}
        assert said == Counter(every)
        first = intervals.partition("<br>")[0]
        assert interval.endswith("computed" if first.startswith("computed") else first)
        assert place.split(" ")[0].rstrip(",") == paper.split(" ")[0].removesuffix("'s")


def summary_rows() -> list[str]:
    return [line for line in SUMMARY.splitlines() if line.startswith("| ")][1:]


def test_the_summary_has_every_verdict_of_the_gallery_and_no_other(gallery: dict[str, Any]) -> None:
    verdicts = re.compile(r"\*\*((?:holds|refuted|undecided)[^*]*)\*\*")
    every = "".join(gallery["sections"](PAGE).values())
    assert sorted(verdicts.findall("\n".join(summary_rows()))) == sorted(verdicts.findall(every))
    for name in figure_names():
        assert (f"`{name}`" in SUMMARY) is (name not in gallery["NEEDS_GPU"])


def test_every_picture_is_drawn_from_the_stored_results(gallery: dict[str, Any]) -> None:
    for name in figure_names():
        picture = DOCS / "figures" / f"{name}.png"
        assert picture.is_file() is (f"(figures/{name}.png)" in PAGE)
        if picture.is_file():
            with Image.open(picture) as drawn:
                assert drawn.info["results"] == gallery["results_digest"](name), (
                    "run `python docs/generators/gallery.py`"
                )


def test_the_stored_results_are_small_and_each_belongs_to_a_figure(gallery: dict[str, Any]) -> None:
    files = list((DOCS / "full_size").iterdir())
    trained = {name for name in figure_names() if isinstance(find_figure(name), Trained)}
    assert {file.name.removesuffix(".json.xz") for file in files} <= trained
    assert sum(file.stat().st_size for file in files) < 5e6


def test_results_that_were_made_are_copied_and_others_stay(gallery: dict[str, Any], tmp_path: Path) -> None:
    stored = gallery["copy"].__globals__
    before, stored["STORED"] = stored["STORED"], tmp_path / "stored"
    try:
        (tmp_path / "b_fig6" / "full").mkdir(parents=True)
        (tmp_path / "b_fig6" / "full" / "results.json.xz").write_bytes(b"new")
        gallery["copy"](tmp_path)
        assert [file.name for file in (tmp_path / "stored").iterdir()] == ["b_fig6.json.xz"]
    finally:
        stored["STORED"] = before


def test_a_figure_without_results_says_so(gallery: dict[str, Any]) -> None:
    assert "Untested: ResNet20 at full size needs a GPU" in gallery["section"]("a_fig3", None)
    assert "Not trained yet" in gallery["section"]("b_fig6", None)
    assert "RoBERTa-base" in SUMMARY
    assert "ResNet20" in SUMMARY
