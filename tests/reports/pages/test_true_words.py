"""Every page says what epsilon means, in the same words and numbers, and nothing says anything false about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.meaning import Meaning
from dpsweep.reports.content.facts import read_bill
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.disclosure.formats import formats_with_names
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release

ROOT = Path(__file__).parents[3]
AXES = {"dpsgd": {"trainer.lr": (0.1, 0.2)}}
FALSE = (
    r"odds[^.]{0,120}except with (a )?probability",
    r"odds of any guess",
    r"odds of a guess",
    r"finds every \w+ that took part",
    r"wrongly accuses about one",
    r"change the odds of .* by a factor of at most",
)
"""Sentences that were on pages until somebody computed them: the exception is larger than delta, the odds of a guess
may change by e^(2 epsilon), and who finds everybody accuses everybody."""


def words_of_page(path: Path) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", path.read_text())).split())


def read_meaning(made: Any) -> Meaning:
    sweep = read_sweep(made.folder, made.ledger)
    return read_bill(sweep).meaning_for_plan(sweep.plan)


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("noise", [4.0, 0.9])
def test_every_page_says_what_epsilon_means_in_the_same_numbers(sweep_of: Callable[..., Any], noise: float) -> None:
    """At an epsilon of a few, and at one above 10, whose harm is said too."""
    made = sweep_of(AXES, noises=(noise,))
    write_report(made.folder, made.ledger)
    write_release(made.folder, made.ledger, formats_with_names(("tre", "registry", "hf")))
    meaning = read_meaning(made)
    assert meaning.total_variation is not None
    assert (meaning.harm_sentence != "") == (noise < 2)
    release = made.folder / "release"
    pages = [made.folder / "curator/report.html", release / "report.html", release / "statement.html"]
    pages += [release / name for name in ("README.md", "disclosure_record.json", "deployments_registry.yaml")]
    for page in pages:
        text = words_of_page(page)
        for sentence in meaning.sentences:
            assert sentence in text, (page.name, sentence)
        assert set(re.findall(r"e\^epsilon(?: \+ 1, about| =) ([\d.,e]*\d)", text)) <= {
            meaning.factor_text(),
            meaning.factor_text(times=2),
        }, page.name
    for path in (path for path in made.folder.rglob("*") if path.suffix in (".html", ".md", ".json", ".yaml", ".tex")):
        assert not any(re.search(phrase, words_of_page(path)) for phrase in FALSE), path
    facts = json.loads((release / "report.json").read_text())["facts"]
    assert facts["total_variation"]["value"] == meaning.total_variation


def test_a_charge_without_a_profile_is_told_by_epsilon_and_delta_alone(sweep_of: Callable[..., Any]) -> None:
    made = sweep_of(AXES, claimants=(Rdp(),))
    meaning = read_meaning(made)
    assert meaning.total_variation is None
    assert meaning.largest_share_of_right_guesses > 0.6


@pytest.mark.parametrize("phrase", FALSE)
def test_no_document_and_no_template_says_what_is_false(phrase: str) -> None:
    folders = ("docs", "reports", "sweeper", "accounting", "conf", "trainers")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    found = [path for path in (*files, ROOT / "README.md") if re.search(phrase, " ".join(path.read_text().split()))]
    assert found == []


SUFFIXES = (".md", ".py", ".j2", ".yaml", ".tex")
