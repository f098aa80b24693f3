"""The curator's page: its structure, its numbers, and what it must not contain."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.ledger.statement import remaining_amounts
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.reports.content.formatting import percent_text
from dpsweep.reports.pages.curator_page import write_report

LR, CLIP = "trainer.lr", "trainer.clip_norm"
VOID = {"col", "meta", "br", "img", "link", "hr", "input"}
DRAWN = ("heatmap", "heatmap-dpsgd", "heatmap-dpnsgd", "collapse-1", "ease", "rivals")
HOSTILE = "<script>alert('x')</script>"
SweepOf = Callable[..., Any]


class Reader(HTMLParser):
    """Checks that tags nest, and collects them with their attributes, texts and ids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.facts: dict[str, str] = {}
        self._fact = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        self._fact = dict(attrs).get("data-fact") or ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._fact:
            self.facts[self._fact], self._fact = data, ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of every element of that name."""
        return [attrs for name, attrs in self.tags if name == tag]


def page_of(folder: Path) -> Reader:
    return Reader((folder / "curator" / "report.html").read_text())


def test_tags_nest_ids_are_unique_and_references_resolve(troubled: Any) -> None:
    page = page_of(troubled.folder)
    assert page.open == []
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = [value for _, attrs in page.tags for key, value in attrs.items() if key in ("href", "aria-labelledby")]
    assert used
    assert all(value and (value.startswith("data:") or value.lstrip("#") in ids) for value in used)


def test_nothing_is_loaded_from_anywhere(troubled: Any) -> None:
    html = (troubled.folder / "curator" / "report.html").read_text()
    assert "http:" not in html
    assert "https:" not in html
    page = page_of(troubled.folder)
    assert not page.all("link") and not page.all("iframe") and not page.all("object")
    assert all("src" not in attrs for _, attrs in page.tags)


def test_structure_serves_readers_who_cannot_see(troubled: Any) -> None:
    page = page_of(troubled.folder)
    for tag in ("header", "main", "footer", "h1", "title"):
        assert len(page.all(tag)) == (1 if tag != "title" else len(page.all("title")))
    pictures = [attrs for attrs in page.all("svg") if attrs.get("role") == "img"]
    assert len(pictures) == 5, "the budget, where it went, and three exhibits; maps are cells and tables"
    assert all(attrs["aria-label"] for attrs in pictures)
    assert len(page.all("figure")) == len(page.all("figcaption")) == 2
    assert len(page.all("caption")) == len(page.all("table")) == 9
    assert all("scope" in attrs for attrs in page.all("th"))
    sortable = [attrs for attrs in page.all("th") if attrs.get("aria-sort") == "none"]
    assert len(page.all("button")) == len(sortable) > 8


def test_the_page_claims_what_the_ledger_charged(troubled: Any) -> None:
    facts = page_of(troubled.folder).facts
    statement = troubled.ledger.statement(troubled.plan.account)
    assert facts["honest_epsilon"] == epsilon_text_rounded_up(sum(entry.body["epsilon"] for entry in statement.charges))
    assert facts["honest_delta"] == "2e-5"
    left = float(facts["left_epsilon"])
    assert left <= remaining_amounts(statement)[0] < left + 0.002
    assert facts["budget_epsilon"] == "1000"
    assert (facts["runs"], facts["points_finished"]) == ("70", "66")
    one = Panel(claimants=(Pld(), Rdp())).quote(troubled.plan.trials[0].event, 1e-5, troubled.plan.adjacency)
    assert facts["alone_epsilon"] == epsilon_text_rounded_up(one.epsilon)
    assert one.epsilon < float(facts["honest_epsilon"]) / 5


def test_the_single_run_is_struck_through_and_named(troubled: Any) -> None:
    html = (troubled.folder / "curator" / "report.html").read_text()
    struck = html[html.index("<s>") : html.index("</s>")]
    assert 'data-fact="alone_epsilon"' in struck
    assert "one run alone, not the price of this search" in html
    assert html.index('data-fact="honest_epsilon"') < html.index("<s>")


@pytest.mark.parametrize(
    ("recipe", "struck"),
    [
        ({}, False),
        ({"claimants": (Rdp(),)}, False),
        ({"fates": {0: "failed"}}, False),
        ({"repeats": (0,)}, True),
    ],
    ids=["one run", "priced by an accountant that is less tight", "failed", "charged again"],
)
def test_a_search_of_one_run_has_one_price(sweep_of: SweepOf, recipe: dict[str, Any], struck: bool) -> None:
    made = sweep_of({"dpsgd": {LR: (0.1,)}}, **recipe)
    write_report(made.folder, made.ledger)
    assert ("<s>" in (made.folder / "curator" / "report.html").read_text()) == struck
    assert ("alone_epsilon" in json.loads((made.folder / "curator" / "report.json").read_text())["facts"]) == struck


def test_every_trouble_is_told(troubled: Any) -> None:
    texts = "\n".join(page_of(troubled.folder).texts)
    for said in (
        "1 diverged: parameters became infinite or NaN",
        "1 failed with an error",
        "1 started but without a result: killed, or still running",
        "1 never started",
        "1 charged again for a repeat",
        "Point 4: RuntimeError: out of memory",
        "Best by noisy accuracy",
        "dpsweep sweep dataset=digits trainer.lr=0.1,0.2",
        troubled.plan.id,
    ):
        assert said in texts


def test_report_json_holds_the_numbers_with_their_sources(troubled: Any) -> None:
    form = json.loads((troubled.folder / "curator" / "report.json").read_text())
    page = page_of(troubled.folder)
    assert {name: form["facts"][name]["text"] for name in page.facts} == page.facts
    assert all(fact["source"] for fact in form["facts"].values())
    charges = troubled.ledger.statement(troubled.plan.account).charges
    assert form["facts"]["honest_epsilon"]["value"] == pytest.approx(
        sum(entry.body["epsilon"] for entry in charges), rel=1e-12
    )
    assert [row["epsilon"] for row in form["charges"]["rows"]] == [entry.body["epsilon"] for entry in charges]
    for row, trial in zip(form["trials"]["rows"], troubled.plan.trials, strict=True):
        assert row["trial"] == trial.id
        result = troubled.folder / "trials" / trial.id / "result.json"
        score = json.loads(result.read_text())["score"] if result.exists() else None
        assert row["accuracy"] == (score["value"] if score else None)


def test_trials_csv_has_a_row_per_point(troubled: Any) -> None:
    with (troubled.folder / "curator" / "trials.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["trial"] for row in rows] == [trial.id for trial in troubled.plan.trials]
    assert rows[3]["state"] == "failed"
    assert rows[0]["trainer.lr"] == "0.05"
    assert rows[0]["trainer.regularizer"] == ""


def test_tables_under_the_pictures_hold_the_same_numbers(troubled: Any) -> None:
    texts = page_of(troubled.folder).texts
    form = json.loads((troubled.folder / "curator" / "report.json").read_text())
    scores = [row["accuracy"] for row in form["trials"]["rows"] if row["state"] == "finished"]
    for score in scores:
        assert any(text.startswith(f"{percent_text(score)} (") for text in texts)
    assert any(text.endswith(", best") for text in texts)


def test_seventy_points_are_small(troubled: Any) -> None:
    path = write_report(troubled.folder, troubled.ledger)
    assert path.stat().st_size < 1_000_000
    assert {file.name for file in path.parent.iterdir()} == {
        "report.html",
        "report.json",
        "trials.csv",
        "methods.tex",
        "methods.bib",
        *(f"{name}.{kind}" for name in DRAWN for kind in ("png", "svg")),
    }


def test_hostile_strings_are_only_text(sweep_of: SweepOf) -> None:
    made = sweep_of(
        {
            "dpsgd": {LR: (0.1, 0.2), f"trainer.{HOSTILE}": ("$\\frac{$", HOSTILE)},
            f'"{HOSTILE}': {LR: (0.1,)},
        },
        dataset=HOSTILE,
        error=f"ValueError: {HOSTILE}",
        fates={1: "failed"},
    )
    write_report(made.folder, made.ledger)
    page = page_of(made.folder)
    assert page.open == []
    assert len(page.all("script")) == 1
    assert "<script>alert" not in (made.folder / "curator" / "report.html").read_text()
    assert any(HOSTILE in text for text in page.texts)


@pytest.mark.parametrize(
    "recipe",
    [
        {"axes": {"dpsgd": {LR: (0.1,)}}},
        {"axes": {"dpsgd": {}}, "private": False},
        {"axes": {"dpsgd": {LR: (0.1, 0.2), CLIP: (1, 2)}}, "fates": dict.fromkeys(range(4), "failed")},
        {"axes": {"dpsgd": {LR: (0.1, 0.2)}}, "fates": dict.fromkeys(range(2), "not run")},
    ],
)
def test_small_and_empty_sweeps_render(sweep_of: SweepOf, recipe: dict[str, Any]) -> None:
    made = sweep_of(**recipe)
    write_report(made.folder, made.ledger)
    page = page_of(made.folder)
    assert page.open == []
    assert page.facts["honest_epsilon"]


def test_reproducible_results_raise_the_alarm(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {LR: (0.1,)}}, randomness="reproducible")
    write_report(made.folder, made.ledger)
    page = page_of(made.folder)
    assert [attrs for _, attrs in page.tags if attrs.get("role") == "alert"]
    assert any("NOT a private release" in text for text in page.texts)


def test_a_page_is_made_without_hydras_record(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {LR: (0.1,)}})
    (made.folder / "multirun.yaml").write_text("hydra: [")
    write_report(made.folder, made.ledger)
    assert "dpsweep sweep" not in "".join(page_of(made.folder).texts)


def test_earlier_sweeps_of_the_account_are_linked(sweep_of: SweepOf, tmp_path: Path) -> None:
    """Each with its own price; later ones are not there, and one whose page does not lie beside is not linked."""
    first = sweep_of({"dpsgd": {LR: (0.1,)}})
    folders = [first.folder.rename(tmp_path / first.plan.id)]
    for rate in (0.2, 0.4):
        made = sweep_of({"dpsgd": {LR: (rate,)}})
        folders.append(made.folder.rename(tmp_path / made.plan.id))
    write_report(folders[0], first.ledger)
    page = page_of(write_report(folders[2], first.ledger).parents[1])
    assert [attrs["href"] for attrs in page.all("a")] == [f"../../{first.plan.id}/curator/report.html"]
    assert (folders[2] / "curator" / f"../../{first.plan.id}/curator/report.html").resolve().is_file()
    assert len([text for text in page.texts if "plan " in text and folders[1].name in text]) == 1
    assert page_of(write_report(folders[0], first.ledger).parents[1]).all("a") == []
