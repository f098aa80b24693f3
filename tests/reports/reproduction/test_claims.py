"""Verdicts on made-up tables: each claim holds on one that shows it, is refuted by its opposite, and misses its margin
where the effect is too small."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hydra.utils import instantiate

from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.reproduction import registry
from dpsweep.reports.reproduction.claims import (
    BEST_CONSTANT,
    MOMENTUM,
    evidence_that_adam_defaults_suffice,
    evidence_that_best_scores_are_close,
    evidence_that_few_candidates_beat_others,
    evidence_that_large_momentum_starts_fast,
    evidence_that_moderate_momentum_is_best,
    evidence_that_normalized_tunes_easier,
    evidence_that_regularizer_matters_little,
    evidence_that_second_method_is_no_worse,
)
from dpsweep.reports.reproduction.finding import ClaimEvidence, Margin
from dpsweep.reports.reproduction.learning_curves import table_scored_by_last_loss
from dpsweep.reports.reproduction.rate_claims import (
    FREE,
    INVERSE,
    evidence_on_rate_by_clip_norm,
    evidence_that_many_rates_are_prunable,
    win_counts_of_rate_and_clip_norm_pairs,
)
from dpsweep.reports.reproduction.results import read_results
from dpsweep.reports.statistics.point_scores import CLIP, LR, REGULARIZER, STEPS
from dpsweep.reports.statistics.score_grid import log_rate_at_peak_of_each_row, mask_of_usable_rows, score_grid
from dpsweep.reports.statistics.verdict import Verdict

ROOT = Path(__file__).parents[3]
CONF, DOCS = ROOT / "conf" / "dataset", ROOT / "docs"
LRS, CLIPS = tuple(10.0**power for power in range(-3, 4)), (0.1, 1.0, 10.0)
NINE, CONSTANT = tuple(np.geomspace(0.1, 10, 9)), 0.1
"""Clip norms of which a slope may be read, and the score of the best constant predictor."""
ERROR = 0.001
HOLDS, MISSED, REFUTED, UNDECIDED = Verdict
Score = Callable[[float, float], float]


def scored(rows: Sequence[dict[str, object]], error: float = ERROR) -> pd.DataFrame:
    """A table of runs whose scores have this standard error."""
    table = pd.DataFrame(rows)
    values = table["accuracy"].astype(float)
    return table.assign(accuracy_low=values - 1.96 * error, accuracy_high=values + 1.96 * error, state=State.FINISHED)


def rows(
    method: str,
    key: str,
    score: Score,
    lrs: Sequence[float] = LRS,
    error: float = ERROR,
    noise: float = 2.0,
    values: Sequence[float] = CLIPS,
) -> pd.DataFrame:
    return scored(
        [
            {"method": method, LR: lr, key: value, "noise_multiplier": noise, "accuracy": score(lr, value)}
            for lr, value in itertools.product(lrs, values)
        ],
        error,
    )


def peak(where: Score) -> Score:
    """Best, 0.9, where the product is 1, and worse by 0.1 a decade squared."""
    return lambda lr, value: max(0.0, 0.9 - 0.1 * math.log10(where(lr, value)) ** 2)


ALONG_RIDGE, ALONG_LR = peak(lambda lr, value: lr * value), peak(lambda lr, value: lr)


def test_flat_in_the_regularizer() -> None:
    flat, steep = rows("dpnsgd", REGULARIZER, ALONG_LR), rows("dpsgd", CLIP, ALONG_RIDGE)
    assert evidence_that_regularizer_matters_little(pd.concat([flat, steep])).verdict is HOLDS
    assert (
        evidence_that_regularizer_matters_little(pd.concat([flat, steep])).parts[0].text
        == "noise 2: r explains 0.0% [0.0, 0.0]"
    )
    bad = pd.concat([rows("dpnsgd", REGULARIZER, ALONG_RIDGE), steep])
    assert evidence_that_regularizer_matters_little(bad).verdict is REFUTED
    same = pd.concat([flat, rows("dpsgd", CLIP, ALONG_LR)])
    assert evidence_that_regularizer_matters_little(same).verdict is UNDECIDED, "as flat: no direction"
    assert evidence_that_regularizer_matters_little(flat).verdict is UNDECIDED, "the other method is missing"


def test_a_method_is_easier_if_few_random_points_are_better() -> None:
    wide = rows("dpnadam", REGULARIZER, lambda lr, r: 0.9 - 0.04 * (lr > 0.1))
    narrow = rows("dpadam", CLIP, ALONG_RIDGE)
    finding = evidence_that_normalized_tunes_easier(pd.concat([wide, narrow]), "dpnadam", "dpadam")
    assert finding.verdict is HOLDS
    mean = wide["accuracy"].mean() - narrow["accuracy"].mean()
    assert finding.parts[0].estimate.value == pytest.approx(mean, abs=0.001)
    assert (
        evidence_that_normalized_tunes_easier(
            pd.concat([wide, wide.assign(method="dpadam")]), "dpnadam", "dpadam"
        ).verdict
        is UNDECIDED
    ), "no difference has no direction"
    hardly = wide.assign(method="dpadam", accuracy=wide["accuracy"] - 0.005)
    missed = evidence_that_normalized_tunes_easier(
        pd.concat([wide, scored(hardly.to_dict("records"))]), "dpnadam", "dpadam"
    )
    assert missed.verdict is MISSED
    assert missed.flip_text.startswith("holds up to a margin of 0.")
    swapped = [narrow.assign(method="dpnadam"), wide.assign(method="dpadam")]
    assert evidence_that_normalized_tunes_easier(pd.concat(swapped), "dpnadam", "dpadam").verdict is REFUTED


def test_one_noise_that_speaks_against_it_suffices() -> None:
    good = pd.concat([rows("dpnsgd", REGULARIZER, ALONG_LR), rows("dpsgd", CLIP, ALONG_RIDGE)])
    bad = pd.concat([rows("dpnsgd", REGULARIZER, ALONG_RIDGE, noise=3.6), rows("dpsgd", CLIP, ALONG_LR, noise=3.6)])
    both = pd.concat([good, bad])
    assert evidence_that_regularizer_matters_little(good).verdict is HOLDS
    assert evidence_that_regularizer_matters_little(both).verdict is REFUTED
    fine = [
        rows("dpsgd", CLIP, score, noise=noise, values=NINE) for noise, score in ((2.0, ALONG_RIDGE), (3.6, ALONG_LR))
    ]
    assert slope(fine[0]).verdict is HOLDS
    assert slope(pd.concat(fine)).verdict is UNDECIDED, "no slope has no direction"


def test_what_diverged_scores_nothing_and_what_failed_is_unknown() -> None:
    table = pd.concat([rows("dpnsgd", REGULARIZER, ALONG_LR), rows("dpsgd", CLIP, ALONG_RIDGE)], ignore_index=True)
    of_largest = (table["method"] == "dpnsgd") & (table[REGULARIZER] == 10.0)
    table.loc[of_largest, "state"] = State.DIVERGED
    assert evidence_that_regularizer_matters_little(table).verdict is REFUTED
    table.loc[of_largest, "state"] = State.FAILED
    assert evidence_that_regularizer_matters_little(table).verdict is UNDECIDED


def slope(table: pd.DataFrame, method: str = "dpsgd", margin: Margin = INVERSE) -> ClaimEvidence:
    return evidence_on_rate_by_clip_norm(table.assign(**{BEST_CONSTANT: CONSTANT}), method, margin)


HALVES = [10 ** (k / 2) for k in range(-6, 7)]
"""Learning rates, two a decade."""


@pytest.mark.parametrize(("power", "verdict"), [(1.0, HOLDS), (0.0, UNDECIDED), (-1.0, REFUTED), (2.0, MISSED)])
def test_the_ridge_is_a_matter_of_the_exponent(power: float, verdict: Verdict) -> None:
    table = rows("dpsgd", CLIP, peak(lambda lr, clip: lr * clip**power), HALVES, values=NINE)
    (part,) = slope(table).parts
    one = part.estimate
    assert one.value == pytest.approx(-power, abs=0.1)
    assert slope(table).verdict is verdict


def test_a_best_learning_rate_at_the_grids_edge_tells_nothing() -> None:
    table = rows("dpsgd", CLIP, ALONG_RIDGE, LRS[2:5], values=NINE)
    assert slope(table).verdict is UNDECIDED


def test_adam_has_no_diagonal() -> None:
    def verdict(score: Score, lrs: Sequence[float] = LRS, error: float = ERROR) -> Verdict:
        table = rows("dpadam", CLIP, score, lrs, error, values=NINE)
        return slope(table, "dpadam", FREE).verdict

    assert verdict(ALONG_LR) is HOLDS
    assert verdict(ALONG_RIDGE) is REFUTED
    assert verdict(ALONG_LR, LRS[:1]) is UNDECIDED, "one learning rate"
    assert verdict(ALONG_LR, error=0.1) is UNDECIDED, "noise as large as the peak"


def test_close_at_their_best() -> None:
    one, other = rows("dpnsgd", REGULARIZER, ALONG_LR), rows("dpsgd", CLIP, ALONG_RIDGE)
    assert evidence_that_best_scores_are_close(pd.concat([one, other]), ("dpnsgd", "dpsgd")).verdict is HOLDS
    worse = other.assign(accuracy=other["accuracy"] - 0.05)
    assert evidence_that_best_scores_are_close(pd.concat([one, worse]), ("dpnsgd", "dpsgd")).verdict is REFUTED
    noisy = [table.assign(accuracy_low=0.0, accuracy_high=1.0) for table in (one, other)]
    assert evidence_that_best_scores_are_close(pd.concat(noisy), ("dpnsgd", "dpsgd")).verdict is UNDECIDED
    flat = [table.assign(accuracy=0.8) for table in (one, other)]
    assert evidence_that_best_scores_are_close(pd.concat(flat), ("dpnsgd", "dpsgd")).verdict is UNDECIDED, (
        "nothing differs at all"
    )


def course(ends: dict[float, tuple[float, float]], error: float = ERROR) -> pd.DataFrame:
    return scored(
        [
            {"method": "dpmomentum", "noise_multiplier": 2.0, MOMENTUM: value, STEPS: steps, "accuracy": score}
            for value, pair in ends.items()
            for steps, score in zip((50, 500), pair, strict=True)
        ],
        error,
    )


def test_momentum() -> None:
    paper = {0.0: (0.3, 0.8), 0.6: (0.4, 0.9), 0.9: (0.6, 0.85)}

    def verdicts(ends: dict[float, tuple[float, float]], error: float = ERROR) -> tuple[Verdict, Verdict]:
        """On the best in the end, and on the best in the beginning."""
        table = course(ends, error)
        last, first = (table[table[STEPS] == steps] for steps in (500, 50))
        return (
            evidence_that_moderate_momentum_is_best(last).verdict,
            evidence_that_large_momentum_starts_fast(first).verdict,
        )

    assert verdicts(paper) == (HOLDS, HOLDS)
    assert verdicts(paper, error=0.1) == (UNDECIDED, UNDECIDED)
    assert verdicts({0.0: (0.3, 0.8), 0.6: (0.6, 0.85), 0.9: (0.4, 0.9)}) == (REFUTED, REFUTED)
    hardly = {0.0: (0.3, 0.8), 0.6: (0.595, 0.855), 0.9: (0.6, 0.85)}
    assert verdicts(hardly) == (MISSED, MISSED), "half a point is not relatively bad"
    assert verdicts({0.0: (0.3, 0.95), 0.6: (0.4, 0.9), 0.9: (0.6, 0.85)})[0] is REFUTED
    assert verdicts({0.0: (0.3, 0.8), 0.6: (0.4, 0.9)}) == (UNDECIDED, UNDECIDED)


def test_adams_defaults() -> None:
    default = {LR: 0.001, "trainer.beta1": 0.9}
    table = scored(
        [
            {LR: lr, "trainer.beta1": beta, "accuracy": 0.9 if lr == 0.001 else 0.5}
            for lr, beta in itertools.product((0.001, 0.1), (0.8, 0.9))
        ]
    )
    assert evidence_that_adam_defaults_suffice(table, default).verdict is HOLDS
    for found in ([0.9, 0.9, 0.99, 0.5], [0.7, 0.9, 0.5, 0.5]):
        assert (
            evidence_that_adam_defaults_suffice(
                scored(table.assign(accuracy=found).to_dict("records")), default
            ).verdict
            is REFUTED
        )
    assert evidence_that_adam_defaults_suffice(table[table["trainer.beta1"] == 0.8], default).verdict is UNDECIDED


def candidates(**methods: Sequence[float]) -> pd.DataFrame:
    return scored(
        [
            {"method": name, "noise_multiplier": 2.0, STEPS: 9, "accuracy": score, LR: place, CLIP: 1.0}
            for name, found in methods.items()
            for place, score in enumerate(found)
        ]
    )


def test_few_candidates_against_as_many_of_the_others() -> None:
    many = [0.9, *[0.5] * 9]
    assert (
        evidence_that_few_candidates_beat_others(
            candidates(dpsgd=many, dpadam=[0.85, 0.8]), ["dpsgd"], "dpadam"
        ).verdict
        is HOLDS
    )
    draws = [max(pair) for pair in itertools.combinations(many, 2)]
    hardly = candidates(dpsgd=many, dpadam=[float(np.mean(draws)) + 0.005, 0.5])
    assert evidence_that_few_candidates_beat_others(hardly, ["dpsgd"], "dpadam").verdict is MISSED
    worse = evidence_that_few_candidates_beat_others(candidates(dpsgd=many, dpadam=[0.55, 0.5]), ["dpsgd"], "dpadam")
    assert worse.verdict is REFUTED
    assert worse.parts[0].estimate.value == pytest.approx(0.55 - np.mean(draws), abs=0.002)


def test_alongside_is_one_sided() -> None:
    assert (
        evidence_that_second_method_is_no_worse(candidates(a=[0.9, 0.8, 0.7], b=[0.88, 0.81, 0.3]), "a", "b").verdict
        is HOLDS
    )
    assert (
        evidence_that_second_method_is_no_worse(candidates(a=[0.9, 0.8, 0.7], b=[0.9, 0.6, 0.5]), "a", "b").verdict
        is REFUTED
    )
    assert (
        evidence_that_second_method_is_no_worse(candidates(a=[0.9, 0.8, 0.7], b=[0.8, 0.8, 0.7]), "a", "b").verdict
        is REFUTED
    )
    assert (
        evidence_that_second_method_is_no_worse(candidates(a=[0.8, 0.7], b=[0.95, 0.9]), "a", "b").verdict is HOLDS
    ), "better is no objection"


def test_what_is_far_below_the_best_throughout_can_be_pruned() -> None:
    lengths = [rows("dpsgd", CLIP, ALONG_LR).assign(**{STEPS: steps}) for steps in (100, 200)]
    table = pd.concat(lengths, ignore_index=True)
    assert sum(win_counts_of_rate_and_clip_norm_pairs(table).values()) == 2
    assert evidence_that_many_rates_are_prunable(table).verdict is HOLDS
    assert (
        "6 of 7 learning rates are: 0.001, 0.01, 0.1, 10, 100, 1000; 1 are not: 1"
        in evidence_that_many_rates_are_prunable(table).remark
    )
    each = [
        rows("dpsgd", CLIP, lambda lr, clip, best=best: float(lr == best)).assign(**{STEPS: place})
        for place, best in enumerate(LRS)
    ]
    assert evidence_that_many_rates_are_prunable(pd.concat(each, ignore_index=True)).verdict is REFUTED, "not one is"
    some = [
        rows("dpsgd", CLIP, lambda lr, clip, bests=bests: float(lr in bests)).assign(**{STEPS: place})
        for place, bests in enumerate((LRS[:3], LRS[2:5]))
    ]
    assert evidence_that_many_rates_are_prunable(pd.concat(some, ignore_index=True)).verdict is MISSED, "two of seven"
    assert evidence_that_many_rates_are_prunable(table.assign(accuracy_low=0.0, accuracy_high=1.0)).verdict is UNDECIDED


def test_claims_on_the_slope_say_what_it_rests_on_or_why_there_is_none() -> None:
    table = rows("dpsgd", CLIP, ALONG_RIDGE, HALVES, values=NINE)
    assert slope(table).remark == "noise 2: from 9 usable clip norms"
    assert slope(table).parts[0].text.startswith("noise 2: e -1")
    assert slope(table.assign(method="dpadam"), "dpadam", FREE).verdict is REFUTED
    unknown = evidence_on_rate_by_clip_norm(table.assign(**{BEST_CONSTANT: math.nan}), "dpsgd", INVERSE)
    assert unknown.verdict is UNDECIDED
    assert unknown.remark == "noise 2: what the best constant predictor scores is not known"


def test_the_best_constant_predictors_of_the_papers_tables_are_those_of_their_records() -> None:
    """Logistic regression that says the share of spam, and linear regression that says the mean target."""
    enron, regression = (
        yaml.safe_load((CONF / f"{name}.yaml").read_text())["dataset"] for name in ("enron", "regression")
    )
    spam = 1500 / enron["records"]
    entropy = -spam * math.log(spam) - (1 - spam) * math.log(1 - spam)
    assert registry.BEST_LOSS["enron"] == pytest.approx(entropy, abs=1e-5)
    private, _ = instantiate(regression).load(None)
    variance = float(private.labels.var(correction=0))
    assert registry.BEST_LOSS["regression"] == pytest.approx(variance / 2, abs=1e-5)


def test_a_single_clip_norm_had_made_the_slope_on_enron() -> None:
    """By least squares over the clear optima; the page says both numbers."""
    table = table_scored_by_last_loss(read_results(DOCS / "full_size" / "b_fig4_5.json.xz"))
    grid = score_grid(table[table["method"] == "dpsgd"].drop(columns="loss"), CLIP)
    assert grid is not None
    clear = mask_of_usable_rows(grid, -math.inf)
    x, y = np.log(grid.settings[clear]), log_rate_at_peak_of_each_row(np.log(grid.rates), grid.means[clear])
    slopes = [f"{np.polyfit(x[rows], y[rows], 1)[0]:.2f}".replace("0.", ".") for rows in (slice(None), slice(1, None))]
    assert slopes == ["-.81", "-1.17"]
    words = f"had said {slopes[0]} on ENRON, and says {slopes[1]} without a single clip norm"
    assert words in " ".join((DOCS / "reproduction.md").read_text().split())
    best = grid.means[clear].max(axis=1)
    assert best[0] < -math.log10(registry.BEST_LOSS["enron"]), "worse than saying the share of spam"
