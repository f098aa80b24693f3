"""docs/reproduction.md names the figures that there are, and those alone."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dpsweep.reports.reproduction.claims import BOTH, gains_over_dpsgd_by_noise, rows_by_whether_dpsgd_learned
from dpsweep.reports.reproduction.finding import Trained, figure_names, find_figure
from dpsweep.reports.reproduction.registry import CLAIMS, rows_by_names_of_yu
from dpsweep.reports.reproduction.results import read_results
from dpsweep.reports.statistics.verdict import Verdict
from tests.printed_numbers import differences

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reproduction.md").read_text()


def part(name: str) -> str:
    """The page between two marks."""
    return PAGE.partition(f"<!-- {name}: python docs/generators/gallery.py -->")[2].partition(
        f"<!-- end of {name} -->"
    )[0]


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
    """The section of a figure, and a row for each claim that its table tests, and for no other."""
    made = gallery["make"](name)
    printed = gallery["sections"](PAGE)[name]
    assert differences(gallery["section"](name, made).strip(), printed.strip()) == [], (
        "run `python docs/generators/gallery.py`"
    )
    findings = () if made is None else made.reproduction.findings
    rows = {finding.topic: gallery["detail_row"](made, finding).strip() for finding in findings}
    told = {
        topic: row
        for topic, text in topics().items()
        for row in text.splitlines()
        if re.match(rf"\|[^|]*`{name}` \|", row)
    }
    assert told.keys() == rows.keys()
    assert [differences(rows[topic], told[topic]) for topic in rows if differences(rows[topic], told[topic])] == []


def topics() -> dict[str, str]:
    """The part of the page on each claim."""
    return dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", part("details"), re.MULTILINE | re.DOTALL))


VERDICT = re.compile(r"\*\*((?:holds|same direction|refuted|undecided)[^*]*)\*\*")


def test_the_overview_counts_the_verdicts_of_the_details() -> None:
    """One line for each claim, with each verdict of its tables; the gravest first; the counts of all."""
    lines = [line for line in part("overview").splitlines() if line.startswith("| ")]
    told = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines if not line.startswith("| claim |")]
    assert [line[0].replace("\\|", "|") for line in told] == list(topics())
    for (*_, tally), text in zip(told, topics().values(), strict=True):
        every = Counter(VERDICT.findall(text))
        said = {
            verdict: sum(
                int(name.rpartition(" x")[2]) if re.search(r" x\d+$", name) else 1 for name in names.split(", ")
            )
            for verdict, names in re.findall(r"\*\*([^*]+)\*\*: ([^;]+)", tally)
        }
        assert said == every
    assert ["`a_price`" in text for text in topics().values()][:3] == [True, True, False]
    kinds = Counter(verdict for text in topics().values() for verdict in map(kind, VERDICT.findall(text)))
    counted = Counter[str]()
    for verdict, count in re.findall(r"\*\*([^*]+)\*\* (\d+)", part("overview")):
        counted[verdict] += int(count)
    assert counted == kinds


def kind(verdict: str) -> str:
    """A verdict without its scope."""
    return next(one.value for one in Verdict if verdict.startswith(one.value))


def test_claims_of_our_own_stand_apart() -> None:
    papers, ours = part("overview").split("Claims that no paper makes")
    own = {claim.topic for claim in CLAIMS if claim.ours}
    assert all(topic in ours and topic not in papers for topic in own)
    assert sum("No paper makes this claim." in text for text in topics().values()) == len(own)


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
    listed = set(first_cells("What was not run"))
    stored = {file.name.removesuffix(".json.xz") for file in (DOCS / "full_size").iterdir()}
    trained = {name for name in figure_names() if isinstance(find_figure(name), Trained)}
    assert trained - stored <= listed


def test_claims_without_a_table_are_named() -> None:
    (words,) = re.findall(r"Without a stored table that has their columns: ([^.]+)\.", part("overview"))
    assert {word for word in words.split("; ") if word != "none"} == {claim.topic for claim in CLAIMS} - set(topics())


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
    assert "RoBERTa-base" in part("overview")
    assert "ResNet20" in part("overview")
