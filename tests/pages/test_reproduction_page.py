"""docs/reproduction.md names the figures that there are, and those alone."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dpsweep.reports.reproduction.claims import BOTH, gains_over_dpsgd_by_noise, rows_by_whether_dpsgd_learned
from dpsweep.reports.reproduction.finding import Trained, figure_names, find_figure
from dpsweep.reports.reproduction.registry import CLAIMS, rows_by_names_of_yu
from dpsweep.reports.reproduction.results import read_results
from tests.printed_numbers import differences

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reproduction.md").read_text()


def part(name: str) -> str:
    """The page between two marks."""
    return PAGE.partition(f"<!-- {name}: python docs/generators/gallery.py -->")[2].partition(
        f"<!-- end of {name} -->"
    )[0]


def first_cells(heading: str) -> dict[str, str]:
    """The lines of a section's tables by the figures in their first cells."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = (line for line in part.splitlines() if line.startswith("| `"))
    return {name: line for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_each_figure_is_listed_and_what_needs_no_training_is_said_to() -> None:
    listed = first_cells("The figures")
    assert tuple(sorted(listed)) == figure_names()
    for name, line in listed.items():
        assert line.endswith("| none |") is not isinstance(find_figure(name), Trained)


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
def test_the_tables_say_what_the_stored_results_give(gallery: dict[str, Any], name: str) -> None:
    """A row for each claim that the figure's table tests, for no other, and the figure's own row."""
    made, read = gallery["make"](name), gallery["read_table"]
    rows = [] if made is None else gallery["in_order"](gallery["claim_rows"](made))
    figures = [] if made is None else [gallery["figure_row"](made)]
    for table, computed in (("claims", rows), ("figures", figures)):
        stored = [row for row in read(table) if row["figure"] == name]
        assert [differences(text(row), text(printed)) for row, printed in zip(computed, stored, strict=True)] == [
            [] for _ in computed
        ], "run `python docs/generators/gallery.py`"
    assert made is None or f"![{made.reproduction.title}](figures/{name}.png)" in PAGE
    assert all(sentence in PAGE for sentence in (() if made is None else made.reproduction.differences))


def text(row: dict[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in row.items() if value)


def test_the_gains_are_those_of_the_stored_results(gallery: dict[str, Any]) -> None:
    stored = [row for row in gallery["read_table"]("gains") if row["figure"] == "a_fig3_mnist"]
    assert [dict(row) for row in gallery["gain_rows"](gallery["make"]("a_fig3_mnist"))] == stored


def test_the_overview_is_made_of_the_rows(gallery: dict[str, Any]) -> None:
    """The gravest first, then paper by paper; claims of our own apart; each claim once."""
    rows = gallery["read_table"]("claims")
    assert gallery["overview"](rows).strip() == part("overview").strip()
    assert gallery["in_order"](rows) == rows
    assert [row["figure"] == "a_price" for row in rows][:3] == [True, True, False]
    assert {row["claim"] for row in rows if row["made by"] == "us"} == {claim.topic for claim in CLAIMS if claim.ours}
    told = re.findall(r"^\| ((?:[^|\\]|\\\|)+?) \| \*\*", part("overview"), re.MULTILINE)
    assert [claim.replace("\\|", "|") for claim in told] == list(dict.fromkeys(row["claim"] for row in rows))


def test_the_overview_counts_verdicts_and_joins_equal_tables(gallery: dict[str, Any]) -> None:
    row = gallery["read_table"]("claims")[2]
    blind = row | {"verdict": "undecided", "interval": "", "data": "MNIST"}
    sure = row | {
        "verdict": "holds",
        "interval": "2.0 points [1.0, 3.0]",
        "holds": "holds up to a margin of 1.0 points",
    }
    scoped = row | {"verdict": "refuted at sigma 1.2", "chance": "no", "interval": "", "numbers": "1 > 0", "holds": ""}
    assert gallery["tally"]([blind, blind, scoped, sure]) == (
        f"**holds**: {row['data']}: 2.0 points [1.0, 3.0] (up to 1.0); **refuted at sigma 1.2**: 1 > 0; "
        "**undecided**: MNIST x2"
    )
    assert gallery["counts"]([blind, scoped, sure], "claims") == (
        "1 claims, 3 tests: **holds** 1; **refuted** 1; **undecided** 1."
    )


def test_every_margin_is_told_with_its_source(gallery: dict[str, Any]) -> None:
    assert part("margins").strip() == gallery["margin_table"]().strip()


def test_what_was_changed_after_results_were_seen_is_so() -> None:
    """The tables are older than the day that the page names, and the gain is over a network that has not learned."""
    tables = {file.name: read_results(file) for file in (DOCS / "full_size").iterdir()}
    text = " ".join(PAGE.split())
    (day,) = re.findall(r"Every other stored table was trained before ([\d-]+);", text)
    (named,) = re.findall(
        r"For ((?:`\w+`(?:, | and )?)+) the criteria were committed before the tables were read", text
    )
    (again,) = re.findall(r"((?:`\w+`(?:, | and )?)+) were trained again, with ten repetitions", text)
    new = {f"{name}.json.xz" for name in re.findall(r"`(\w+)`", named + again)}
    old = {f"{name}.json.xz" for name in figure_names()} - new
    assert max(results.facts.ended[:10] for name, results in tables.items() if name in old) < day
    rows = rows_by_names_of_yu(tables["d_fig2.json.xz"])
    _, left_out = rows_by_whether_dpsgd_learned(rows)
    (gain,) = gains_over_dpsgd_by_noise(left_out, BOTH).values()
    assert f"one such gain, of {100 * gain.value:.0f} points" in text


def test_every_figure_without_results_is_listed_with_a_reason() -> None:
    listed = first_cells("What was not run")
    stored = {file.name.removesuffix(".json.xz") for file in (DOCS / "full_size").iterdir()}
    trained = {name for name in figure_names() if isinstance(find_figure(name), Trained)}
    assert trained - stored <= listed.keys()


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
