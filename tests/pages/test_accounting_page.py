"""docs/accounting.md is what the code computes today, and names what exists."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.printed_numbers import differences

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "accounting.md").read_text()
TEMPLATE = (ROOT / "docs" / "accounting.template.md").read_text()
QUICK = ("adaptive", "shared", "covered_weights", "outcomes", "orders")
SOME_TRIES = (1, 35, 300)


@pytest.fixture(scope="module")
def builder() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "generators" / "build.py"))


@pytest.mark.long
def test_the_page_is_what_the_code_computes(builder: dict[str, Any]) -> None:
    assert differences(builder["render"](), PAGE) == [], "run `python docs/generators/build.py`"


@pytest.mark.parametrize("table", QUICK)
def test_what_is_quickly_computed_stands_on_the_page(builder: dict[str, Any], table: str) -> None:
    computed = getattr(builder["Numbers"](), table)()
    before, after = re.split(rf"\{{\{{ numbers\.{table}\(\) \}}\}}", TEMPLATE)
    words = re.split(r"\{\{.*?\}\}", before)[-1], re.split(r"\{\{.*?\}\}", after)[0]
    assert PAGE.count(words[0]) == PAGE.count(words[1]) == 1
    printed = PAGE.partition(words[0])[2].partition(words[1])[0]
    assert differences(computed, printed) == []


def test_the_picture_of_the_prices_carries_what_the_code_computes() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generators" / "price_by_tries.py"))
    drawn = script["numbers"]()
    assert list(drawn) == list(script["RULES"])
    for name, own in drawn.items():
        computed, places = script["prices"](name, SOME_TRIES), [own.tries.index(count) for count in SOME_TRIES]
        assert own.tries == script["TRIES"]
        assert [own.epsilons[place] for place in places] == pytest.approx(computed.epsilons, abs=1e-3)
        assert bool(own.attacks) == (name in script["ATTACKED"])
        if own.attacks:
            assert [own.attacks[place] for place in places] == pytest.approx(computed.attacks, abs=1e-3)
            assert all(attack <= price for attack, price in zip(own.attacks, own.epsilons, strict=True))
    assert "(figures/price_by_tries.png)" in PAGE, "run `python docs/generators/price_by_tries.py`"


def test_the_words_of_the_page_are_the_templates() -> None:
    rest = PAGE
    for words in re.split(r"\{\{.*?\}\}", TEMPLATE):
        assert words in rest, "run `python docs/generators/build.py`"
        rest = rest.partition(words)[2]
    assert rest == ""


def test_a_changed_number_is_noticed() -> None:
    assert differences("a 3.21 b", "a 3.22 b") == []
    assert differences("a 3.21 b", "a 3.23 b") == [("3.21", "3.23")]
    assert differences("4.3e+08", "4.5e+08") == [("4.3e+08", "4.5e+08")]
    assert differences("14 runs", "15 runs") == [("14", "15")]
    assert differences("a rule", "a ruler") == [("a rule", "a ruler")]


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:accounting|docs|conf)/[\w/.]+)`", TEMPLATE))))
def test_every_file_that_it_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_rule_of_the_configuration_is_on_the_page() -> None:
    rules = [yaml.safe_load(path.read_text()).get("_target_", "") for path in (ROOT / "conf/tuning").glob("*.yaml")]
    spoken = {"noisy max": "noisy maximum", "poisson selection": "private selection"}
    for name in {target.rpartition(".")[2] for target in rules if target}:
        words = re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
        assert f"\n| {spoken.get(words, words)} |" in PAGE


def test_every_accountant_of_the_configuration_is_on_the_page() -> None:
    names = {path.stem for path in (ROOT / "conf/accountant").glob("*.yaml")} - {"auto"}
    for name in names:
        assert re.search(rf"^\| {name} \|", PAGE, re.MULTILINE | re.IGNORECASE), name
