"""The paragraph for a paper: its BibTeX parses, every citation has an entry, every number is the page's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.selection.rules import (
    RULES,
    DisjointParts,
    Final,
    PrivateSelection,
    Subsampled,
    rule_from_config,
)
from dpsweep.accounting.stored_names.tags import FAMILY_OF, class_of_tag
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release
from dpsweep.reports.statement.methods_text import (
    PROGRAM,
    RELATED_BOUNDS,
    entries_of_works,
    works_of_class,
    works_of_rule,
)
from dpsweep.trainers.methods import named_methods
from dpsweep.trainers.methods.named_methods import NamedMethod
from tests.freezing import LEDGER, restored

AXES = {
    "dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.clip_norm": (0.5, 1)},
    "dpnsgd": {"trainer.lr": (0.1, 0.2), "trainer.regularizer": (0.1, 1)},
}
WORKS = {
    "composition": {"mironov2017renyi"},
    "random_stopping": {"liu2019private"},
    "threshold": {"liu2019private"},
    "private_selection": {"liu2019private", "papernot2022hyperparameter", "koskela2024privacy"},
    "poisson_selection": {"papernot2022hyperparameter", "koskela2024privacy"},
    "best_of_grid": {"koskela2024privacy"},
    "noisy_max": {"mcsherry2007mechanism", "durfee2019practical"},
    "disjoint_parts": {"mcsherry2009privacy"},
    "pld": {"koskela2020computing", "doroshenko2022connect"},
    "rdp": {"mironov2017renyi", "mironov2019renyi", "balle2020hypothesis"},
    "prv": {"gopi2021numerical"},
    "dp_sgd": {"abadi2016deep"},
    "dp_nsgd": {"yang2022normalized", "bu2023automatic"},
    "fixed_size": {"wang2019subsampled"},
    "random_allocation": {"feldman2025privacy"},
}
"""The works of a rule, an accountant, a method or a sampler, by its tag."""

SweepOf = Callable[..., Any]


def entries(bibtex: str) -> dict[str, dict[str, str]]:
    """The fields of each entry by key; a small parser that takes nothing which is not an entry."""
    parsed: dict[str, dict[str, str]] = {}
    rest = bibtex
    while rest.strip():
        head = re.match(r"\s*@(inproceedings|article|misc)\{([a-z0-9]+),", rest)
        assert head is not None, rest[:80]
        rest, fields = rest[head.end() :], {}
        while (name := re.match(r"\s*([a-z]+) = \{", rest)) is not None:
            depth, place = 1, name.end()
            while depth:
                depth += {"{": 1, "}": -1}.get(rest[place], 0)
                place += 1
            fields[name[1]] = rest[name.end() : place - 1]
            assert rest[place] == ","
            rest = rest[place + 1 :]
        end = re.match(r"\s*\}", rest)
        assert end is not None, rest[:80]
        rest = rest[end.end() :]
        assert head[2] not in parsed
        parsed[head[2]] = fields
    return parsed


def cited(text: str) -> set[str]:
    return {key for keys in re.findall(r"\\cite\{([^}]*)\}", text) for key in keys.split(",")}


def written(page: Path) -> tuple[str, dict[str, dict[str, str]]]:
    return (page.parent / "methods.tex").read_text(), entries((page.parent / "methods.bib").read_text())


@pytest.mark.parametrize("write", [write_report, write_release])
def test_every_citation_has_an_entry_and_every_entry_is_cited(sweep_of: SweepOf, write: Any) -> None:
    made = sweep_of(AXES)
    text, works = written(write(made.folder, made.ledger))
    assert cited(text) == set(works)
    assert {"abadi2016deep", "yang2022normalized", "mironov2017renyi", "koskela2020computing", "dpsweep"} <= set(works)
    assert all(fields["title"] for fields in works.values())
    assert all(fields["author"] and fields["year"] for key, fields in works.items() if key != "dpsweep")


def test_every_number_is_the_pages(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    page = write_release(made.folder, made.ledger)
    facts = json.loads((page.parent / "report.json").read_text())["facts"]
    text, _ = written(page)
    assert f"$\\varepsilon = {facts['honest_epsilon']['text']}$" in text
    assert "$\\delta = 10^{-5}$" in text
    assert f"search {facts['points']['text']} points of DP-SGD" in text
    assert f"probability {facts['sample_rate']['text']} " in text
    assert f"multiplier {facts['noise_multiplier']['text']}; {facts['steps']['text']} steps a run" in text
    assert "clip\\_norm" in text


def test_both_pages_say_the_same(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES, fates={1: "failed"})
    assert written(write_report(made.folder, made.ledger)) == written(write_release(made.folder, made.ledger))


@pytest.mark.parametrize("rule", ["private_selection", "best_of_grid"])
def test_private_selection_cites_the_related_bounds_that_it_does_not_use(rule: str, tmp_path: Path) -> None:
    folder = restored(rule, tmp_path)
    text, works = written(write_report(folder, Ledger(tmp_path / LEDGER)))
    assert cited(text) == set(works)
    assert {*RELATED_BOUNDS, "koskela2024privacy"} <= set(works)
    assert "are not part of the price" in text


def test_a_rule_that_hides_losers_is_described_without_them(sweep_of: SweepOf, only_winner: dict[str, str]) -> None:
    made = sweep_of(AXES, rule=only_winner, accuracy=lambda place: 0.9 if place == 5 else 0.31 + place / 100)
    text, _ = written(write_release(made.folder, made.ledger))
    assert "whose price covers the winner and its score, and nothing about the other runs" in text
    assert "tries" not in text
    for value in ("0.2", "0.5", "0.31", "31."):
        assert value not in re.sub(r"\d\.\d{3,}|\d\.\d\.\d", "", text)


def test_one_run_is_no_search(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1,)}})
    text, _ = written(write_release(made.folder, made.ledger))
    assert "to train 1 point of DP-SGD" in text
    assert "search" not in text
    assert "chosen" not in text


def test_names_are_escaped(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2), "trainer.50%_$x$": (1, 2)}}, dataset="my_data & {more}")
    text, _ = written(write_report(made.folder, made.ledger))
    assert r"my\_data \& \{more\}" in text
    assert r"50\%\_\$x\$" in text


def test_all_works_are_whole_and_have_keys_of_their_own() -> None:
    works = {key: entry for key, entry in entries_of_works().items() if key != PROGRAM}
    assert "\n".join(works.values()).count("@") == len(works) > 20
    parsed = entries("\n".join(works.values()))
    for work in works:
        assert {"author", "title", "year"} <= parsed[work].keys()
        assert {"booktitle", "journal", "eprint"} & parsed[work].keys()


def test_works_that_a_class_of_ours_names_have_entries() -> None:
    named = {tag: getattr(class_of_tag(tag, family), "works", ()) for tag, family in FAMILY_OF.items()}
    assert sum(map(bool, named.values())) > 10
    for works in named.values():
        assert isinstance(works, property) or set(works) <= entries_of_works().keys()


@pytest.mark.parametrize("tag", WORKS)
def test_a_class_names_the_works_that_it_leans_on(tag: str) -> None:
    if FAMILY_OF[tag] == "rule":
        needed = {"delta": 1e-5, "threshold": 0.9, "noise_scale": 2.0}
        fields = {name: value for name, value in needed.items() if name in signature(RULES[tag]).parameters}
        assert set(works_of_rule(rule_from_config({"kind": tag, **fields}))) == WORKS[tag] <= entries_of_works().keys()
    else:
        assert set(works_of_class(class_of_tag(tag, FAMILY_OF[tag]))) == WORKS[tag]


def test_a_search_with_a_final_run_leans_on_what_its_search_leans_on() -> None:
    inner = PrivateSelection()
    assert works_of_rule(Final(rule=inner)) == works_of_rule(inner)
    assert set(works_of_rule(inner)) < set(works_of_rule(Subsampled(rule=inner, rate=0.1)))
    assert works_of_rule(DisjointParts()) == ("mcsherry2009privacy",)


@pytest.mark.parametrize("name", [name for name, kind in vars(named_methods).items() if isinstance(kind, NamedMethod)])
def test_every_private_method_by_name_names_its_works(name: str) -> None:
    method = getattr(named_methods, name)
    assert bool(works_of_class(method)) != method.noiseless
