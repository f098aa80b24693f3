"""The registry: a claim is tested on every table that has its columns, and says at which margin it would turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpsweep.reports.reproduction import claims, learning_curves, rate_claims
from dpsweep.reports.reproduction.finding import ClaimEvidence, Margin, Part, Quantity, verdict_on_parts, weigh
from dpsweep.reports.reproduction.registry import CLAIMS, MARGINS, findings_on_results
from dpsweep.reports.reproduction.results import SearchResults, read_results, table_with_row_per_recorded_step
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict

HOLDS, MISSED, REFUTED, UNDECIDED = Verdict
STORED = Path(__file__).parents[3] / "docs" / "full_size"
BETTER, LIMIT = Margin(source="", least=0.01, above=0.0), Margin(source="", most=0.03)


def stored(name: str) -> SearchResults:
    return read_results(STORED / f"{name}.json.xz")


def part(low: float, high: float, margin: Margin = BETTER) -> Part:
    return Part(estimate=IntervalEstimate(name="gain", value=(low + high) / 2, low=low, high=high), margin=margin)


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(0.02, 0.03)], HOLDS),
        ([(0.002, 0.008)], MISSED),
        ([(0.002, 0.02)], UNDECIDED),
        ([(-0.01, 0.005)], UNDECIDED),
        ([(-0.01, -0.005)], REFUTED),
        ([(0.02, 0.03), (0.002, 0.008)], MISSED),
        ([(0.002, 0.02), (0.002, 0.008)], MISSED),
        ([(0.02, 0.03), (-0.01, 0.005)], UNDECIDED),
        ([(0.02, 0.03), (-0.01, -0.005)], REFUTED),
        ([], UNDECIDED),
    ],
)
def test_only_an_interval_that_excludes_the_direction_refutes(
    intervals: list[tuple[float, float]], verdict: Verdict
) -> None:
    assert verdict_on_parts([part(*ends) for ends in intervals]) is verdict


def test_a_claim_without_a_direction_beside_its_margin_is_refuted_by_the_margin() -> None:
    assert part(0.04, 0.05, LIMIT).verdict is REFUTED
    assert part(-0.05, -0.04, LIMIT).verdict is HOLDS
    assert part(0.02, 0.05, LIMIT).verdict is UNDECIDED


@pytest.mark.parametrize("margin", MARGINS, ids=lambda one: one.source)
def test_a_verdict_turns_at_the_margin_that_it_names(margin: Margin) -> None:
    """A claim just holds at this margin, and no longer at a stricter one."""
    ends = (0.2, 0.3) if np.isinf(margin.most) or np.isinf(margin.least) else (-1.3, -1.2)
    one = part(*ends, margin).estimate
    text = margin.flip_text([one])
    if np.isinf(margin.most):
        assert f"up to a margin of {margin.unit.value_text(0.2)}" in text
        turned = [Margin(source="", least=least) for least in (0.2, 0.201)]
    elif np.isinf(margin.least):
        assert f"from a limit of {margin.unit.value_text(0.3)}" in text
        turned = [Margin(source="", most=most) for most in (0.3, 0.299)]
    else:
        middle = (margin.least + margin.most) / 2
        reach = max(middle + 1.3, -1.2 - middle)
        assert f"+- {margin.unit.value_text(reach)}" in text
        turned = [
            Margin(source="", least=middle - width, most=middle + width) for width in (reach + 1e-9, reach - 1e-3)
        ]
    assert [one_margin.verdict_on_range(one) is HOLDS for one_margin in turned] == [True, False]
    assert margin.source


def test_every_margin_of_a_claim_is_listed_with_its_source() -> None:
    named = {
        one
        for module in (claims, learning_curves, rate_claims)
        for one in vars(module).values()
        if isinstance(one, Margin)
    }
    assert named == set(MARGINS)


def test_many_quantities_have_wider_intervals_each() -> None:
    levels: list[float] = []

    def estimate(name: str, level: float) -> IntervalEstimate:
        levels.append(level)
        return IntervalEstimate(name=name, value=0.02, low=0.02, high=0.02)

    one = Quantity(name="gain", estimate=estimate, margin=BETTER)
    assert weigh([one]).verdict is weigh([one] * 5).verdict is HOLDS
    assert levels == pytest.approx([0.95, *[0.99] * 5])
    assert weigh([one], shows_differences=False).verdict is UNDECIDED
    assert weigh([one]).flip_text == "holds up to a margin of 2.0 points"


def test_a_claim_is_tested_on_tables_of_other_figures_too() -> None:
    """Those of Figures 2 and 3 of one paper test the claim of its Figure 4, and a table of another paper a slope."""
    by_table = {name: {one.topic for one in findings_on_results(stored(name))} for name in ("a_fig2_mnist", "b_fig10")}
    assert {
        "DP-NSGD is easier to tune than DP-SGD",
        "DP-SGD's best lr falls as 1 / c",
        "A small c or r keeps the training loss high",
        "Half of DP-SGD's learning rates can be left out",
    } <= by_table["a_fig2_mnist"]
    assert by_table["b_fig10"] == {"DP-SGD's best lr falls as 1 / c", "Half of DP-SGD's learning rates can be left out"}


def test_claims_have_topics_of_their_own_unless_they_are_one_claim_on_other_methods() -> None:
    words: dict[str, set[str]] = {}
    for claim in CLAIMS:
        words.setdefault(claim.topic, set()).add(claim.claim)
        assert claim.paper
        assert claim.where
        assert claim.criterion
    assert all(len(texts) == 1 for texts in words.values())
    assert {claim.topic for claim in CLAIMS if claim.ours} == {
        "DP-NAdam is easier to tune than DP-Adam",
        "DP-NAdam is stable in r, DP-Adam depends on c",
        "The best of DP-NAdam and DP-Adam are close",
    }


def test_a_gain_depends_on_the_range_of_learning_rates() -> None:
    """The widest range has the gain of the whole grids."""
    table = stored("a_fig3_mnist").table
    gains = claims.gains_by_range_of_rates(table, "dpnsgd", "dpsgd")
    rates = sorted({float(rate) for rate in table[claims.LR]})
    assert {(one.low, one.high) for one in gains} == {
        (low, high) for place, low in enumerate(rates) for high in rates[place + 2 :]
    }
    widest = [one.gain for one in gains if (one.low, one.high) == (rates[0], rates[-1])]
    found = claims.evidence_that_normalized_tunes_easier(table, "dpnsgd", "dpsgd")
    assert widest == pytest.approx([part.estimate.value for part in found.parts], abs=0.005)
    assert min(one.gain for one in gains) < 0 < max(one.gain for one in gains)


def test_pruning_leaves_the_rates_that_are_the_best_at_some_step() -> None:
    looks = table_with_row_per_recorded_step(stored("b_fig10"))
    kept = claims.rates_that_are_ever_the_best(looks)
    assert 0 < len(kept) < looks[claims.LR].nunique()
    wins = rate_claims.win_counts_of_rate_and_clip_norm_pairs(looks)
    assert kept == {rate for (rate, _), count in wins.items() if count}


def test_evidence_without_parts_has_no_margin() -> None:
    assert ClaimEvidence(parts=(), verdict=UNDECIDED).flip_text == ""
