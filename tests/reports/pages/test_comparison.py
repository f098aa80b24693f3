"""Several sweeps side by side: one scale, one table, one total for each account, and a package that can be checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import dpsweep
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.ledger.upkeep import charge_outside
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.records.plan import Plan
from dpsweep.reports.content.panels import Mark
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.disclosure import package_check
from dpsweep.reports.disclosure.package_check import ClaimFails, ClaimNotRecomputed, check_package
from dpsweep.reports.pages import comparison
from dpsweep.reports.pages.comparison import page_of_record, release_sweeps, write_comparison
from dpsweep.reports.recomputation.price_check import HOLDS
from dpsweep.sweeper.commands import cli
from tests.reports.conftest import Made, Recipe, make

CLIPPED = {"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (0.5, 1)}}
NORMALIZED = {"dpnsgd": {"trainer.lr": (0.1, 0.2), "trainer.regularizer": (0.1, 1)}}
ADAM = {"dpadam": {"trainer.lr": (0.1, 0.4)}}
Several = Callable[..., list[Path]]


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """The user's ledger, and a current folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "ledger.sqlite"))
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture
def several(tmp_path: Path, books: Ledger) -> Several:
    """Makes sweeps on one ledger, each in a folder of its own, from their recipes."""

    def sweeps(**recipes: Mapping[str, Any]) -> list[Path]:
        return [folder_named(name, make(tmp_path, Recipe(**fields))) for name, fields in recipes.items()]

    def folder_named(name: str, made: Made) -> Path:
        return made.folder.rename(tmp_path / name)

    return sweeps


@pytest.fixture
def package(several: Several, blank_pictures: None) -> Path:
    """A package of two sweeps."""
    return [*release_sweeps(several(one={"axes": CLIPPED}, two={"axes": ADAM}))][-1].parent


