"""Error rates of the criteria: on pure noise they seldom say `holds`, a planted effect they find.

The tables are drawn from seeds: no test fails by chance.
"""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from dpsweep.reports.statistics.verdict import Verdict

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "generators" / "verdict_rates.py"))
CRITERIA = list(SCRIPT["criteria"]())
MOST, LEAST = 0.05, 0.9


def named(criterion: Any) -> str:
    return f"{criterion.name}, {criterion.repeats}"


@pytest.mark.parametrize("criterion", CRITERIA, ids=named)
def test_a_criterion_tells_noise_from_an_effect(criterion: Any) -> None:
    assert SCRIPT["on_noise"](criterion, 6)[Verdict.HOLDS] <= 1
    assert SCRIPT["on_effect"](criterion, 3)[Verdict.HOLDS] >= 2


@pytest.mark.long
@pytest.mark.parametrize("criterion", CRITERIA, ids=named)
def test_a_criterion_seldom_holds_on_noise_and_finds_the_planted_effect(criterion: Any) -> None:
    assert SCRIPT["on_noise"](criterion, 300)[Verdict.HOLDS] <= MOST * 300
    assert SCRIPT["on_effect"](criterion, 100)[Verdict.HOLDS] >= LEAST * 100


@pytest.mark.parametrize("criterion", [one for one in CRITERIA if one.repeats == 1], ids=named)
def test_single_runs_with_unknown_errors_decide_nothing(criterion: Any) -> None:
    for parts in (criterion.nothing, criterion.effect):
        rows = SCRIPT["table"](parts, 1)
        assert criterion.claim(rows).verdict is Verdict.UNDECIDED
        assert criterion.claim(rows.assign(accuracy_low=None, accuracy_high=None)).verdict is Verdict.UNDECIDED


def test_the_page_has_the_rates_of_every_criterion_within_their_bounds() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text()
    made = page.partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
    rows = re.findall(r"^\| (.+) \| (\d+) \| ([\d.]+)% \| [\d.]+% \| ([\d.]+)% \| ([\d.]+)% \|$", made, re.MULTILINE)
    assert [(name, int(runs)) for name, runs, *_ in rows] == [(one.name, one.repeats) for one in CRITERIA]
    assert all(float(noise) <= 100 * MOST and float(effect) >= 100 * LEAST for _, _, noise, _, effect in rows)


def test_the_page_has_the_coverage_of_every_kind_of_slope() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text()
    made = page.partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
    found = re.findall(
        r"^\| (.+) \| (-?[\d.]+|none) \| ([\d.]+)% \| (?:([\d.]+)%|-) \| (?:[\d.]+|-) \|$", made, re.MULTILINE
    )
    kinds = [(one.kind, "none" if math.isnan(one.slope) else f"{one.slope:g}") for one in SCRIPT["slope_tables"]()]
    assert [(kind, slope) for kind, slope, *_ in found] == kinds
    assert all(float(covered) >= 93 for _, slope, _, covered in found if slope != "none")
    assert all(float(told) <= 2 for _, slope, told, _ in found if slope == "none")


def test_the_table_of_slopes_is_that_of_the_script() -> None:
    assert [line.count("|") for line in SCRIPT["slope_rates"](1)] == [6] * (2 + len([*SCRIPT["slope_tables"]()]))


CLOSE = 0.06
"""The largest share of false refutations where two best scores differ by exactly the margin; it was 0.22."""


def test_close_scores_are_seldom_refuted_at_the_margin_under_unequal_noise() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text()
    made = page.partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]+)% \| ([\d.]+)% \|$", made, re.MULTILINE)
    assert [name for name, *_ in rows] == list(SCRIPT["BOUNDARIES"])
    assert all(float(refuted) <= 100 * CLOSE for *_, refuted in rows)
    name = "16 times as much at one of the best points"
    assert SCRIPT["on_boundary"](name, *SCRIPT["BOUNDARIES"][name], 20)[Verdict.REFUTED] <= 1, "pooled alone: 4 of 20"


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPT["BOUNDARIES"])
def test_close_scores_are_seldom_refuted_at_the_margin(name: str) -> None:
    assert SCRIPT["on_boundary"](name, *SCRIPT["BOUNDARIES"][name], 300)[Verdict.REFUTED] <= CLOSE * 300


def test_the_page_has_the_coverage_of_every_spread() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text()
    made = page.partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
    rows = {
        name: float(share) for name, share in re.findall(r"^\| ([^|]+) \| ([\d.]+)% \| [\d.]+ \|$", made, re.MULTILINE)
    }
    assert list(rows) == list(SCRIPT["SPREADS"])
    *known, unseen = rows.values()
    assert min(known) >= 90
    assert unseen >= 80


def test_the_coverage_is_that_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    globals_of_script = SCRIPT["coverage"].__globals__
    monkeypatch.setitem(globals_of_script, "TABLES", 10)
    assert [line.count("|") for line in SCRIPT["coverage"]()] == [4] * (2 + len(SCRIPT["SPREADS"]))