@pytest.fixture
def quick_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices are not recomputed."""
    monkeypatch.setattr(package_check, "_print_price_check_and_return_code", lambda _: HOLDS)


def edited(package: Path, change: Callable[[Any], None]) -> list[str]:
    """Changes the record and writes its page again, as who forges both would."""
    record = json.loads((package / "comparison.json").read_text())
    change(record)
    (package / "comparison.json").write_text(json.dumps(record))
    (package / "comparison.html").write_text(page_of_record(record))
    return [str(package)]


def test_three_sweeps_are_reported_released_and_checked(
    several: Several, books: Ledger, blank_pictures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = several(one={"axes": CLIPPED}, two={"axes": NORMALIZED, "fates": {1: "failed"}}, three={"axes": ADAM})
    words = [str(folder) for folder in folders]
    charge_outside(books, "digits", Guarantee(epsilon=0.5, delta=1e-6), "a pilot study")
    cli.report(words)
    *own, page = map(Path, capsys.readouterr().out.splitlines())
    assert own == [folder / "curator" / "report.html" for folder in folders]
    assert page.match("comparisons/*/curator/comparison.html")
    assert "../../../one/curator/report.html" in page.read_text()
    assert page.stat().st_mode & 0o077 == 0
    cli.release(words)
    *own, page = map(Path, capsys.readouterr().out.splitlines())
    assert own == [folder / "release" / "report.html" for folder in folders]
    assert page.match("comparisons/*/release/comparison.html")
    html, record = page.read_text(), json.loads(page.with_suffix(".json").read_text())
    reserved, _ = reserved_amounts(books.statement("digits"))
    (total,) = record["totals"]
    assert (total["epsilon"]["value"], total["others"]) == (reserved, True), "from the ledger, the pilot study included"
    assert html.count(epsilon_text_rounded_up(reserved)) == 1, "told once"
    assert [row["epsilon"]["value"] for row in record["sweeps"]] == [
        json.loads((page.parent / f"sweep-{number}" / "report.json").read_text())["facts"]["honest_epsilon"]["value"]
        for number in (1, 2, 3)
    ]
    assert html.count("<figure") == 3, "a map for each method"
    assert html.count('class="key"') == 1, "one legend, hence one colour scale"
    text = " ".join(re.sub(r"<[^>]*>", " ", html).split())
    assert "calls none of them the best" in text
    assert "https:" not in html
    assert '"failed"' not in json.dumps(record), "the reason why a run has no score is not covered"
    secret = [*(read_sweep(folder, books).plan_id for folder in folders), str(folders[0].parent)]
    assert not [word for word in secret if word in html + json.dumps(record)]
    assert {path.name for path in page.parent.iterdir() if path.is_file()} == {
        *("comparison.html", "comparison.json", "heatmap.pdf", "heatmap.png", "heatmap.svg")
    }
    with pytest.raises(ClaimNotRecomputed):
        cli.check([str(page.parent)])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":")] == ["sweep-1:", "sweep-2:", "sweep-3:", "release:"]
    assert sum(line.startswith("statement.html: holds") for line in lines) == 3
    assert lines[-2].startswith("comparison.html: holds: ")


def test_folders_that_only_a_plan_has_written_are_left_out_of_several(
    several: Several, blank_pictures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (swept,) = several(one={"axes": CLIPPED})
    planned = swept.parent / "planned"
    planned.mkdir()
    (planned / "plan.json").write_bytes((swept / "plan.json").read_bytes())
    cli.report([str(planned), str(swept)])
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [str(swept / "curator" / "report.html")]
    assert shown.err.splitlines() == [f"{planned} is left out: its plan was never run."]


def lower_price(record: Any) -> None:
    record["sweeps"][0]["epsilon"].update(value=0.5, text="0.5")


def other_score(record: Any) -> None:
    record["sweeps"][1]["best"]["interval"] = "99.0 to 99.9 %"


def other_total(record: Any) -> None:
    record["totals"][0]["epsilon"]["text"] = "0.5"


@pytest.mark.usefixtures("quick_check")
@pytest.mark.parametrize("change", [lower_price, other_score, other_total])
def test_a_page_that_says_otherwise_than_the_releases_fails(package: Path, change: Callable[[Any], None]) -> None:
    with pytest.raises(ClaimFails):
        check_package(edited(package, change))


@pytest.mark.usefixtures("quick_check")
def test_a_page_is_what_its_record_says(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ClaimNotRecomputed):
        check_package([str(package)])
    page = package / "comparison.html"
    whole = page.read_text()
    page.write_text(whole.replace("<main>", "<main><p>Sweep 2 is the best.</p>"))
    with pytest.raises(ClaimFails):
        check_package([str(package)])
    assert "this version's template does not write this page" in capsys.readouterr().out
    page.write_text(whole)
    with pytest.raises(BadInput, match="comparison"):
        check_package([str(package)] if (package / "comparison.json").write_text('{"sweeps": []}') else [])


@pytest.mark.usefixtures("quick_check")
@pytest.mark.usefixtures("blank_pictures")
def test_a_package_adds_no_line_to_those_of_its_releases(several: Several, books: Ledger) -> None:
    folders = several(one={"axes": CLIPPED}, two={"axes": ADAM})
    before = len(books.statement("digits").entries)
    pages = [*release_sweeps(folders)]
    added = books.statement("digits").entries[before:]
    assert [pages[-1].parent / f"sweep-{number}" for number in (1, 2)] == sorted(pages[-1].parent.glob("sweep-*"))
    assert [str(entry.kind) for entry in added] == ["release", "manifest"] * 2
    assert [entry.plan for entry in added] == [Plan.read(folder / "plan.json").id for folder in folders for _ in "ab"]


def test_a_total_below_its_sweeps_is_not_taken_for_granted(package: Path) -> None:
    """It may be true, where the account adds divergences; no reader can recompute it."""

    def lower_total(record: Any) -> None:
        record["totals"][0]["epsilon"].update(value=1.0, text=epsilon_text_rounded_up(1.0))

    with pytest.raises(ClaimNotRecomputed):
        check_package(edited(package, lower_total))


def test_what_one_sweep_cannot_show_is_refused_in_one_sentence(several: Several, blank_pictures: None) -> None:
    folders = several(one={"axes": CLIPPED}, two={"axes": ADAM, "randomness": "reproducible"})
    with pytest.raises(BadInput, match="NOT a private release"):
        dpsweep.release(folders)
    assert not [*Path("comparisons").rglob("comparison.html")], "no package without one of them"
    record = json.loads(write_comparison(folders).with_suffix(".json").read_text())
    assert [bool(row["alarms"]) for row in record["sweeps"]] == [False, True]
    assert dpsweep.report([str(folders[0])]) == folders[0] / "curator" / "report.html"
    for sweeps, reason in ((folders[:1] * 2, "twice"), ([], "at least one sweep")):
        with pytest.raises(BadInput, match=reason):
            dpsweep.report(sweeps)


def test_a_rule_that_hides_its_losers_hides_them_here_too(
    several: Several, only_winner: dict[str, str], blank_pictures: None
) -> None:
    scores = {"accuracy": lambda place: (0.123, 0.912, 0.234, 0.345)[place], "rule": only_winner}
    folders = several(one={"axes": CLIPPED, **scores}, two={"axes": ADAM})
    for page in (write_comparison(folders), [*release_sweeps(folders)][-1]):
        html, record = page.read_text(), json.loads(page.with_suffix(".json").read_text())
        assert "91.2 %" in html
        assert not re.search("12.3|23.4|34.5", html + json.dumps(record["sweeps"])), "no loser's score"
        assert html.count("<figure") == 1, "no map of the sweep that hides its losers"
        assert [row["shows"] for row in record["sweeps"]] == ["the winner and its score", "the score of every run"]
        assert record["no_maps"][0].startswith("Sweep 1: There is no map")


def test_each_account_has_one_total(several: Several, blank_pictures: None) -> None:
    folders = several(one={"axes": CLIPPED}, two={"axes": ADAM, "dataset": "mnist"}, three={"axes": NORMALIZED})
    page = write_comparison(folders)
    totals = json.loads(page.with_suffix(".json").read_text())["totals"]
    assert [(one["account"], one["sweeps"], one["others"]) for one in totals] == [
        ("digits", [1, 3], False),
        ("mnist", [2], False),
    ]
    assert "A person whose data lie in several of these accounts" in page.read_text()


def test_cells_are_off_the_common_scale_and_not_their_own(several: Several, books: Ledger) -> None:
    axes = {"dpsgd": {"trainer.lr": tuple(map(float, range(1, 7)))}}
    low = {"accuracy": lambda place: (0.9, 0.899, 0.898, 0.897, 0.896, 0.1)[place]}
    high = {"accuracy": lambda place: 0.9 - place / 1000}
    middling = {"accuracy": lambda place: (0.5, 0.4, 0.3, 0.2, 0.15, 0.1)[place]}
    other = {"dpnsgd": axes["dpsgd"]}
    sweeps = [
        read_sweep(folder, books)
        for folder in several(
            bad={"axes": axes, **low},
            good={"axes": other, **high},
            third={"axes": {"dpadam": axes["dpsgd"]}, **middling},
        )
    ]

    def below(*places: int) -> int:
        (panels,) = comparison._panels_by_heading([sweeps[place] for place in places]).values()
        picture = comparison.draw_one_heatmap("heatmap", panels, "accuracy")
        return sum(cell.mark is Mark.BELOW for panel in picture.panels for cell in panel.cells.values())

    assert [below(0), below(0, 1), below(0, 2)] == [1, 1, 0]
